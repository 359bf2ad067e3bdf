# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
"""Spans of other instrumentation libraries as parents of sections, and sections around JAX, if they are installed."""

import pytest

import otelgpu
from otelgpu import _runtime


def named(exporter, name):
    assert otelgpu.flush(10)
    span, = [s for s in exporter.get_finished_spans() if s.name == name]
    return span


def test_a_section_is_a_child_of_an_openinference_span(exporter, monkeypatch):
    pytest.importorskip("openinference.instrumentation", reason="OpenInference is not installed")
    from openinference.instrumentation import OITracer, TraceConfig

    tracer = OITracer(exporter.tracer, config=TraceConfig())
    with tracer.start_as_current_span("ChatCompletion", openinference_span_kind="llm"):
        with otelgpu.section("decode", items=3, item_type="token"):
            pass
    parent, child = named(exporter, "ChatCompletion"), named(exporter, "decode")
    assert child.parent.span_id == parent.context.span_id
    assert parent.attributes["openinference.span.kind"] == "LLM"


def test_a_section_is_a_child_of_an_openllmetry_span(exporter):
    sdk = pytest.importorskip("traceloop.sdk", reason="OpenLLMetry is not installed")
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
    from traceloop.sdk.decorators import task, workflow

    out = InMemorySpanExporter()
    sdk.Traceloop.init(disable_batch=True, processor=SimpleSpanProcessor(out), telemetry_enabled=False, instruments=set())

    @task(name="generate")
    def generate():
        with otelgpu.section("decode", items=3, item_type="token"):
            return 1

    @workflow(name="chat")
    def chat():
        return generate()

    assert chat() == 1
    child = named(exporter, "decode")
    parent, = [s for s in out.get_finished_spans() if s.name == "generate.task"]
    assert child.parent.span_id == parent.context.span_id
    assert child.context.trace_id == parent.context.trace_id


def test_steps_of_a_jax_loop_include_the_computation(exporter):
    """JAX returns before the device has finished: a phase that waits for the result has its time."""
    jax = pytest.importorskip("jax", reason="JAX is not installed")

    @jax.jit
    def update(w, x):
        return w - 0.1 * jax.grad(lambda w: ((x @ w) ** 2).mean())(w)

    w, x = jax.numpy.ones((64, 8)), jax.numpy.ones((32, 64))
    for step in otelgpu.loop("train", total_steps=3):
        with step.phase("forward"):
            w = jax.block_until_ready(update(w, x))
        step.items = 32
    assert otelgpu.flush(10)
    steps = [s for s in exporter.get_finished_spans() if s.name == "train"]
    assert [s.attributes["gpu.step.index"] for s in steps] == [1, 2, 3]
    assert all(s.attributes["gpu.timing.source"] == "host" for s in steps)
    assert all(s.attributes["gpu.step.phase.duration.forward"] > 0 for s in steps)
    assert _runtime.runtime().counts["spans"] == 6
