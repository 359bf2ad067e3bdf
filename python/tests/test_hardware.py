# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
"""The run of everything that needs a GPU, with parts that fail, hang and print nothing."""

import importlib.util
import os
import pathlib
import signal
import subprocess
import sys
import types
import zipfile

import pytest

BENCHMARKS = pathlib.Path(__file__).parents[1] / "benchmarks"


def load(name, monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    spec = importlib.util.spec_from_file_location(name, BENCHMARKS / (name + ".py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def hardware(monkeypatch, tmp_path):
    module = load("hardware", monkeypatch)
    monkeypatch.setattr(module, "GRACE", 0.2)
    monkeypatch.setattr(module, "smi", lambda what: ["4711"] if "--query-compute-apps=pid" in what else ["NVIDIA X, 1.2"])
    with zipfile.ZipFile(tmp_path / "kit.zip", "w") as z:
        z.writestr("otelcol-gpu", "#!/bin/sh\necho \"| kit | $0 |\"\n")
        z.writestr("hardware.test", "#!%s\nimport time; time.sleep(60)" % sys.executable)
    module.kit = str(tmp_path / "kit.zip")
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGALRM)}
    yield module
    signal.setitimer(signal.ITIMER_REAL, 0)
    for number, handler in handlers.items():
        signal.signal(number, handler)


def part(hardware, name, code, wants=200, needs=1):
    return hardware.Part(name, wants, needs, lambda run, seconds: [sys.executable, "-S", "-c", code])


def test_no_part_affects_the_others(hardware, monkeypatch, capsys):
    sleeper = "import subprocess, sys; subprocess.Popen([sys.executable, '-S', '-c', 'import time; time.sleep(300)']);"
    stubborn = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('| half | 2 |', flush=True); time.sleep(300)"
    monkeypatch.setattr(hardware, "PARTS", [
        part(hardware, "crash", "print('| first | 1 |', flush=True); print('CUDA error: busy'); raise SystemExit('a worker ended')"),
        part(hardware, "silent", "print('nothing here')"),
        part(hardware, "hang", stubborn, wants=.5, needs=.5),
        part(hardware, "pipe", sleeper + "print('| leaves a process | 3 |')"),
        part(hardware, "package", "print('skipped: torch is not installed')"),
        part(hardware, "partly", "print('failed: cupy: status 1'); print('| jax | 4 |')"),
        hardware.Part("absent", 200, 1, lambda run, seconds: [str(run.folder / "nothing")]),
        hardware.Part("kit", 200, 1, lambda run, seconds: [run.collector]),
        part(hardware, "long", "print('| never | 9 |')", needs=3600),
    ])
    hardware.main([hardware.kit, "--seconds", "1000"])
    table, missing = capsys.readouterr().out.split("| check | NVIDIA X, 1.2 |\n| --- | --- |\n")[1].split("\n\nnot measured:\n")
    rows = [x for x in table.splitlines() if x != "| half | 2 |"]  # if it has started in time
    assert rows[:-1] == ["| first | 1 |", "| leaves a process | 3 |", "| jax | 4 |"]
    assert rows[-1].startswith("| kit | ") and rows[-1].endswith("/otelcol-gpu |")
    lines = missing.splitlines()
    assert lines[:7] == [
        "- device: process 4711 uses it as well: the figures include what it does",
        "- crash: ended with status 1 after 1 rows: CUDA error: busy; a worker ended",
        "- silent: it printed no rows",
        lines[3],
        "- package: skipped: torch is not installed",
        "- partly: failed: cupy: status 1",
        lines[6],
    ]
    assert lines[3].startswith("- hang: ended by its limit of 0 s, ")
    assert lines[6].startswith("- absent: cannot be started: ")
    assert lines[7].startswith("- long: not run: it needs 3600 s, and ") and lines[7].endswith("--only long)")
    assert len(lines) == 8


def test_the_run_ends_before_its_limit(hardware, monkeypatch, capsys):
    hang = "import time; print('| x | 1 |', flush=True); time.sleep(300)"
    monkeypatch.setattr(hardware, "PARTS", [part(hardware, str(i), hang, wants=60, needs=.1) for i in range(5)])
    limits, now = [], [1000.0]

    def execute(command, seconds, *_):
        limits.append(seconds)
        now[0] += seconds + 2 * hardware.GRACE  # each is killed in the end

    monkeypatch.setattr(hardware, "execute", execute)
    monkeypatch.setattr(hardware.time, "monotonic", lambda: now[0])
    hardware.main([hardware.kit, "--seconds", "120"])
    assert limits == pytest.approx([60, 58.2]) and now[0] <= 1119, "the first ones take it from the last ones"
    assert capsys.readouterr().out.count("not run: it needs 0 s, and 0 s are left") == 3 * 2


def test_an_interrupted_run_prints_what_it_has(hardware):
    with subprocess.Popen([sys.executable, str(BENCHMARKS / "hardware.py"), hardware.kit, "--only", "library"],
                          stdout=subprocess.PIPE, text=True, env=dict(os.environ, PATH="")) as p:
        first = p.stdout.readline()
        p.terminate()
        out = p.stdout.read()
    assert first.startswith("-- library")
    assert "| check | no device |" in out and "- the run: interrupted after " in out


def test_an_unknown_part_is_an_error(hardware, capsys):
    with pytest.raises(SystemExit):
        hardware.main([hardware.kit, "--only", "looking,lokking"])
    assert "lokking" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="make hardware-kit"):
        hardware.main(["/nonexistent"])


