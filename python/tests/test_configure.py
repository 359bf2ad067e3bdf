# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
"""Settings: verbosity, schedule, NVTX ranges, lines of a log, by the environment, a mapping or YAML."""

import logging
import os
import re
import subprocess
import sys

import pytest

import driverstub
import otelgpu
from otelgpu import _runtime, _section

ALL = {"timing": {"verbosity": "debug"}}


def names(exporter):
    assert otelgpu.flush(10)
    return [s.name for s in exporter.get_finished_spans()]


def program():
    with otelgpu.section("usual"):
        with otelgpu.section("more", verbosity="verbose"):
            with otelgpu.section("all", verbosity="debug"):
                pass
    for step in otelgpu.loop("train", total_steps=1):
        with step.phase("forward", verbosity="debug"):
            pass


@pytest.mark.parametrize("verbosity,want", [
    ("off", []), (False, []), ("default", ["usual", "train"]), ("verbose", ["usual", "more", "train"]),
    ("debug", ["usual", "more", "all", "forward", "train"])])
def test_sections_up_to_the_verbosity_are_recorded(exporter, gpu, verbosity, want):
    otelgpu.configure({"timing": {"verbosity": verbosity}})
    program()
    assert sorted(names(exporter)) == sorted(want)


def test_a_section_above_the_verbosity_leaves_its_children_to_its_parent(exporter, gpu):
    with otelgpu.section("outer"), otelgpu.section("hidden", verbosity="verbose"), otelgpu.section("inner"):
        pass
    assert sorted(names(exporter)) == ["inner", "outer"]
    inner, outer = sorted(exporter.get_finished_spans(), key=lambda s: s.name)
    assert inner.parent.span_id == outer.context.span_id


def test_recording_pauses_and_continues(exporter, gpu):
    @otelgpu.section("f")
    def f():
        pass
    f()
    with otelgpu.section("running"):
        otelgpu.configure({"timing": False})
        f()
    assert sum(1 for _ in otelgpu.loop("train", total_steps=3)) == 3
    otelgpu.configure({"timing": True})
    f()
    assert sorted(names(exporter)) == ["f", "f", "running"]


@pytest.mark.parametrize("sync,inner,outer", [
    ("deferred", None, None), ("group", None, 0.03), ("immediate", 0.02, 0.03), ("none", None, None)])
def test_sections_wait_for_the_device_if_told(exporter, gpu, fresh, monkeypatch, sync, inner, outer):
    monkeypatch.setattr(fresh, "_run", lambda: None)  # nobody else reads the events
    otelgpu.configure({"timing": {"sync": sync}})
    stream = gpu.torch.cuda.current_stream()
    for step in otelgpu.loop("train", total_steps=1):
        with otelgpu.section("outer") as a:
            stream.run(0.01)
            with otelgpu.section("inner") as b:
                stream.run(0.02)
            assert b.elapsed is None if inner is None else b.elapsed > inner * 0.99
        assert a.elapsed is None if outer is None else a.elapsed > outer * 0.99
    assert len(names(exporter)) == 3
    for s in exporter.get_finished_spans():
        assert s.attributes["gpu.timing.source"] == ("host" if sync == "none" else "cuda_event")


def test_a_wait_for_a_device_that_hangs_ends(exporter, gpu, monkeypatch):
    monkeypatch.setattr(_section, "HANG_DEADLINE", 0.01)
    otelgpu.configure({"timing": {"sync": "immediate"}})
    with otelgpu.section("a") as section:
        gpu.torch.cuda.current_stream().run(0.3)
    assert section.elapsed is None
    assert names(exporter) == ["a"] and section.elapsed > 0.3 * 0.99


@pytest.mark.parametrize("variables,want", [
    ({"OTELGPU_VERBOSITY": "Debug"}, ["all", "forward", "more", "train", "usual"]), ({"OTELGPU_VERBOSITY": "off"}, []),
    ({"OTELGPU_ENABLED": "false", "OTELGPU_VERBOSITY": "debug"}, [])])
def test_the_environment(exporter, gpu, monkeypatch, variables, want):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(_runtime, "_runtime", _runtime.Runtime())
    if "OTELGPU_ENABLED" in variables:
        otelgpu.configure({"timing": {"enabled": True, "verbosity": "debug"}})
    program()
    assert sorted(names(exporter)) == want


def test_words_that_are_no_verbosity_are_reported(exporter, gpu, monkeypatch, caplog):
    monkeypatch.setenv("OTELGPU_VERBOSITY", "loud")
    monkeypatch.setattr(_runtime, "_runtime", _runtime.Runtime())
    with otelgpu.section("a", verbosity="off"):
        pass
    assert names(exporter) == ["a"]
    assert "'loud' is not one of off, default, verbose, debug" in caplog.text
    assert "'off' is not one of default, verbose, debug" in caplog.text


FILE = """
model: {layers: 2}
runtime:
  timing: {verbosity: off}
  profiling: {every: 4, active: 2, schedule: {skip_first: 2}, step_csv: {path: %s, phases: [load]}}
  nvtx: false
---
second: document
"""


