# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
"""The analysis of benchmarks/instruments.py on simulated instruments, and its calls of NVML on a library in C."""

import importlib.util
import json
import pathlib
import shutil
import subprocess

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


STUB = r"""
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


@pytest.fixture(scope="module")
def stub(tmp_path_factory):
    if not shutil.which("gcc"):
        pytest.skip("no C compiler")
    folder = tmp_path_factory.mktemp("nvml")
    (folder / "stub.c").write_text(STUB)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", str(folder / "nvml.so"), str(folder / "stub.c")], check=True)
    return str(folder / "nvml.so")


def test_every_call_reads_its_own_field(stub):
    nvml = instruments.Nvml(stub)
    values = {name: instrument() for name, instrument in nvml.instruments.items()}
    assert values == {
        "energy counter": pytest.approx(5000000000.123), "power": pytest.approx(123.456), "power, average": None,
        "power, instantaneous": pytest.approx(300.5), "utilization": 42, "process utilization": 50, "SM clock": 1980,
        "throttle reasons": None,  # a library without the function
    }
    assert nvml.instruments["process utilization"]() is None  # nothing newer
    with pytest.raises(OSError, match="NVML returned 2"):
        instruments.Nvml(stub, 1)


def test_read_takes_each_instrument_once_per_interval(stub):
    now = [100.0]

    def sleep(seconds):
        now[0] += seconds

    def clock():
        now[0] += 1e-6
        return now[0]

    got = instruments.read(instruments.Nvml(stub), 0.1, 0.01, clock, sleep)
    assert 9 <= len(got["power"]) <= 11
    assert len(got["process utilization"]) == 1
    assert got["throttle reasons"] == []
    assert all(100 <= t <= 100.2 for t, _ in got["power"])


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


def test_without_a_gpu_it_prints_the_reason(capsys):
    instruments.main(["--nvml", "libdoesnotexist.so"])
    assert capsys.readouterr().out.startswith("skipped: ")