@pytest.fixture
def looking(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(nn=types.SimpleNamespace(Module=object)))
    return load("looking", monkeypatch)


def test_rounds_fit_into_the_budget(looking):
    for budget in (60, 120, 245, 305, 600):
        for kinds in (1, 2):
            rounds, seconds = looking.plan(budget, 5, kinds)
            runs = sum(seconds if s is None else s for s in (w[1] for w in looking.ways(None)))
            assert rounds == 1 or rounds * kinds * (runs + 4.5) <= budget
            assert 1 <= seconds <= 4
    assert looking.plan(305, 5, 2)[0] == 5, "what is left of ten minutes suffices for five rounds"


def test_a_way_that_costs_more_than_the_limit_is_named(looking, capsys):
    rounds = [{"bare": 100.0, "Python sections per step": 99.0, "Python sections per layer and step": 90.0 + i,
               "capture library, idle": 100.0, "windows of 1 s in 4 s, beyond the idle library": 97.0 + i,
               ("estimate", "windows of 1 s in 4 s, beyond the idle library"): 0.1 + i / 100} for i in range(3)]
    rounds.append({"bare": 101.0})  # an error ended this round
    looking.summary("decode", rounds, {("decode", "windows of 1 s in 10 s, beyond the idle library"): "busy"}, "a model")
    assert capsys.readouterr().out.splitlines() == [
        "| decode, tokens per second, bare | 100.0 to 101.0 (a model) |",
        "| decode, cost of: Python sections per step | 1.0 % (1.0 to 1.0 in 3 rounds): within 2 % |",
        "| decode, cost of: Python sections per layer and step | 9.0 % (8.0 to 10.0 in 3 rounds): more than 2 % |",
        "| decode, cost of: capture library, idle | 0.0 % (0.0 to 0.0 in 3 rounds): within 2 % |",
        "| decode, cost of: windows of 1 s in 4 s, beyond the idle library | "
        "2.0 % (1.0 to 3.0 in 3 rounds): within 2 % in the median, not in each round |",
        "| decode, ms lost by one of the windows of 1 s in 4 s, beyond the idle library, and as the receiver estimates it from above | "
        "80 (40 to 120); 100 to 120 |",
        "| decode, cost of: windows of 1 s in 10 s, beyond the idle library | not measured: busy |",
    ]


def test_a_window_that_recorded_nothing_is_no_measurement(looking):
    assert looking.no_window("") == "no window was recorded"
    assert looking.no_window('warn\tcannot record a window; will retry\t{"pid": 1, "outcome": "no_cupti", "reason": "no libcupti"}') == "no libcupti"
    assert looking.no_window('info\tTraces\t{"resource spans": 1, "spans": 1204}') == "no window was recorded"
    assert looking.no_window('info\tTraces\t{"resource spans": 1, "spans": 1204}\nwarn\t{"cost_of_a_window": 0.0084}') == ""


def test_one_framework_does_not_affect_the_others(monkeypatch, capsys, tmp_path):
    frameworks = load("frameworks", monkeypatch)
    monkeypatch.setattr(frameworks, "__file__", str(tmp_path / "stub.py"))
    (tmp_path / "stub.py").write_text("""
import json, sys, time
if sys.argv[2] == "json":
    print(json.dumps({"label": "json, default stream", "seconds": 1e-3, "source": "cuda_event", "status": None, "called": 2e-5,
                      "measured": 1.01e-3, "known": 1e-3, "worst": 2e-5, "bound": 5e-6}))
    print("noise")
    print(json.dumps({"label": "stats", "stats": {"spans": 3}}), flush=True)
    sys.exit("cannot go on")
time.sleep(300)
""")
    frameworks.run("json", 60)
    frameworks.run("sys", 0.1)
    frameworks.run("doesnotexist", 60)
    out = [x for x in capsys.readouterr().out.splitlines() if x]
    assert out == [
        "| json, default stream, a kernel of 1000.0 µs | 1010.0 µs measured, 1000.0 µs known, at most 20.0 µs apart, "
        "stated error 5.0 µs, 20.0 µs of the caller |",
        "| json: stats | spans 3 |",
        "cannot go on",
        "failed: json: status 1: cannot go on",
        "failed: sys: no end after 0 s",
        "skipped: doesnotexist is not installed",
    ]
