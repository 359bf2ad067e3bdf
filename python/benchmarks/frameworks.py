# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
"""Compares sections around the work of CuPy, Numba, JAX, CUDA Python and torch with known times, on a real GPU.

    PYTHONPATH=python/src python3 python/benchmarks/frameworks.py [FRAMEWORK...]

Each framework runs in a process of its own. A kernel spins for a known time by the GPU's own clock; Numba and JAX, whose
kernels cannot, are compared with the framework's events and with the host's clock around a wait."""

import importlib.util
import json
import statistics
import subprocess
import sys
import time

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
        row = {"label": label, "seconds": seconds, "source": got[0].attributes["gpu.timing.source"],
               "status": got[0].attributes.get("gpu.timing.status"), "called": statistics.median(called)}
        if None not in measured:
            row["measured"] = statistics.median(measured)
            row["known"] = statistics.median(known)
            row["worst"] = max(abs(m - k) for m, k in zip(measured, known))
            row["bound"] = statistics.median(s.attributes["gpu.timing.error"] for s in got)
        print(json.dumps(row), flush=True)


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
    print(json.dumps({"label": "cost of an empty section on the thread, us", "called": statistics.median(per) / 1e9}), flush=True)


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
    from numba import cuda
    import numpy

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
    x = jnp.ones((4096, 4096), "bfloat16")

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


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        globals()["run_" + sys.argv[2]](Spans())
        import otelgpu
        print(json.dumps({"label": "stats", "stats": otelgpu.stats()}))
        sys.exit()
    for name in sys.argv[1:] or ["cupy", "numba", "cuda_python", "jax", "torch"]:
        if importlib.util.find_spec(name.split("_")[0]) is None:
            print(f"== {name}: skipped, not installed")
            continue
        out = subprocess.run([sys.executable, __file__, "--one", name], capture_output=True, text=True, timeout=200)
        print(f"== {name}: {'ok' if out.returncode == 0 else 'FAILED'}")
        for line in out.stdout.splitlines():
            try:
                row = json.loads(line)
            except ValueError:
                continue
            print("  " + "  ".join(f"{k} {v:.3e}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items()))
        if out.stderr.strip():
            print("  " + out.stderr.strip()[-1500:].replace("\n", "\n  "))
