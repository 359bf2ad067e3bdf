# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
"""What a launch costs, in and around sections and windows, on a real GPU: a part of hardware.py.

    python launches.py [libotelgpu_capture.so otelcol-gpu]

Sections of torch.cuda compared with host clock brackets, the cost of a launch in a section, in a plain span and under
torch.profiler, and, with two more arguments, the capture library: cost without and with a window, and whether every
kernel that was launched is there.
"""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

from table import row, skip, torch_on_gpu

torch = torch_on_gpu()
try:
    import opentelemetry.sdk.trace
except ImportError as e:
    skip("%s is not installed" % e.name)

# One kernel for each launch, in batches that the host waits for. The second argument is the pause after a batch, in
# seconds. It prints when each batch was finished.
LOOP = """
import json, sys, time, torch
x = torch.zeros(1 << 16, device="cuda")
x.add_(1)
torch.cuda.synchronize()
print("ready", flush=True)
end = time.monotonic() + float(sys.argv[1])
batches = []
while time.monotonic() < end:
    for _ in range(100):
        x.add_(1)
    torch.cuda.synchronize()
    batches.append(time.time_ns())
    time.sleep(float(sys.argv[2]))
print(json.dumps(batches), flush=True)
"""


def sections():
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    import otelgpu

    out = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(out, max_queue_size=1 << 16))
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
    provider.force_flush()
    spans = [s for s in out.get_finished_spans() if s.name == "bracket"]
    errors = sorted(s.attributes["gpu.timing.error"] for s in spans)
    outside = sum(not b <= s.start_time + s.attributes["gpu.timing.error"] * 1e9 or
                  not s.end_time - s.attributes["gpu.timing.error"] * 1e9 <= e for s, (b, e) in zip(spans, brackets))
    row("Python sections between brackets of the host's clock", "%d of %d outside; bound %.1f µs in the median, %.1f at most" % (
        outside, len(spans), errors[len(errors) // 2] * 1e6, errors[-1] * 1e6))
    row("identity of the device", dict(spans[0].instrumentation_scope.attributes))

    x = torch.zeros(1 << 16, device="cuda")
    tracer = trace.get_tracer("plain")

    def loop(around):
        """µs for each launch, of the calling thread and until the device has finished, the best of five."""
        best = (float("inf"), float("inf"))
        for _ in range(5):
            torch.cuda.synchronize()
            begin = time.perf_counter()
            for _ in range(2000):
                with around():
                    x.add_(1)
            called = time.perf_counter() - begin
            torch.cuda.synchronize()
            best = min(best, (called / 2000 * 1e6, (time.perf_counter() - begin) / 2000 * 1e6))
            otelgpu.flush(10)
        return "%.1f (%.1f)" % best

    results = [loop(contextlib.nullcontext), loop(lambda: tracer.start_as_current_span("add")), loop(lambda: otelgpu.section("add"))]
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]):
        results.append(loop(contextlib.nullcontext))
    row("µs per launch on the calling thread (with the wait for the device): bare, in a span, in a section, under torch.profiler",
        ", ".join(results))


def run(env, seconds=4, pause=0.0, during=None):
    """Returns when each batch was finished."""
    p = subprocess.Popen([sys.executable, "-c", LOOP, str(seconds), str(pause)], stdout=subprocess.PIPE, text=True,
                         env=dict(os.environ, **env))
    assert p.stdout.readline() == "ready\n"
    if during is not None:
        during(p.pid)
    batches = json.loads(p.stdout.readline())
    p.wait()
    return batches


def rate(batches):
    return 100 * (len(batches) - 1) / (batches[-1] - batches[0]) * 1e9


def spans_of(file):
    for line in open(file):
        for rs in json.loads(line)["resourceSpans"]:
            for ss in rs["scopeSpans"]:
                yield from ss["spans"]


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

        row("launches per second: without, with the library idle, with 1 s of 4 recorded",
            "%.0f, %.0f, %.0f" % (rate(run({})), rate(run(env)), rate(run(env, during=window))))
        shutil.rmtree(out, ignore_errors=True)
        batches = run(env, pause=0.002, during=window)
        try:
            spans = list(spans_of(os.path.join(out, "spans.json")))
        except OSError:
            row("kernels recorded in 1 s", "none: " + said[-1].strip().replace("\n", " "))
            return
        whole = next(s for s in spans if s["name"] == "gpu capture")
        inside = [t for t in batches if int(whole["startTimeUnixNano"]) <= t <= int(whole["endTimeUnixNano"])]
        kernels = [s for s in spans if any(a["key"] == "gpu.kernel.name" for a in s.get("attributes", ()))]
        recorded = sum(inside[0] < int(s["startTimeUnixNano"]) < inside[-1] for s in kernels)
        row("kernels recorded, and launched, between the first and the last batch of a window of 1 s", "%d, %d" % (
            recorded, 100 * (len(inside) - 1)))


if __name__ == "__main__":
    print("| %s, torch %s | |\n| --- | --- |" % (torch.cuda.get_device_name(0), torch.__version__))
    sections()
    if len(sys.argv) > 2:
        capture(sys.argv[1], sys.argv[2])
