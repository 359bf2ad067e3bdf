# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
"""Compares sections around the work of CuPy, Numba, JAX, CUDA Python and torch with known times, on a real GPU.

    PYTHONPATH=python/src python3 python/benchmarks/frameworks.py [--budget 90] [FRAMEWORK...]

Each framework runs in a process of its own, which ends after half of the seconds that are left of the budget, and prints
rows for docs/hardware.md. A kernel spins for a known time by the GPU's own clock; Numba and JAX, whose
kernels cannot, are compared with the framework's events and with the host's clock around a wait."""

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

from table import row

SPIN = r'''
extern "C" __global__ void spin(unsigned long long ns) {
    unsigned long long begin, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
    do asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)); while (now - begin < ns);
}'''
TIMES = [20e-6, 100e-6, 1e-3, 10e-3]
REPEAT = 20


class Spans:
    """The otelgpu spans of this process."""

    def __init__(self):
        from opentelemetry import trace
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import SimpleSpanProcessor
        from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
        self.out, provider = InMemorySpanExporter(), TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self.out))
        trace.set_tracer_provider(provider)

    def take(self):
        import otelgpu
        assert otelgpu.flush(60), otelgpu.stats()
        spans = sorted(self.out.get_finished_spans(), key=lambda s: s.start_time)
        self.out.clear()
        return spans


def compare(spans, launch, label, stream=None, expected=TIMES):
    """launch(seconds) starts work and returns immediately; it returns the work's known time afterwards, or None."""
    import otelgpu
    launch(expected[0])
    spans.take()
    for seconds in expected:
        called, known = [], []
        for _ in range(REPEAT):
            begin = time.perf_counter()
            with otelgpu.section(label, stream=stream):
                known.append(launch(seconds))
            called.append(time.perf_counter() - begin)
        got = [s for s in spans.take() if s.name == label]
        measured = [s.attributes.get("gpu.duration") for s in got]
        known = [k() if callable(k) else k if k is not None else seconds for k in known]
        found = {"label": label, "seconds": seconds, "source": got[0].attributes["gpu.timing.source"],
                 "status": got[0].attributes.get("gpu.timing.status"), "called": statistics.median(called)}
        if None not in measured:
            found["measured"] = statistics.median(measured)
            found["known"] = statistics.median(known)
            found["worst"] = max(abs(m - k) for m, k in zip(measured, known))
            found["bound"] = statistics.median(s.attributes["gpu.timing.error"] for s in got)
        print(json.dumps(found), flush=True)


def cost(stream=None):
    import otelgpu
    per = []
    for _ in range(20):
        begin = time.thread_time_ns()
        for _ in range(100):
            with otelgpu.section("empty", stream=stream, items=1, item_type="token"):
                pass
        per.append((time.thread_time_ns() - begin) / 100)
        otelgpu.flush(10)
    print(json.dumps({"label": "an empty section", "called": statistics.median(per) / 1e9}), flush=True)


def run_cupy(spans):
    import cupy
    import otelgpu
    kernel = cupy.RawKernel(SPIN, "spin")

    def launch(seconds):
        kernel((1,), (1,), (int(seconds * 1e9),))

    compare(spans, launch, "cupy, default stream")
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        compare(spans, launch, "cupy, current stream")
        cost()
    compare(spans, lambda s: kernel((1,), (1,), (int(s * 1e9),), stream=stream), "cupy, stream=", stream)
    spans.take()
    with stream:
        stream.begin_capture()
        with otelgpu.section("captured"):
            launch(1e-3)
        graph = stream.end_capture()
        with otelgpu.section("graph"):
            graph.launch()
    got = {s.name: s for s in spans.take()}
    print(json.dumps({"label": "cupy, graph", "status": got["captured"].attributes.get("gpu.timing.status"),
                      "source": got["graph"].attributes["gpu.timing.source"], "known": 1e-3,
                      "measured": got["graph"].attributes.get("gpu.duration")}), flush=True)


def run_torch(spans):
    import torch
    torch.zeros(1, device="cuda")
    x = torch.randn(4096, 4096, device="cuda")

    def launch(seconds):
        a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        a.record()
        for _ in range(int(seconds)):
            x @ x
        b.record()
        return lambda: a.elapsed_time(b) / 1e3

    compare(spans, launch, "torch", expected=[1, 10])
    cost()


def run_numba(spans):
    import numpy
    if not hasattr(numpy, "row_stack"):
        numpy.row_stack = numpy.vstack  # numba-cuda 0.30 requires it, and numpy 2.5 has removed it
    from numba import cuda

    @cuda.jit
    def work(x, n):
        v = x[cuda.grid(1)]
        for _ in range(n):
            v = v * 1.0000001 + 1e-9
        x[cuda.grid(1)] = v

    x = cuda.to_device(numpy.ones(1 << 16, numpy.float32))

    def launcher(stream):
        def launch(n):
            a, b = cuda.event(), cuda.event()
            a.record(stream)
            work[256, 256, stream](x, int(n))
            b.record(stream)
            return lambda: cuda.event_elapsed_time(a, b) / 1e3
        return launch

    compare(spans, launcher(cuda.default_stream()), "numba, default stream", expected=[10_000, 1_000_000])
    own = cuda.stream()
    compare(spans, launcher(own), "numba, stream=", own, expected=[10_000, 1_000_000])


