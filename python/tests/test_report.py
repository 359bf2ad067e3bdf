# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
"""The report, the CSV of steps, and FLOPs from shapes."""

import csv
import io
import json
import logging
import math
import random
import subprocess
import sys
import types

import pytest

import otelgpu
from otelgpu import _report, flops


def run(stream, name, *seconds, **values):
    for s in seconds:
        with otelgpu.section(name, **values):
            stream.run(s)


@pytest.fixture
def stream(exporter, gpu):
    out = gpu.torch.cuda.current_stream()
    out.ahead()
    return out


def report():
    assert otelgpu.flush(20)
    return otelgpu.report()


def test_the_first_run_is_apart_from_the_rest(stream):
    run(stream, "kernel", 0.010, 0.001, 0.002, 0.003, 0.004)
    o = report()["kernel"]
    near = dict(abs=3e-6)
    assert (o.all.runs, o.first.runs, o.rest.runs) == (5, 1, 4)
    assert o.all.total == pytest.approx(0.020, **near) and o.first.total == pytest.approx(0.010, **near)
    assert o.rest.mean == pytest.approx(0.0025, **near)
    assert o.rest.stddev == pytest.approx(math.sqrt(1.25) / 1e3, **near)
    assert (o.rest.min, o.rest.max) == (pytest.approx(0.001, **near), pytest.approx(0.004, **near))
    assert o.all.stddev == pytest.approx(math.sqrt(sum((x - 4) ** 2 for x in (10, 1, 2, 3, 4)) / 5) / 1e3, **near)


def test_rates_are_of_the_work_of_timed_runs(stream):
    run(stream, "gemm", 0.002, 0.002, flops=2e9, precision="bf16", items=10, item_type="token", read=4_000_000, written=2_000_000)
    run(stream, "h2d", 0.001, type="copy", copy="host_to_device", size=20_000_000)
    run(stream, "both", 0.001, type="copy", copy="host_to_device", read=20_000_000, written=20_000_000)
    run(stream, "d2h", 0.001, type="copy", copy="device_to_host", size=10_000_000)
    r = report()
    gemm = r["gemm"]
    assert gemm.all.flops_rate == pytest.approx(1e12, rel=2e-3) and gemm.all.items_rate == pytest.approx(5000, rel=2e-3)
    assert gemm.all.read_rate == pytest.approx(2e9, rel=2e-3) and gemm.all.written_rate == pytest.approx(1e9, rel=2e-3)
    assert (gemm.all.to_device, gemm.precision, gemm.item_type) == (None, "bf16", "token")
    assert r["h2d"].all.to_device_rate == r["both"].all.to_device_rate == pytest.approx(2e10, rel=2e-3)
    assert r["h2d"].all.from_device is None and r["h2d"].all.read is None
    assert r["d2h"].all.from_device_rate == pytest.approx(1e10, rel=2e-3)


def test_each_moment_of_a_stream_counts_once(stream, gpu):
    other = gpu.torch.cuda.Stream()
    for _ in range(2):
        with otelgpu.section("a"):
            stream.run(0.001)
            with otelgpu.section("a"):
                stream.run(0.002)
            with otelgpu.section("elsewhere", stream=other):
                other.run(0.006)
        run(stream, "b", 0.001)
    r = report()
    assert r.total == pytest.approx(2 * (0.003 + 0.006 + 0.001), abs=2e-5)
    assert r["a"].share == pytest.approx(0.006 / r.total, abs=1e-3)
    assert r["a/a"].share == pytest.approx(0.004 / r.total, abs=1e-3)
    assert r["a/a"].share_of_parent == pytest.approx(2 / 3, abs=1e-2)
    assert r["a/elsewhere"].share_of_parent == pytest.approx(2, abs=1e-2)
    top = [o for o in r.operations if len(o.path) == 1]
    assert sum(o.share for o in top) <= 1 and all(0 <= o.share <= 1 for o in r.operations)


def test_a_helper_within_and_alone_has_two_rows(stream):
    for _ in range(5):
        with otelgpu.section("forward"):
            run(stream, "helper", 0.001)
            stream.run(0.001)
        run(stream, "helper", 0.001)
    r = report()
    assert [o.path for o in r.operations] == [("forward",), ("forward", "helper"), ("helper",)]
    assert [round(o.share, 2) for o in r.operations] == [0.67, 0.33, 0.33]


def test_host_times_have_no_rates_and_no_share(exporter):
    with otelgpu.section("host", flops=1e9, items=3):
        pass
    r = report()
    o = r["host"]
    assert (o.source, o.share, o.all.flops, o.all.flops_rate, o.all.items_rate) == ("host", None, 1e9, None, None)
    assert o.all.total is not None and r.total == 0
    assert "host (host)" in str(r)


