# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
"""The OpenTelemetry SDK as any program sets it up; of otelgpu are the rank in a job and the sampler of batches."""

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, ParentBased

import otelgpu
from otelgpu.sampling import LinksBased


def start(service: str) -> trace.Tracer:
    """Spans by OTLP to OTEL_EXPORTER_OTLP_ENDPOINT, http://localhost:4318 by default."""
    resource = Resource.create({"service.name": service, "service.version": "1.0.0", **otelgpu.job()})
    provider = TracerProvider(resource=resource, sampler=ParentBased(LinksBased(ALWAYS_ON)))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    return trace.get_tracer(service)