def run_cuda_python(spans):
    from cuda.bindings import driver, nvrtc

    def check(out):
        assert int(out[0]) == 0, out
        return out[1] if len(out) == 2 else out[1:]

    check(driver.cuInit(0))
    context = check(driver.cuDevicePrimaryCtxRetain(0))
    driver.cuCtxSetCurrent(context)
    program = check(nvrtc.nvrtcCreateProgram(SPIN.encode(), b"spin.cu", 0, [], []))
    check((nvrtc.nvrtcCompileProgram(program, 1, [b"--gpu-architecture=compute_80"])[0], None))
    ptx = b" " * check(nvrtc.nvrtcGetPTXSize(program))
    nvrtc.nvrtcGetPTX(program, ptx)
    kernel = check(driver.cuModuleGetFunction(check(driver.cuModuleLoadData(ptx)), b"spin"))
    stream = check(driver.cuStreamCreate(1))
    import ctypes

    def launch_on(s):
        def launch(seconds):
            check((driver.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, s, ((int(seconds * 1e9),), (ctypes.c_uint64,)), 0)[0], None))
        return launch

    compare(spans, launch_on(stream), "cuda.bindings, stream=", stream)
    compare(spans, launch_on(0), "cuda.bindings, default stream")


def run_jax(spans):
    import jax
    import jax.numpy as jnp
    import otelgpu
    size = 4096 if jax.default_backend() != "cpu" else 256
    x = jnp.ones((size, size), "bfloat16")

    @jax.jit
    def product(x):
        return x @ x * 0.0002

    def work(n):
        y = x
        for _ in range(int(n)):
            y = product(y)
        return y

    work(1).block_until_ready()
    for n in (1, 10, 50):
        begin = time.perf_counter()
        work(n).block_until_ready()
        print(json.dumps({"label": "jax, by the host's clock", "seconds": n, "known": time.perf_counter() - begin}), flush=True)
    one = min(_timed(lambda: work(50).block_until_ready()) for _ in range(5)) / 50
    compare(spans, lambda n: (work(n), n * one)[1], "jax", expected=[1, 10, 50])
    with otelgpu.section("first"):
        a = work(10)
    with otelgpu.section("second"):
        b = work(20)
    a.block_until_ready(), b.block_until_ready()
    got = {s.name: s for s in spans.take()}
    gap = (got["second"].start_time - got["first"].end_time) / 1e9
    print(json.dumps({"label": "jax, two sections without a wait", "known": 10 * one, "measured": got["first"].attributes.get("gpu.duration"),
                      "second": got["second"].attributes.get("gpu.duration"), "gap": gap}), flush=True)
    cost()


def _timed(f):
    begin = time.perf_counter()
    f()
    return time.perf_counter() - begin


def microseconds(x):
    return "%.1f µs" % (1e6 * x) if x < 0.01 else "%.2f ms" % (1e3 * x)


def text(got):
    """Returns a result for people: the medians of what sections measured and of what is known, and the largest difference."""
    if "stats" in got:
        return ", ".join("%s %s" % x for x in got["stats"].items())
    parts = ["source %s" % got["source"]] if got.get("source", "cuda_event") != "cuda_event" else []
    parts += ["status %s" % got["status"]] if got.get("status") else []
    for key, what in ("measured", "%s measured"), ("known", "%s known"), ("worst", "at most %s apart"), ("bound", "stated error %s"), (
            "second", "then %s"), ("gap", "%s between them"), ("called", "%s of the caller"):
        if got.get(key) is not None:
            parts.append(what % microseconds(got[key]))
    return ", ".join(parts)


def show(name, output):
    """Prints the rows of one framework's output."""
    for line in output.splitlines():
        try:
            got = json.loads(line)
            what = got["label"]
        except (ValueError, KeyError, TypeError):
            continue
        amount = got.get("seconds")
        of = "" if amount is None else ", a kernel of %s" % microseconds(amount) if amount < 1 else ", %d times" % amount
        row("%s%s%s" % ("" if what.startswith(name) else name + ": ", what, of), text(got))


def run(name, seconds):
    """Runs one framework in its own process, and prints its rows, and why there are none or no more."""
    if importlib.util.find_spec(name.split("_")[0]) is None:
        print("skipped: %s is not installed" % name, flush=True)
        return
    # JAX would take most of the memory.
    environment = dict(os.environ, XLA_PYTHON_CLIENT_PREALLOCATE="false")
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:  # no pipe that a compiler could hold open
        process = subprocess.Popen([sys.executable, os.path.abspath(__file__), "--one", name], stdout=out, stderr=err, env=environment)
        try:
            status = process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            status = None
        out.seek(0), err.seek(0)
        show(name, out.read())
        errors = err.read()
    if status != 0:
        print(errors[-1500:], flush=True)
        print("failed: %s: %s" % (name, "no end after %d s" % seconds if status is None else "status %d: %s" % (
            status, ([x for x in errors.splitlines() if len(x) > 9] or ["no message"])[-1])), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--one")
    parser.add_argument("--budget", type=float, default=300, help="seconds for all (default 300)")
    parser.add_argument("frameworks", nargs="*", default=["cupy", "numba", "cuda_python", "jax", "torch"])
    options = parser.parse_args()
    if options.one:
        globals()["run_" + options.one](Spans())
        import otelgpu
        print(json.dumps({"label": "stats", "stats": otelgpu.stats()}))
        sys.exit()
    end = time.monotonic() + options.budget
    for i, name in enumerate(options.frameworks):
        run(name, (end - time.monotonic()) / min(2, len(options.frameworks) - i))
