# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
"""IDs do not depend on the program's seed."""
import os
import random
import subprocess
import sys
import tempfile

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.id_generator import IdGenerator

import otelgpu
import otelgpu.ids
from otelgpu import _ids


def use(monkeypatch, **settings):
    out, provider = InMemorySpanExporter(), TracerProvider(**settings)
    provider.add_span_processor(SimpleSpanProcessor(out))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    return out, provider


def train(seed=42):
    random.seed(seed)  # as set_seed() and seed_everything() of the trainers
    for step in otelgpu.loop("train", total_steps=3):
        with step.phase("forward"):
            with otelgpu.section("layer"):
                pass
    assert otelgpu.flush(10)


def ids(spans):
    return [(s.context.trace_id, s.context.span_id) for s in spans]


def test_ranks_with_one_seed_have_different_ids(exporter):
    found = []
    for _ in range(4):
        train()
        found += ids(exporter.get_finished_spans())
        exporter.clear()
    assert len(found) == 4 * 9
    assert len({span for _, span in found}) == len(found)
    assert len({trace for trace, _ in found}) == 4 * 3


def test_the_programs_random_numbers_do_not_change(exporter):
    random.seed(7)
    want = [random.random() for _ in range(5)]
    train(7)
    assert [random.random() for _ in range(5)] == want


def test_sections_below_a_span_of_the_program_keep_its_trace(exporter):
    with exporter.tracer.start_as_current_span("job") as job:
        train()
    steps = [s for s in exporter.get_finished_spans() if s.name == "train"]
    assert {s.context.trace_id for s in steps} == {job.get_span_context().trace_id}


def test_a_generator_that_the_program_chose_stays(monkeypatch):
    class Counting(IdGenerator):
        at = 0

        def generate_span_id(self):
            Counting.at += 1
            return Counting.at

        def generate_trace_id(self):
            return 1

    out, _ = use(monkeypatch, id_generator=Counting())
    with otelgpu.section("a"):
        pass
    assert otelgpu.flush(10)
    assert ids(out.get_finished_spans()) == [(1, 1)]


RANK = """
import os, random, sys
import otelgpu, otelgpu.ids
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

seed, own = sys.argv[1:3]
random.seed(int(seed) if seed != "rank" else 42 + int(os.environ["RANK"]))
generator = {"id_generator": otelgpu.ids.UniqueIds()} if own == "unique" else {}
provider = TracerProvider(**generator)
trace.set_tracer_provider(provider)
above = None
if own == "launcher":
    parent = trace.SpanContext(5, 7, is_remote=True, trace_flags=trace.TraceFlags(1))
    above = trace.set_span_in_context(trace.NonRecordingSpan(parent))
if own == "none":
    steps = otelgpu.loop("train", total_steps=3)
    for step in steps:
        with step.phase("forward"):
            pass
elif own == "launcher":
    for i in range(3):
        from opentelemetry import context
        token = context.attach(above)
        with otelgpu.section("a"):
            pass
        context.detach(token)
else:
    for i in range(3):
        with provider.get_tracer("program").start_as_current_span("epoch"):
            with otelgpu.section("a"):
                pass
            for step in otelgpu.loop("train", total_steps=1):
                pass
assert otelgpu.flush(10)
"""


@pytest.mark.parametrize("seed, own, warnings", [
    ("42", "sdk", 1),
    ("rank", "sdk", 0),      # no ID is shared
    ("42", "none", 0),       # the program has no spans of its own
    ("42", "launcher", 0),   # all ranks have one parent, which they were given
    ("42", "unique", 0)])
def test_only_ranks_that_share_ids_are_told_and_once(tmp_path, seed, own, warnings):
    ranks = [subprocess.Popen(
        [sys.executable, "-c", RANK, seed, own], stderr=subprocess.PIPE, text=True,
        env={**os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "4", "TMPDIR": str(tmp_path),
             "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}) for rank in range(4)]
    text = "".join(rank.communicate(timeout=120)[1] for rank in ranks)
    assert [rank.returncode for rank in ranks] == [0] * 4, text
    assert text.count("share the trace and span IDs") == warnings, text
    if warnings:
        assert "otelgpu.ids.UniqueIds()" in text and "OTEL_PYTHON_ID_GENERATOR=otelgpu" in text


def test_a_folder_of_another_user_is_not_used(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    folder = tmp_path / f"otelgpu-ids-{os.getuid()}"
    folder.mkdir()
    folder.chmod(0o777)
    comparison = _ids.Comparison("job", 0, "otelgpu")
    comparison.observe(TracerProvider().get_tracer("program").start_span("a"))
    assert not comparison.equal() and comparison.done and not list(folder.iterdir())


def test_files_of_an_earlier_run_are_no_evidence(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    span = TracerProvider().get_tracer("program").start_span("a")
    ranks = [_ids.Comparison("job", rank, "otelgpu") for rank in range(3)]
    for rank in ranks:
        rank.observe(span)
    assert not ranks[0].equal()
    file, = (tmp_path / f"otelgpu-ids-{os.getuid()}").iterdir()
    os.utime(file, ns=(0, _ids._born - _ids.STARTED - 1))
    assert not ranks[1].equal()
    assert ranks[2].equal(), "rank 1 is of this run"
    os.utime(file, ns=(0, _ids._born - _ids.FORGOTTEN - 1))
    other = _ids.Comparison("another job", 0, "otelgpu")
    other.observe(span)
    assert not other.equal() and not file.exists()


def test_a_span_from_before_a_fork_is_no_evidence():
    span = TracerProvider().get_tracer("program").start_span("a")
    comparison = _ids.Comparison("job", 0, "otelgpu")
    comparison.observe(span)
    pid = os.fork()
    if pid == 0:
        inherited = _ids.Comparison("job", 1, "otelgpu")
        inherited.observe(span)
        os._exit(len(inherited._new))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert len(comparison._new) == 1


def test_the_generator_makes_all_spans_of_the_program_unique(monkeypatch):
    out, provider = use(monkeypatch, id_generator=otelgpu.ids.UniqueIds())
    for _ in range(2):
        random.seed(42)
        with provider.get_tracer("program").start_as_current_span("job"):
            pass
    a, b = ids(out.get_finished_spans())
    assert a[0] != b[0] and a[1] != b[1]


def test_forked_processes_have_different_ids():
    from otelgpu._ids import IDS
    ids = []
    for _ in range(2):
        r, w = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.write(w, b"%d" % IDS.generate_trace_id())
            os._exit(0)
        os.close(w)
        ids.append(int(os.read(r, 100)))
        os.close(r)
        assert os.waitpid(pid, 0)[1] == 0
    assert len({*ids, IDS.generate_trace_id()}) == 3
