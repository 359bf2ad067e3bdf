# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
import gzip
import json
import os
import sys

import pytest

import otelgpu


class Window:
    """The used part of what torch passes to on_trace_ready."""

    def __init__(self, text):
        self.text = text

    def export_chrome_trace(self, path):
        with open(path, "w") as f:
            f.write(self.text)


def only(folder):
    names = [n for n in os.listdir(folder) if not n.startswith(".")]
    assert len(names) == len(os.listdir(folder)) == 1
    return os.path.join(folder, names[0])


@pytest.mark.parametrize("text", ['{"schemaVersion": 1, "traceEvents": [' + "{}," * 5000 + "{}]}", "  {}"])
def test_a_window_is_written_with_the_current_span(exporter, tmp_path, text):
    folder = str(tmp_path / "traces")
    with exporter.tracer.start_as_current_span("step") as span:
        otelgpu.trace_handler(folder, "worker/0")(Window(text))
    path = only(folder)
    assert os.path.basename(path).startswith("worker_0.") and path.endswith(".pt.trace.json.gz")
    got = json.load(gzip.open(path))
    sc = span.get_span_context()
    assert got.pop("traceparent") == "00-%032x-%016x-%02x" % (sc.trace_id, sc.span_id, sc.trace_flags)
    assert got == json.loads(text)


def test_without_a_span_the_window_is_as_it_was(tmp_path):
    otelgpu.trace_handler(str(tmp_path), compress=False)(Window('{"traceEvents": []}'))
    path = only(str(tmp_path))
    assert path.endswith(".pt.trace.json")
    assert open(path).read() == '{"traceEvents": []}'


def test_a_window_that_cannot_be_written_does_not_stop_the_program(tmp_path):
    class Broken:
        def export_chrome_trace(self, path):
            raise OSError(28, "No space left on device")

    otelgpu.trace_handler(str(tmp_path))(Broken())
    (tmp_path / "file").write_text("")
    otelgpu.trace_handler(str(tmp_path / "file"))(Window("{}"))
    assert otelgpu.stats()["error"] == 2
    assert os.listdir(tmp_path) == ["file"]


def test_real_torch_writes_windows_below_the_current_span(exporter, tmp_path):
    torch = pytest.importorskip("torch", reason="torch is not installed: its profiler is not tried")
    from torch.profiler import ProfilerActivity, profile, schedule

    with exporter.tracer.start_as_current_span("training") as span:
        with profile(activities=[ProfilerActivity.CPU], schedule=schedule(wait=0, warmup=1, active=1, repeat=2),
                     on_trace_ready=otelgpu.trace_handler(str(tmp_path))) as p:
            for _ in range(4):
                torch.mm(torch.ones(8, 8), torch.ones(8, 8))
                p.step()
    files = sorted(os.listdir(tmp_path))
    assert len(files) == 2
    for name in files:
        got = json.load(gzip.open(tmp_path / name))
        assert "%032x" % span.get_span_context().trace_id in got["traceparent"]
        assert any(e.get("name") == "aten::mm" for e in got["traceEvents"])
    assert sys.modules["torch"] is torch