def test_a_file_of_a_trainer(exporter, gpu, tmp_path, fresh):
    pytest.importorskip("yaml", reason="PyYAML is not installed")
    (tmp_path / "train.yaml").write_text(FILE % (tmp_path / "steps.csv"))
    otelgpu.configure(tmp_path / "train.yaml", "runtime")
    assert fresh.settings.verbosity == "off" and not otelgpu.stats()
    otelgpu.configure({"timing": {"verbosity": "default"}, "profiling": {"schedule": {"warmup": 1}}})
    for step in otelgpu.loop("train", total_steps=10):
        with step.phase("load"):
            pass
    for step in otelgpu.loop("all", total_steps=1, schedule=otelgpu.Schedule()):
        pass
    assert otelgpu.flush(10)
    steps = [s.attributes["gpu.step.index"] for s in exporter.get_finished_spans() if s.name == "train"]
    assert steps == [5, 6, 9, 10] and len(names(exporter)) == 9
    rows = (tmp_path / "steps.csv").read_text().splitlines()
    assert rows[0].endswith("t_load_ms") and sorted(int(row.split(",")[0]) for row in rows[1:]) == [1, 5, 6, 9, 10]


@pytest.mark.parametrize("source,at,said", [
    ({"timing": {"verbosty": "debug"}}, "", "timing: unknown key 'verbosty' (did you mean verbosity?)"),
    ({"timing": {"slots": 3}}, "", "timing: unknown key 'slots' (known are enabled, verbosity, sync)"),
    ({"timing": {"sync": "always"}}, "", "timing.sync: must be one of deferred, group, immediate, none, found 'always'"),
    ({"timing": {"verbosity": "loud"}}, "", "timing.verbosity: must be one of off, default, verbose, debug, found 'loud'"),
    ({"timing": 3}, "", "timing: must be a mapping, found 3"),
    ({"nvtx": {"enabled": "yes"}}, "", "nvtx.enabled: must be true or false, found 'yes'"),
    ({"profiling": {"warmup": -1}}, "", "profiling.warmup: must be a number of steps, found -1"),
    ({"profiling": {"with_stack": True}}, "", "profiling.with_stack: is not of otelgpu (use torch.profiler"),
    ({"profiling": {"every": 2, "active": 3}}, "", "every is the length of a cycle"),
    ({"profiling": {"repeat": 2}}, "", "repeat needs active or every"),
    ({"profiling": {"step_csv": 3}}, "", "profiling.step_csv: must be a path or {path, phases}, found 3"),
    ({"profiling": {"step_csv": {"path": "x", "phases": [["a"]]}}}, "", "must be a path or {path, phases}"),
    ({"timing": {1: 2}}, "", "timing: unknown key 1 (known are enabled, verbosity, sync)"), (7, "", "not int"),
    ({"a": {}}, "a.b", "there is no mapping at 'a.b'"), ([], "", "expected str, bytes or os.PathLike"),
    ("/none/train.yaml", "", "No such file or directory")])
def test_wrong_settings_are_reported_and_right_ones_applied(exporter, gpu, fresh, caplog, source, at, said):
    if isinstance(source, (str, int)):
        pytest.importorskip("yaml", reason="PyYAML is not installed")
    else:
        otelgpu.configure({"timing": {"verbosity": "verbose"}})
    otelgpu.configure(source, at)
    assert said in caplog.text
    assert otelgpu.stats() == {"error": 1} and fresh.settings.schedule == otelgpu.Schedule() and fresh.settings.level > 0


def test_all_problems_are_reported_at_once(fresh, caplog):
    otelgpu.configure({"timing": {"verbosity": 1, "enabled": False}, "nvtx": {"domain": ""}})
    assert "timing.verbosity" in caplog.text and "nvtx.domain" in caplog.text and len(caplog.records) == 1
    assert fresh.settings.level == 0


def test_aliases_make_no_long_text(fresh, caplog, tmp_path):
    pytest.importorskip("yaml", reason="PyYAML is not installed")
    levels = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"] + [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12)]
    (tmp_path / "bomb.yaml").write_text("\n".join([*levels, "timing: {verbosity: *a11}", "profiling: {every: *a11, a: *a11}"]))
    otelgpu.configure(tmp_path / "bomb.yaml")
    assert "timing.verbosity: must be one of" in caplog.text and len(caplog.text) < 2000


def test_yaml_is_optional(fresh, caplog, monkeypatch):
    monkeypatch.setitem(sys.modules, "yaml", None)
    otelgpu.configure("train.yaml")
    assert "pip install 'otelgpu[yaml]'" in caplog.text


def test_a_forked_child_keeps_the_settings(exporter, gpu, fresh):
    otelgpu.configure(ALL)
    pid = os.fork()
    if pid == 0:
        os._exit(0 if _runtime.runtime() is not fresh and _runtime.runtime().settings.verbosity == "debug" else 1)
    assert os.waitpid(pid, 0)[1] == 0