def test_runs_without_device_time_are_not_mixed_with_others(stream, gpu):
    run(stream, "kernel", 0.002)
    import threading
    gpu.capturing_thread = threading.get_ident()
    run(stream, "kernel", 0.002)
    gpu.capturing_thread = None
    o = report()["kernel"]
    assert (o.all.runs, o.all.timed) == (2, 1) and o.all.total == pytest.approx(0.002, abs=3e-6)
    assert "1/2" in str(otelgpu.report())


def test_failures_losses_and_forms(stream, monkeypatch, caplog):
    with otelgpu.section("fails", category="x") as s:
        s.fail("bad")
        stream.run(0.001)
    run(stream, "fine", 0.002, category="y")
    monkeypatch.setattr("otelgpu._runtime.MAX_PENDING", 0)
    run(stream, "lost", 0.001)
    r = report()
    assert (r["fails"].all.failed, r["fine"].all.failed, r.lost) == (1, 0, {"dropped.queue_full": 1})
    assert [o.name for o in r.operations] == ["fine", "fails"]
    assert [o.name for o in r.sort("name").operations] == ["fails", "fine"]
    assert [o.name for o in r.category("y").operations] == ["fine"]
    with pytest.raises(ValueError, match="time, flops, bytes, name"):
        r.sort("size")
    with pytest.raises(KeyError):
        r["nothing"]
    text = str(r)
    assert "Simulated H100" in text and "not recorded: 1 (dropped.queue_full)" in text
    value = json.loads(json.dumps(r.to_dict()))
    assert "flops_rate" not in value["operations"][0]["all"] and value["operations"][0]["path"] == "fails"
    rows = list(csv.DictReader(io.StringIO(r.to_csv())))
    assert [(x["path"], x["set"], x["runs"]) for x in rows] == [
        ("fails", "all", "1"), ("fails", "first", "1"), ("fine", "all", "1"), ("fine", "first", "1")]
    assert rows[0]["flops"] == "" and float(rows[2]["total"]) == pytest.approx(0.002, abs=3e-6)
    with caplog.at_level(logging.INFO):
        r.log(logging.getLogger("x"))
    assert any("fine" in m.getMessage() for m in caplog.records)
    otelgpu.reset_report()
    assert otelgpu.report().operations == []


def test_positions_are_bounded(stream, monkeypatch):
    monkeypatch.setattr(_report, "MAX_POSITIONS", 5)
    for i in range(20):
        run(stream, "s%d" % i, 0.0001)
    r = report()
    assert len(r.operations) == 6 and r["(other)"].all.runs == 15
    assert sum(o.all.runs for o in r.operations) == 20


def test_unions_match_a_definition():
    for seed in range(50):
        rng, union, all_ = random.Random(seed), _report._Union(), []
        for i in range(300):
            a = i + rng.uniform(-5, 5)
            all_.append((a, a + rng.uniform(0, 3)))
            union.add(*all_[-1])
        want, reached = 0.0, -math.inf
        for a, b in sorted(all_):
            want += max(b - max(a, reached), 0)
            reached = max(reached, b)
        assert union.length == pytest.approx(want, rel=1e-12)


def test_loops(stream):
    for step in otelgpu.loop("train", total_steps=4, item_type="image"):
        with step.phase("forward"):
            stream.run(0.002)
        with step.phase("backward"):
            stream.run(0.004)
        step.items = 12
    loop, = report().loops
    assert (loop.name, loop.steps, loop.incomplete) == ("train", 4, 0)
    assert loop.phases == {"backward": pytest.approx(0.004, abs=1e-5), "forward": pytest.approx(0.002, abs=1e-5)}
    assert loop.items_rate == pytest.approx(12 / loop.mean)
    assert "Loop train: 4 steps" in str(otelgpu.report())


HEADER = "step,epoch,t_data_ms,t_fwd_ms,t_bwd_ms,t_opt_ms,t_comm_ms,t_overlap_ms,t_misc_ms,t_step_ms,ips_step"


def train(stream, first=1, steps=3):
    for step in otelgpu.loop("train", total_steps=steps, first=first):
        with step.phase("forward"):
            stream.run(0.002)
        with step.phase("topr"):
            stream.run(0.001)
        with step.phase("assign"):
            stream.run(0.001)
        step.items, step.epoch = 5, 2
    assert otelgpu.flush(20)


