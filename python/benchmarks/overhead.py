# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
"""Measures the cost of a section to the calling thread and the process, relative to a plain loop and to an SDK span
created in place.

    python benchmarks/overhead.py [sections]

Rows: CPU time per turn of the calling thread and of the whole process, in ns, with spans created and discarded.
The events come from a fake that does nothing; two real cudaEventRecord calls through torch per section come on top.
"""

import sys
import time
import types

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

import otelgpu
from otelgpu import _device, _runtime


class Nowhere(SpanExporter):
    def export(self, spans):
        return SpanExportResult.SUCCESS


class Event:
    def __init__(self, enable_timing=False):
        self.at = 0

    def record(self, stream=None):
        self.at = time.monotonic_ns()

    def query(self):
        return True

    def synchronize(self):
        pass

    def elapsed_time(self, end):
        return (end.at - self.at) / 1e6


class Stream:
    def __init__(self, device=None):
        self.device, self.cuda_stream = types.SimpleNamespace(index=0), id(self)


STREAM = Stream()
TORCH = types.SimpleNamespace(
    version=types.SimpleNamespace(hip=None),
    cuda=types.SimpleNamespace(
        Event=Event, Stream=Stream, is_available=lambda: True, is_initialized=lambda: True,
        current_stream=lambda: STREAM, is_current_stream_capturing=lambda: False,
        get_device_properties=lambda i: types.SimpleNamespace(name="none", uuid=None)))


def work():
    return sum(range(50))


def bare():
    work()


def section():
    with otelgpu.section("prefill", items=128, item_type="token", flops=1e12, precision="bf16"):
        work()


def inline():
    with tracer.start_as_current_span("prefill") as s:
        work()
        for i in range(8):
            s.set_attribute("k%d" % i, i)


def unsampled():
    with otelgpu.section("prefill"):
        work()


def measure(name, f, turns, base=0.0):
    per, burst, pause = [], 200, 0.005
    cpu = time.process_time_ns()
    for _ in range(turns // burst):
        begin = time.thread_time_ns()
        for _ in range(burst):
            f()
        per.append((time.thread_time_ns() - begin) / burst)
        time.sleep(pause)  # as in a program with other work
    otelgpu.flush(10)
    provider.force_flush()
    cpu = (time.process_time_ns() - cpu) / turns
    per.sort()
    mid = per[len(per) // 2]
    print("%-34s %8.0f ns on the thread (%+8.0f)   %8.0f ns of CPU" % (name, mid, mid - base, cpu))
    return mid


if __name__ == "__main__":
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 20000
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(Nowhere(), max_queue_size=1 << 16))
    trace.set_tracer_provider(provider)
    tracer = trace.get_tracer("bench")
    sys.modules["torch"] = TORCH
    _device.TorchBackend.relax_capture_mode = lambda self: None
    base = measure("bare", bare, n)
    measure("inline SDK span of 8 attributes", inline, n, base)
    measure("otelgpu.section", section, n, base)
    off = trace.NonRecordingSpan(trace.SpanContext(1, 1, False, trace.TraceFlags(0)))
    with trace.use_span(off):
        measure("below an unsampled span", unsampled, n, base)
    otelgpu.configure({"timing": False})
    measure("switched off", section, n, base)
    print(otelgpu.stats())