def test_each_section_has_a_line_if_its_logger_is_on(exporter, gpu, caplog):
    with otelgpu.section("before"):
        pass
    otelgpu.flush(10)
    assert not caplog.records
    caplog.set_level(logging.INFO, "otelgpu.sections")
    stream = gpu.torch.cuda.current_stream()
    with otelgpu.section("outer", category="attention"):
        stream.run(0.002)
    with pytest.raises(RuntimeError), otelgpu.section("compile", type="host"):
        raise RuntimeError("no kernel")
    for step in otelgpu.loop("train", total_steps=1):
        stream.run(0.001)
    assert otelgpu.flush(10)
    said = sorted(r.getMessage() for r in caplog.records)
    assert said[0].startswith("compile: ") and said[0].endswith(" (host), failed: RuntimeError: no kernel")
    assert re.fullmatch(r"outer: 2\.?\d*ms, attention", said[1]) and re.fullmatch(r"train step 1: 1\.?\d*ms", said[2])


def test_the_report_is_printed_at_the_end():
    text = ("import otelgpu\notelgpu.configure({'profiling': {'print_report': True}})\n"
            "with otelgpu.section('one', type='host'): pass\n")
    out = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60)
    assert out.returncode == 0 and "one (host)" in out.stderr, out.stderr


# -- NVTX ------------------------------------------------------------------------------------------------------------------

PROGRAM = """
import otelgpu
otelgpu.configure({"nvtx": {"enabled": True, "domain": "mine"}})
for step in otelgpu.loop("train", total_steps=2):
    with otelgpu.section("a", category="attention"), otelgpu.section("b"):
        pass
    section = otelgpu.section("dropped")
    with section:
        section.discard()
otelgpu.configure({"nvtx": False})
with otelgpu.section("without"):
    pass
"""


def test_a_profiler_gets_ranges(tmp_path):
    pytest.importorskip("nvtx", reason="nvtx is not installed")
    tool = driverstub.build(tmp_path, "-DANY_CLIENT", source="nvtx.c")
    text = PROGRAM + f"""
import ctypes
lib = ctypes.CDLL({str(tool)!r})
for f in ("kind", "domain", "text"):
    getattr(lib, "rec_" + f).restype = ctypes.c_char_p
lib.rec_id.restype = lib.rec_payload.restype = ctypes.c_uint64
for i in range(lib.rec_count()):
    print(*(getattr(lib, "rec_" + f)(i).decode() or "-" for f in ("kind", "domain", "text")), lib.rec_id(i), lib.rec_payload(i))
assert lib.rec_attributes_ok()
"""
    out = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60,
                         env={**os.environ, "NVTX_INJECTION64_PATH": str(tool)})
    assert out.returncode == 0, out.stderr
    rows = [line.split() for line in out.stdout.splitlines()]
    opened = {}
    inside, seen = [], []
    for kind, domain, text, number, payload in rows:
        if kind == "start":
            assert domain == "mine"
            seen.append("/".join([*inside, text + (payload if text == "train" else "")]))
            inside.append(text)
            opened[number] = text
        elif kind == "end":
            assert inside.pop() == opened.pop(number)
    assert not opened and not inside
    steps = [f"train{i}" for i in (1, 2)]
    assert seen == [x for step in steps for x in (step, "train/a", "train/a/b", "train/dropped")]


def test_torch_makes_ranges_if_nvtx_is_not_installed(exporter, gpu, monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, "nvtx", None)
    seen = []
    gpu.torch.cuda.nvtx = type("nvtx", (), {"range_start": lambda name: seen.append(name) or 7, "range_end": seen.append})
    otelgpu.configure({"nvtx": True})
    with otelgpu.section("a"):
        seen.append("inside")
    assert seen == ["a", "inside", 7] and not caplog.records


@pytest.mark.parametrize("call", ["range_start", "range_end"])
def test_a_failing_library_costs_the_ranges_only(exporter, gpu, monkeypatch, caplog, call):
    monkeypatch.setitem(sys.modules, "nvtx", None)
    calls = {"range_start": lambda name: 7, "range_end": lambda number: None}
    calls[call] = lambda _: 1 / 0
    gpu.torch.cuda.nvtx = type("nvtx", (), calls)
    otelgpu.configure({"nvtx": True})
    for step in otelgpu.loop("train", total_steps=2):
        with step.phase("a"):
            pass
    assert sorted(names(exporter)) == ["a", "a", "train", "train"] and caplog.text.count("NVTX ranges") == 1


def test_ranges_without_a_library_are_reported_once(exporter, monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, "nvtx", None)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setenv("OTELGPU_NVTX", "true")
    monkeypatch.setattr(_runtime, "_runtime", _runtime.Runtime())
    for _ in range(3):
        with otelgpu.section("a"):
            pass
    assert caplog.text.count("pip install 'otelgpu[nvtx]'") == 1 and names(exporter) == ["a"] * 3