def test_the_csv_of_steps_adds_up(stream, tmp_path):
    path = tmp_path / "new" / "steps.csv"
    otelgpu.step_csv(path, ["topr", "empty"])
    train(stream)
    lines = path.read_text().splitlines()
    assert lines[0] == HEADER + ",t_topr_ms,t_empty_ms"
    for i, row in enumerate(csv.DictReader(lines)):
        value = {k: float(v) for k, v in row.items() if v}
        assert (row["step"], row["epoch"], row["t_bwd_ms"], row["t_empty_ms"]) == (str(i + 1), "2", "", "")
        assert value["t_fwd_ms"] == pytest.approx(2, abs=0.01) and value["t_topr_ms"] == pytest.approx(1, abs=0.01)
        assert value["t_misc_ms"] >= 0.99, "with the phase that has no column"
        parts = value["t_fwd_ms"] + value["t_topr_ms"] - value["t_overlap_ms"] + value["t_misc_ms"]
        assert parts == pytest.approx(value["t_step_ms"], abs=2e-6)
        assert value["ips_step"] == pytest.approx(5e3 / value["t_step_ms"], rel=1e-3)


def test_a_phase_that_is_unknown_is_empty_in_the_csv(stream, tmp_path, monkeypatch):
    otelgpu.step_csv(tmp_path / "steps.csv")
    monkeypatch.setattr("otelgpu._loop.MAX_INTERVALS", 1)
    for step in otelgpu.loop("train", total_steps=1):
        for _ in range(2):
            with step.phase("forward"):
                pass
        with step.phase("backward"):
            stream.run(0.001)
    assert otelgpu.flush(20)
    row, = csv.DictReader((tmp_path / "steps.csv").read_text().splitlines())
    assert (row["t_fwd_ms"], row["t_overlap_ms"], row["t_misc_ms"]) == ("", "", "")
    assert float(row["t_bwd_ms"]) >= 0.99 and float(row["t_step_ms"]) >= 0.99


def test_a_file_is_continued_after_a_crash(stream, tmp_path):
    path = tmp_path / "steps.csv"
    path.write_text(HEADER + "\n1,,,,,,,,,1.000000,\n2,,,,3.0")
    otelgpu.step_csv(path)
    train(stream, first=2, steps=2)
    assert [x.split(",")[0] for x in path.read_text().splitlines()] == ["step", "1", "2", "3"]


def test_a_file_with_other_columns_is_not_changed(stream, tmp_path, caplog):
    path = tmp_path / "steps.csv"
    path.write_text("a,b\n1,2\n")
    otelgpu.step_csv(path)
    otelgpu.step_csv(tmp_path)
    train(stream)
    assert path.read_text() == "a,b\n1,2\n" and "has other columns (use another file" in caplog.text


def test_only_the_main_process_writes(stream, tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    otelgpu.step_csv(tmp_path / "main.csv")
    otelgpu.step_csv(tmp_path / "each.csv", rank=None, loop="other")
    train(stream)
    assert not (tmp_path / "main.csv").exists() and (tmp_path / "each.csv").read_text() == HEADER + "\n"


@pytest.mark.parametrize("value, want", [
    (flops.matmul((2, 3), (3, 5)), 60), (flops.matmul((7, 2, 3), (3, 5)), 420), (flops.matmul((3,), (3,)), 6),
    (flops.matmul((4, 1, 2, 3), (5, 3, 6)), 4 * 5 * 72), (flops.matmul((2, 3), (3,)), 12),
    (flops.matmul(types.SimpleNamespace(shape=(2, 3)), (3, 5)), 60),
    (flops.linear((8, 4, 3), (5, 3)), 2 * 32 * 15), (flops.linear((8, 3), (5, 3), bias=True), 240 + 40),
    (flops.einsum("ij,jk->ik", (2, 3), (3, 5)), 60), (flops.einsum("ij,jk", (2, 3), (3, 5)), 60),
    (flops.einsum("bij,bjk->bik", (7, 2, 3), (7, 3, 5)), 420), (flops.einsum("...ij,...jk->...ik", (7, 2, 3), (1, 3, 5)), 420),
    (flops.einsum("i,j->ij", (3,), (4,)), 12), (flops.einsum("ii->", (3, 3)), 3), (flops.einsum("ij->ji", (2, 3)), 0),
    (flops.elementwise((2, 3), 2), 12), (flops.reduce((2, 3)), 5), (flops.sparse(100, 8), 1600),
    (flops.conv((1, 4, 8, 8), (6, 4, 3, 3), (1, 6, 6, 6)), 2 * 216 * 36),
    (flops.conv((1, 4, 8, 8), (6, 2, 3, 3), (1, 6, 6, 6), groups=2), 2 * 216 * 18),
    (flops.fft((3, 8)), 3 * 5 * 8 * 3), (flops.fft((8,), real=True), 60),
    (flops.attention((2, 4, 16, 32), (2, 4, 16, 32)), 4 * 8 * 256 * 32),
    (flops.attention((1, 1, 3, 2), (1, 1, 3, 2), causal=True), 4 * 6 * 2),
    (flops.attention((1, 1, 2, 2), (1, 1, 3, 2), causal=True), 4 * 5 * 2),
    (flops.attention((1, 1, 3, 2), (1, 1, 2, 2), causal=True), 4 * 3 * 2), (flops.training(1e9, 10), 6e10)])
def test_flops(value, want):
    assert value == want


@pytest.mark.parametrize("call", [
    lambda: flops.matmul((2, 3), (4, 5)), lambda: flops.matmul((2, 2, 3), (3, 3, 5)), lambda: flops.matmul((), (3,)),
    lambda: flops.linear((2, 3), (5, 4)), lambda: flops.einsum("ij,jk->ik", (2, 3), (4, 5)),
    lambda: flops.einsum("ij->k", (2, 3)), lambda: flops.einsum("ij,jk", (2, 3)), lambda: flops.einsum("ijk", (2, 3)),
    lambda: flops.conv((1, 4, 8, 8), (6, 3, 3, 3), (1, 6, 6, 6)), lambda: flops.elementwise((-1, 2))])
def test_shapes_that_do_not_fit_are_errors(call):
    with pytest.raises(ValueError):
        call()


PROGRAM = """
import json, otelgpu
from opentelemetry import trace
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
class Print(SpanExporter):
    def export(self, spans):
        for s in spans:
            print(json.dumps([s.name, dict(s.resource.attributes)]), flush=True)
        return SpanExportResult.SUCCESS
BEFORE
otelgpu.init(ARGUMENTS)
with otelgpu.section("a"):
    pass
otelgpu.flush()
print(json.dumps(type(trace.get_tracer_provider()).__name__))
"""


def started(arguments, before="", **env):
    import os
    clean = {k: v for k, v in os.environ.items() if not k.startswith("OTEL")}
    program = PROGRAM.replace("ARGUMENTS", arguments).replace("BEFORE", before)
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, env={**clean, **env})
    assert out.returncode == 0, out.stderr
    lines = [json.loads(x) for x in out.stdout.splitlines()]
    return [x[1] for x in lines if isinstance(x, list)], next(x for x in lines if isinstance(x, str)), out.stderr


