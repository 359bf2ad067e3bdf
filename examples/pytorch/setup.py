# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
"""Sets up the OpenTelemetry SDK as any program does. Only the job resource and the sampler of batches are from
otelgpu."""

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, ParentBased

import otelgpu
from otelgpu.sampling import LinksBased


def start(service: str) -> trace.Tracer:
    """Exports spans over OTLP to OTEL_EXPORTER_OTLP_ENDPOINT, by default http://localhost:4318."""
    resource = Resource.create({"service.name": service, "service.version": "1.0.0", **otelgpu.job()})
    provider = TracerProvider(resource=resource, sampler=ParentBased(LinksBased(ALWAYS_ON)))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    return trace.get_tracer(service)
