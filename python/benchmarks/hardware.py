# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
"""Measurements that need a GPU: `make hardware` runs them and prints rows for docs/hardware.md.

    python hardware.py [libotelgpu_capture.so otelcol-gpu]

Sections of torch.cuda compared with host clock brackets, their overhead relative to a plain loop and torch.profiler,
and, with two more arguments, the capture library: cost without and with a window, and whether every kernel that was
launched is there.
"""

import json
import os
import subprocess
import sys
import tempfile
import time


def skip(why):
    print("skipped: " + why)
    sys.exit(0)


try:
    import torch

    import opentelemetry.sdk.trace
except ImportError as e:
    skip("%s is not installed" % e.name)
if not torch.cuda.is_available():
    skip("torch sees no GPU")

LOOP = """
import os, sys, time, torch
x = torch.randn(256, 256, device="cuda")
torch.cuda.synchronize()
print("ready", flush=True)
end = time.monotonic() + float(sys.argv[1])
n = 0
while time.monotonic() < end:
    for _ in range(100):
        torch.mm(x, x)
    torch.cuda.synchronize()
    n += 100
print(n, flush=True)
"""


def row(what, result):
    print("| %s | %s |" % (what, result), flush=True)


def sections():
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    import otelgpu

    out = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(out))
    trace.set_tracer_provider(provider)
    brackets = []
    for i in range(200):
        torch.cuda.synchronize()
        before = time.time_ns()
        with otelgpu.section("bracket"):
            torch.cuda._sleep(200_000 + 5_000 * i)
        torch.cuda.synchronize()
        brackets.append((before, time.time_ns()))
    otelgpu.flush(10)
    spans = [s for s in out.get_finished_spans() if s.name == "bracket"]
    errors = sorted(s.attributes["gpu.timing.error"] for s in spans)
    outside = sum(not b <= s.start_time + s.attributes["gpu.timing.error"] * 1e9 or
                  not s.end_time - s.attributes["gpu.timing.error"] * 1e9 <= e for s, (b, e) in zip(spans, brackets))
    row("Python sections between brackets of the host's clock", "%d of %d outside; bound %.1f µs in the median, %.1f at most" % (
        outside, len(spans), errors[len(errors) // 2] * 1e6, errors[-1] * 1e6))
    row("identity of the device", dict(spans[0].instrumentation_scope.attributes))

    x = torch.randn(256, 256, device="cuda")

    def loop(around):
        best = None
        for _ in range(5):
            torch.cuda.synchronize()
            begin = time.perf_counter()
            for _ in range(2000):
                with around():
                    torch.mm(x, x)
            torch.cuda.synchronize()
            took = (time.perf_counter() - begin) / 2000
            best = took if best is None or took < best else best
        return best * 1e6

    class Nothing:
        def __enter__(self):
            return self

        def __exit__(self, *a):
            return None

    bare = loop(Nothing)
    with_sections = loop(lambda: otelgpu.section("mm"))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]):
        profiled = loop(Nothing)
    row("µs per matmul launch: bare, in a section, under torch.profiler", "%.1f, %.1f, %.1f" % (bare, with_sections, profiled))


def run(env, seconds=4, during=None):
    p = subprocess.Popen([sys.executable, "-c", LOOP, str(seconds)], stdout=subprocess.PIPE, text=True, env=dict(os.environ, **env))
    assert p.stdout.readline() == "ready\n"
    if during is not None:
        during(p.pid)
    n = int(p.stdout.readline())
    p.wait()
    return n / seconds


def capture(shim, collector):
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        env = {"CUDA_INJECTION64_PATH": os.path.abspath(shim), "OTELGPU_CAPTURE_DIR": folder, "OTELGPU_CAPTURE_VERBOSE": "1"}
        out = os.path.join(folder, "out")
        said = []

        def window(pid):
            time.sleep(1)
            r = subprocess.run([os.path.abspath(collector), "capture", "--folder", folder, "--for", "1s", "--out", out, str(pid)],
                               capture_output=True, text=True)
            said.append(r.stdout + r.stderr)

        bare, idle, recorded = run({}), run(env), run(env, during=window)
        row("matmuls per second: without, with the library idle, with 1 s of 4 recorded", "%.0f, %.0f, %.0f" % (bare, idle, recorded))
        try:
            kernels = 0
            for line in open(os.path.join(out, "spans.json")):
                for rs in json.loads(line)["resourceSpans"]:
                    for ss in rs["scopeSpans"]:
                        kernels += sum(any(a["key"] == "gpu.kernel.name" for a in s.get("attributes", ())) for s in ss["spans"])
            row("kernels recorded in 1 s", "%d (%.0f were launched in a second on average)" % (kernels, recorded))
        except OSError:
            row("kernels recorded in 1 s", "none: " + said[0].strip().replace("\n", " "))


if __name__ == "__main__":
    print("| %s, torch %s | |\n| --- | --- |" % (torch.cuda.get_device_name(0), torch.__version__))
    sections()
    if len(sys.argv) > 2:
        capture(sys.argv[1], sys.argv[2])
