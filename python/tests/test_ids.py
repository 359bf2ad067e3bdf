# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
"""IDs do not depend on the program's seed."""
import random

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.id_generator import IdGenerator

import otelgpu
import otelgpu.ids


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


@pytest.mark.parametrize("ranks, generator, logs", [
    ("2", None, 1), ("1", None, 0), ("", None, 0), ("2", otelgpu.ids.UniqueIds(), 0)])
def test_shared_ids_of_the_sdk_are_logged_once(monkeypatch, caplog, ranks, generator, logs):
    monkeypatch.setenv("WORLD_SIZE", ranks)
    use(monkeypatch, **({"id_generator": generator} if generator else {}))
    train()
    train()
    text = [r.getMessage() for r in caplog.records]
    assert len(text) == logs
    assert all("otelgpu.ids.UniqueIds()" in x and "OTEL_PYTHON_ID_GENERATOR=otelgpu" in x for x in text)


def test_the_generator_makes_all_spans_of_the_program_unique(monkeypatch):
    out, provider = use(monkeypatch, id_generator=otelgpu.ids.UniqueIds())
    for _ in range(2):
        random.seed(42)
        with provider.get_tracer("program").start_as_current_span("job"):
            pass
    a, b = ids(out.get_finished_spans())
    assert a[0] != b[0] and a[1] != b[1]


def test_forked_processes_have_different_ids():
    import os
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
