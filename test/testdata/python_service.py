# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
"""A training loop and a service with batches on the fake torch.cuda, through the real SDK and its OTLP exporter."""

import sys
import threading

sys.path.insert(0, sys.argv[1])
import faketorch

device = faketorch.Device()
torch = sys.modules["torch"] = faketorch.make(device)

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

import otelgpu
from otelgpu import _device

_device.TorchBackend.relax_capture_mode = lambda self: device.relaxed.add(threading.get_ident())
provider = TracerProvider(resource=Resource.create({"service.name": "python-service", "service.version": "1"}))
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
trace.set_tracer_provider(provider)
tracer = trace.get_tracer("program")
stream = torch.cuda.current_stream()

for step in otelgpu.loop("train", item_type="image", total_steps=3):
    with otelgpu.section("h2d", type="copy", copy="host_to_device", host_memory="pinned", size=1 << 20):
        stream.run(0.0005)
    with step.phase("forward"):
        with otelgpu.section("gemm", flops=1e9, precision="bf16", read=4096, written=1024):
            stream.run(0.002)
    step.items, step.model_flops, step.epoch = 32, 3e9, 1
with otelgpu.section("compile", type="host", category="compile"):
    pass

with tracer.start_as_current_span("POST /generate") as a, tracer.start_as_current_span("POST /other") as b:
    with otelgpu.section("decode", category="decode", items=2, item_type="token", batched=True, links=[(a, 1), (b, 1)]):
        stream.run(0.001)
otelgpu.flush(10)
provider.force_flush()
print(otelgpu.stats())