def test_init_sets_up_the_sdk():
    (a,), provider, _ = started("'train', exporter=Print(), attributes={'k': 1}", RANK="1", WORLD_SIZE="2",
                                TORCHELASTIC_RUN_ID="run", OTEL_RESOURCE_ATTRIBUTES="team=x,gpu.job.id=mine", OTEL_SERVICE_NAME="other")
    assert provider == "TracerProvider"
    assert (a["service.name"], a["k"], a["team"]) == ("train", 1, "x")
    assert (a["gpu.job.id"], a["gpu.job.rank"], a["gpu.job.world_size"]) == ("mine", 1, 2)
    assert len(a["service.instance.id"]) == 36
    (a,), _, log = started("exporter=Print()", OTEL_SERVICE_NAME="other", RANK="1", WORLD_SIZE="2")
    assert a["service.name"] == "other" and "share" not in log


def test_init_does_nothing_if_it_must_not():
    assert started("exporter=Print()", OTELGPU_ENABLED="false") == ([], "ProxyTracerProvider", "")
    assert started("exporter=Print()", OTEL_SDK_DISABLED="true")[0] == []
    own = "from opentelemetry.sdk.trace import TracerProvider\nmine = TracerProvider()\ntrace.set_tracer_provider(mine)"
    assert started("exporter=Print()", own)[0] == []


def test_init_names_the_package_that_is_missing():
    hidden = "import sys; sys.modules['opentelemetry.exporter.otlp.proto.http.trace_exporter'] = None"
    spans, provider, log = started("", hidden)
    assert spans == [] and "pip install 'otelgpu[otlp]'" in log


@pytest.mark.parametrize("env, arguments, want", [
    ({}, "", "http://127.0.0.1:4318/v1/traces"), ({}, "endpoint='http://c:1/'", "http://c:1/v1/traces"),
    ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://d:2", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "", "http://d:2/v1/traces"),
    ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://e:3/x"}, "", "http://e:3/x"),
    ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://d:2"}, "endpoint='http://c:1/v1/traces'", "http://c:1/v1/traces")])
def test_init_sends_to_the_endpoint(env, arguments, want):
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    before = """
import opentelemetry.exporter.otlp.proto.http.trace_exporter as e
class Export(e.OTLPSpanExporter):
    def __init__(self, **k):
        super().__init__(**k)
        print(json.dumps(["endpoint", self._endpoint]), flush=True)
    def export(self, spans):
        return SpanExportResult.SUCCESS
e.OTLPSpanExporter = Export
"""
    endpoints, _, log = started(arguments, before, **env)
    assert endpoints == [want] and ("over gRPC" in log) == ("OTEL_EXPORTER_OTLP_PROTOCOL" in env)
