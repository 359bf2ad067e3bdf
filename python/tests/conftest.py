# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
import sys
import threading

import pytest
from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import faketorch
from otelgpu import _device, _runtime


@pytest.fixture
def exporter(monkeypatch):
    """Returns the spans of this test, through the real SDK."""
    out = InMemorySpanExporter()
    provider = TracerProvider(resource=Resource.create({"service.name": "test"}))
    provider.add_span_processor(SimpleSpanProcessor(out))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    out.tracer = provider.get_tracer("program")
    return out


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    """A separate runtime for the test, which must have released everything at its end."""
    rt = _runtime.Runtime()
    monkeypatch.setattr(_runtime, "_runtime", rt)
    yield rt
    rt.flush(5)
    with rt.wake:
        rt.stopping = True
        rt.wake.notify_all()


@pytest.fixture
def gpu(monkeypatch):
    """A simulated device with known true times, and torch as the program would have imported it."""
    device = faketorch.Device()
    torch = faketorch.make(device)
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setattr(_device.TorchBackend, "relax_capture_mode",
                        lambda self: device.relaxed.add(threading.get_ident()))
    device.torch = torch
    return device
