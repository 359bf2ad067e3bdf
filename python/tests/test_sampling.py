# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, ParentBased

import otelgpu
from otelgpu.sampling import LinksBased


@pytest.mark.parametrize("sampler, want", [(ALWAYS_ON, True), (ALWAYS_OFF, False)])
@pytest.mark.parametrize("below_unsampled", [True, False])
def test_a_batch_is_recorded_when_a_linked_request_is(monkeypatch, sampler, want, below_unsampled):
    out = InMemorySpanExporter()
    links = LinksBased(ALWAYS_OFF)
    provider = TracerProvider(sampler=ParentBased(links, local_parent_not_sampled=links))
    provider.add_span_processor(SimpleSpanProcessor(out))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    request = TracerProvider(sampler=sampler).get_tracer("t").start_span("request")
    around = TracerProvider(sampler=ALWAYS_OFF).get_tracer("t").start_span("x") if below_unsampled else trace.INVALID_SPAN
    with trace.use_span(around):
        with otelgpu.section("decode", batched=True, links=[request]):
            pass
    otelgpu.flush(5)
    assert [s.name for s in out.get_finished_spans()] == (["decode"] if want else [])
    assert links.get_description() == "LinksBased{AlwaysOffSampler}"
