# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
"""The analysis of benchmarks/instruments.py on simulated instruments, and its calls of NVML on a library in C."""

import ctypes
import importlib.util
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys

import pytest

spec = importlib.util.spec_from_file_location("instruments", pathlib.Path(__file__).parents[1] / "benchmarks" / "instruments.py")
instruments = importlib.util.module_from_spec(spec)
spec.loader.exec_module(instruments)

PERIOD, DELAY, IDLE, BUSY = 0.1, 0.05, 70.0, 600.0
EDGES = [float(t) for t in range(0, 21)]  # busy from 1 to 2, from 3 to 4, ...


def power(t):
    return BUSY if int(t) % 2 else IDLE


def energy(t):
    whole = int(t)
    return sum(power(s) for s in range(whole)) + (t - whole) * power(t)


def refreshed(t, of):
    """The value that a driver shows that refreshes every PERIOD, DELAY after the truth."""
    return of(max(0.0, (t - DELAY) // PERIOD * PERIOD))


def readings(of, step=0.002):
    return [(i * step, refreshed(i * step, of)) for i in range(int(20 / step))]


def test_plateaus_are_the_refresh_period():
    lengths = instruments.plateaus(readings(energy))
    assert len(lengths) > 150
    assert instruments.quantile(lengths, 0.5) == pytest.approx(PERIOD, abs=0.004)


def test_delays_are_those_of_the_instrument():
    # The first refresh at or after an edge shows it: edges are multiples of the period, so after exactly DELAY.
    found = instruments.delays(readings(power), EDGES)
    assert len(found) == 19
    assert max(abs(d - DELAY) for d in found) <= 0.004


def test_an_edge_that_does_not_show_has_no_delay():
    assert instruments.delays([(i * 0.01, 100.0) for i in range(2000)], EDGES) == []


def test_counter_and_power_agree():
    ratio = instruments.agreement(readings(energy), readings(power))
    assert ratio == pytest.approx(1, abs=0.01)
    tenfold = [(t, 10 * v) for t, v in readings(energy)]
    assert instruments.agreement(tenfold, readings(power)) == pytest.approx(10, abs=0.1)
    assert instruments.agreement(readings(lambda t: 5.0), readings(power)) is None


def test_summary_has_a_row_for_each_instrument():
    rows = dict(instruments.summary({"energy counter": readings(energy), "power": readings(power), "SM clock": []}, EDGES))
    assert rows["SM clock"] == "not available"
    assert "refreshed after" in rows["energy counter"] and "behind an edge" in rows["energy counter"]
    assert "of 19" in rows["power"]
    assert float(rows["energy counter / integral of power"]) == pytest.approx(1, abs=0.01)


CONSTANTS = r"""
typedef struct { unsigned field, scope; long long timestamp, latency; unsigned type; int result; union { unsigned u; double d; } value; } field_value;
typedef struct { unsigned gpu, memory; } utilization;
typedef struct { unsigned pid; unsigned long long timestamp; unsigned sm, memory, encoder, decoder; } process;
int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **d) { *d = (void *)7; return i ? 2 : 0; }
static int wrong(void *d) { return d != (void *)7; }
int nvmlDeviceGetTotalEnergyConsumption(void *d, unsigned long long *v) { *v = 5000000000123ull; return wrong(d); }
int nvmlDeviceGetPowerUsage(void *d, unsigned *v) { *v = 123456; return wrong(d); }
int nvmlDeviceGetFieldValues(void *d, int n, field_value *v) {
    v->result = v->field == 185 ? 3 : 0; /* not supported */
    v->value.d = -1;
    v->value.u = v->field == 186 ? 300500 : 1;
    return wrong(d) || n != 1;
}
int nvmlDeviceGetUtilizationRates(void *d, utilization *u) { u->gpu = 42; u->memory = 9; return wrong(d); }
int nvmlDeviceGetClockInfo(void *d, int kind, unsigned *v) { *v = kind == 1 ? 1980 : 1; return wrong(d); }
int nvmlDeviceGetProcessUtilization(void *d, process *p, unsigned *n, unsigned long long since) {
    if (since >= 200) return 6; /* not found: nothing newer */
    p[0] = (process){11, 200, 30, 1, 0, 0}; p[1] = (process){11, 100, 99, 1, 0, 0}; p[2] = (process){12, 150, 20, 1, 0, 0};
    *n = 3;
    return wrong(d);
}
"""


def library(folder, name, source):
    if not shutil.which("gcc"):
        pytest.skip("no C compiler")
    path = folder / (name + ".so")
    subprocess.run(["gcc", "-x", "c", "-shared", "-fPIC", "-o", str(path), str(source), "-lm"], check=True)
    return str(path)


@pytest.fixture(scope="module")
def constants(tmp_path_factory):
    folder = tmp_path_factory.mktemp("nvml")
    (folder / "stub.c").write_text(CONSTANTS)
    return library(folder, "constants", folder / "stub.c")


def test_every_call_reads_its_own_field(constants):
    nvml = instruments.Nvml(constants)
    values = {name: instrument() for name, instrument in nvml.instruments.items()}
    assert values == {
        "energy counter": pytest.approx(5000000000.123), "power": pytest.approx(123.456), "power, average": None,
        "power, instantaneous": pytest.approx(300.5), "utilization": 42, "process utilization": 50, "SM clock": 1980,
        "throttle reasons": None,  # a library without the function
    }
    assert nvml.instruments["process utilization"]() is None  # nothing newer
    with pytest.raises(OSError, match="NVML returned 2"):
        instruments.Nvml(constants, 1)


def test_read_takes_each_instrument_once_per_interval(constants):
    now = [100.0]

    def sleep(seconds):
        now[0] += seconds

    def clock():
        now[0] += 1e-6
        return now[0]

    got = instruments.read(instruments.Nvml(constants), 0.1, 0.01, clock, sleep)
    assert 9 <= len(got["power"]) <= 11
    assert len(got["process utilization"]) == 1
    assert got["throttle reasons"] == []
    assert all(100 <= t <= 100.2 for t, _ in got["power"])


@pytest.fixture(scope="module")
def device(tmp_path_factory):
    """A device that follows loads in the test's time."""
    return library(tmp_path_factory.mktemp("device"), "device", pathlib.Path(__file__).with_name("nvml_stub.c"))


def measure(device, folder, monkeypatch, seconds=45, late=0.0, prepare=lambda stub: None):
    """Returns what instruments.py reads each 4 ms. The device's time advances by 20 µs per call, and of 30 reads one is late by up to
    late."""
    monkeypatch.setenv("OTELGPU_STUB_LOADS", str(folder))
    stub, generator, now = ctypes.CDLL(device), random.Random(3), [1000.0]
    set_time = stub.stub_time
    set_time.argtypes = [ctypes.c_double]

    def clock():
        now[0] += 2e-5
        set_time(now[0])
        return now[0]

    def sleep(duration):
        now[0] += duration + generator.random() * late * (generator.random() < 0.033)

    edges, steps = [1000.003], instruments.lengths()
    while edges[-1] < 1000 + seconds:
        edges.append(edges[-1] + next(steps))
    instruments.tell(str(folder / "load"), edges)
    stub.stub_forget()
    clock()
    prepare(stub)
    nvml = instruments.Nvml(device, now=lambda: now[0])
    readings = instruments.read(nvml, seconds, 0.004, clock, sleep)
    stub.stub_freeze(0)
    stub.stub_no_instant(0)
    return readings, edges, nvml.ages


@pytest.fixture(scope="module")
def measured(device, tmp_path_factory):
    with pytest.MonkeyPatch.context() as monkeypatch:
        return measure(device, tmp_path_factory.mktemp("loads"), monkeypatch)


def check(rows, late=0.0):
    """Compares the rows with what nvml_stub.c does, within a reading's time."""
    slack = 8 + 1e3 * late
    for name, period, mean, delay in (
            ("energy counter", 100, None, 12), ("power", 100, 1000, 20), ("power, average", 100, 1000, 20),
            ("power, instantaneous", 100, 25, 5), ("utilization", None, 200, 0)):
        row = rows[name]
        if period:
            assert float(re.search(r"refreshed after [0-9.]+, ([0-9.]+),", row)[1]) == pytest.approx(period, abs=slack), row
        found = re.search(r"(?:a mean of (?:at most )?(\d+) ms, )?(\d+) ms late", row)
        assert mean is None or float(found[1]) == mean, row
        assert float(found[2]) == pytest.approx(delay, abs=slack), row
        steps = float(re.search(r"[0-9.]+, ([0-9.]+), [0-9.]+ ms behind", row)[1])
        # The middle of the mean, and a refresh later on average.
        assert steps == pytest.approx((mean or period) / 2 + delay + (period or 200) / 2, abs=slack + 45), row
    assert float(re.search(r"refreshed after [0-9.]+, ([0-9.]+),", rows["process utilization"])[1]) == pytest.approx(170, abs=slack)
    assert float(re.search(r"([0-9.]+), [0-9.]+, [0-9.]+ ms old", rows["process utilization"])[1]) == pytest.approx(30, abs=slack)
    for name in ("SM clock", "throttle reasons"):
        assert "changed with the load only" in rows[name] and "behind an edge" in rows[name]
    for name in ("power", "power, average", "power, instantaneous"):
        assert float(rows["energy counter / integral of " + name]) == pytest.approx(1, abs=0.04)


def test_rows_are_the_truth_of_the_device(measured):
    check(dict(instruments.summary(*measured)))


def test_rows_are_the_truth_on_a_busy_machine(device, tmp_path, monkeypatch):
    check(dict(instruments.summary(*measure(device, tmp_path, monkeypatch, late=0.04))), late=0.01)


WRONG = {
    "plateaus": lambda f: lambda readings: [2 * x for x in f(readings)],
    "delays": lambda f: lambda readings, edges: [x + 0.12 for x in f(readings, edges)],
    "rates": lambda f: lambda counter: [(t - 0.05, v) for t, v in f(counter)],
    "busy": lambda f: lambda edges: f([t + 0.03 for t in edges]),
    "integral": lambda f: lambda power, begin, end: 1.05 * f(power, begin, end),
    "WINDOWS": lambda _: (0.1, 0.2, 1.0),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_estimator_fails(measured, monkeypatch, name):
    wrong = WRONG[name](getattr(instruments, name))
    monkeypatch.setattr(instruments, name, wrong)
    if name == "WINDOWS":
        monkeypatch.setattr(instruments.mean_of, "__defaults__", (wrong,))
    with pytest.raises(AssertionError):
        check(dict(instruments.summary(*measured)))


def test_a_counter_that_stands_still_is_no_refresh(device, tmp_path, monkeypatch):
    rows = dict(instruments.summary(*measure(device, tmp_path, monkeypatch, 10, prepare=lambda stub: stub.stub_freeze(1))))
    assert rows["energy counter"].endswith("readings; never changed")
    assert not any("integral" in name for name in rows)


def test_a_driver_without_instantaneous_power(device, tmp_path, monkeypatch):
    rows = dict(instruments.summary(*measure(device, tmp_path, monkeypatch, 10, prepare=lambda stub: stub.stub_no_instant(1))))
    assert rows["power, instantaneous"] == "not available"
    assert "refreshed after" in rows["power"]


def test_a_driver_without_most_functions(tmp_path):
    (tmp_path / "old.c").write_text("int nvmlInit_v2(void) { return 0; } int nvmlDeviceGetHandleByIndex_v2(int i, void *d) { return 0; }")
    nvml = instruments.Nvml(library(tmp_path, "old", tmp_path / "old.c"))
    assert {name: instrument() for name, instrument in nvml.instruments.items()} == dict.fromkeys(nvml.instruments)
    (tmp_path / "none.c").write_text("int nothing;")
    with pytest.raises(OSError, match="nvmlInit returned 13"):
        instruments.Nvml(library(tmp_path, "none", tmp_path / "none.c"))


def test_the_rehearsal_prints_every_row(device, tmp_path):
    out = subprocess.run(
        [sys.executable, instruments.__file__, "--nvml", device, "--loads", str(tmp_path), "--seconds", "0.2", "--out", str(tmp_path / "o")],
        check=True, capture_output=True, text=True, env=dict(os.environ, OTELGPU_STUB_LOADS=str(tmp_path))).stdout
    for name in instruments.Nvml(device).instruments:
        assert "| %s | " % name in out
    assert json.loads((tmp_path / "o").read_text())["edges"]


def test_energies_are_the_last_of_each_process(tmp_path):
    def line(pid, joules, error):
        def metric(name, value):
            return {"name": name, "sum": {"dataPoints": [
                {"asDouble": value, "attributes": [{"key": "process.pid", "value": {"intValue": str(pid)}}]}]}}
        metrics = [metric("gpu.process.energy", joules), metric("gpu.process.energy_error", error),
                   {"name": "hw.energy", "sum": {"dataPoints": [{"asDouble": 7}]}}, {"name": "hw.power", "gauge": {}}]
        return json.dumps({"resourceMetrics": [{"resource": {}, "scopeMetrics": [{"metrics": metrics}]}]})

    file = tmp_path / "metrics.json"
    file.write_text("\n".join([line(11, 1.5, 0.5), line(12, 2.5, 0.25), line(11, 4.5, 1)]))
    assert instruments.energies(file) == {
        11: {"gpu.process.energy": 4.5, "gpu.process.energy_error": 1}, 12: {"gpu.process.energy": 2.5, "gpu.process.energy_error": 0.25}}
    assert instruments.energies(tmp_path / "none") == {}


def test_shares_are_compared_with_the_work_alone():
    def ran(joules, **processes):
        return {"joules": joules, "processes": processes}

    # Beside the other, each does half of its work; the memory-bound one is attributed too much, by more than its error.
    alone = {"arithmetic": ran(4000.0, arithmetic=(100, 3990.0, 80.0, 97.0)), "memory": ran(1800.0, memory=(50, 1810.0, 40.0, 99.0))}
    both = {"seen apart": ran(2900.0, arithmetic=(50, 1940.0, 90.0, 49.0), memory=(25, 1000.0, 90.0, 50.0))}
    assert dict(instruments.shares(alone, both)) == {
        "arithmetic alone: the counter above idle; attributed ± error": "4000 J; 3990 J ± 80 J",
        "memory alone: the counter above idle; attributed ± error": "1800 J; 1810 J ± 40 J",
        "arithmetic beside the other, seen apart: its work's joules alone; attributed ± error":
            "2000 J for 50 % of the work; 1940 J ± 90 J, within",
        "memory beside the other, seen apart: its work's joules alone; attributed ± error":
            "900 J for 50 % of the work; 1000 J ± 90 J, beyond",
        "both, seen apart: the counter above idle; attributed; SM utilization by NVML":
            "2900 J; 2940 J; arithmetic 49 %, memory 50 %",
    }
    nothing = ran(None, arithmetic=(100, None, None, None))
    rows = dict(instruments.shares({"arithmetic": nothing}, {"first": nothing}))
    assert rows["arithmetic alone: the counter above idle; attributed ± error"] == "not available; not available ± not available"
    assert rows["arithmetic beside the other, first: its work's joules alone; attributed ± error"].startswith("not available for 100 %")


def test_without_a_gpu_it_prints_the_reason(capsys):
    instruments.main(["--nvml", "libdoesnotexist.so"])
    assert capsys.readouterr().out.startswith("skipped: ")
