# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
"""What looking costs, and whom joules belong to: `make hardware` runs this and prints rows for docs/hardware.md.

    python looking.py libotelgpu_capture.so otelcol-gpu [--rounds 5] [--kinds decode,train,pair] [--cpu] [--nvml PATH]

A decode loop of a small transformer with random weights (many kernels below 10 µs) and a training step run bare, with
sections, with a Collector that reads the devices, with the capture library and with windows, in alternating rounds: two
processes, one of them with the capture library, take turns. Five rounds take seven minutes.
Two more processes, one bound by arithmetic and one by memory, run alone and together, and the Collector attributes the
energy of the pair to them; this takes one minute. --cpu runs everything on the CPU, to try the script; with --nvml, the
Collector reads a stub.
"""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

try:
    import torch
except ImportError:
    print("skipped: torch is not installed")
    sys.exit(0)

LAYERS, WIDTH, HEADS = 8, 512, 8


class Block(torch.nn.Module):
    """A decoder layer with a cache of keys and values."""

    def __init__(self):
        super().__init__()
        self.one, self.two = torch.nn.LayerNorm(WIDTH), torch.nn.LayerNorm(WIDTH)
        self.qkv, self.out = torch.nn.Linear(WIDTH, 3 * WIDTH), torch.nn.Linear(WIDTH, WIDTH)
        self.up, self.down = torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x, cache=None):
        batch, length, _ = x.shape
        q, k, v = self.qkv(self.one(x)).view(batch, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        if cache is not None:
            k, v = torch.cat((cache[0], k), 2), torch.cat((cache[1], v), 2)
        attended = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=cache is None)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.down(torch.nn.functional.gelu(self.up(self.two(x)))), (k, v)


def nothing(name):
    return contextlib.nullcontext()


def decode(blocks, device, end, section):
    """Returns tokens per second: 64 tokens for each prompt of 16, one sequence at a time."""
    tokens, begin = 0, time.monotonic()
    with torch.inference_mode():
        while time.monotonic() < end:
            x, caches = torch.randn(1, 16, WIDTH, device=device), [None] * len(blocks)
            for _ in range(64):
                for i, block in enumerate(blocks):
                    with section("layer"):
                        x, caches[i] = block(x, caches[i])
                x = x[:, -1:]
                tokens += 1
            if device != "cpu":
                torch.cuda.synchronize()
    return tokens / (time.monotonic() - begin)


def train(blocks, device, end, section):
    """Returns steps per second, of a batch of 8 sequences of 128 tokens."""
    optimizer = torch.optim.AdamW(blocks.parameters(), fused=device != "cpu")
    x = torch.randn(8, 128, WIDTH, device=device)
    steps, begin = 0, time.monotonic()
    while time.monotonic() < end:
        with section("step"):
            y = x
            with section("forward"):
                for block in blocks:
                    y, _ = block(y)
                loss = y.square().mean()
            with section("backward"):
                loss.backward()
            with section("optimizer"):
                optimizer.step()
                optimizer.zero_grad()
        steps += 1
        if device != "cpu":
            torch.cuda.synchronize()
    return steps / (time.monotonic() - begin)


def arithmetic(device, end):
    n = 4096 if device != "cpu" else 512
    a = torch.randn(n, n, device=device, dtype=torch.bfloat16)
    while time.monotonic() < end:
        for _ in range(20):
            a @ a
        if device != "cpu":
            torch.cuda.synchronize()


def memory(device, end):
    a = torch.zeros(1 << (28 if device != "cpu" else 22), device=device)
    while time.monotonic() < end:
        for _ in range(20):
            a.add_(1)
        if device != "cpu":
            torch.cuda.synchronize()


def sections_of_otelgpu():
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

    import otelgpu

    class Discard(SpanExporter):
        def export(self, spans):
            return SpanExportResult.SUCCESS

    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(Discard(), max_queue_size=1 << 16))
    trace.set_tracer_provider(provider)
    return otelgpu.section


def worker(o):
    """Runs what each line of standard input asks for: the kind, its seconds, and whether with sections."""
    device = "cpu" if o.cpu else "cuda"
    blocks = torch.nn.ModuleList(Block() for _ in range(LAYERS)).to(device)
    rates = {"decode": decode, "train": train}
    for run in rates.values():
        run(blocks, device, time.monotonic() + 1, nothing)  # warm up
    print("ready", flush=True)
    section = None
    for line in sys.stdin:
        kind, seconds, way = line.split()
        end = time.monotonic() + float(seconds)
        if kind in rates:
            if way == "sections" and section is None:
                section = sections_of_otelgpu()
                rates[kind](blocks, device, time.monotonic() + 1, section)
                end = time.monotonic() + float(seconds)
            print(rates[kind](blocks, device, end, section if way == "sections" else nothing), flush=True)
        else:
            {"arithmetic": arithmetic, "memory": memory}[kind](device, end)
            print(seconds, flush=True)


class Child:
    """A worker in its own process."""

    def __init__(self, o, env=None):
        self.process = subprocess.Popen(
            [sys.executable, os.path.abspath(__file__), o.shim, o.collector, "--worker", *(["--cpu"] if o.cpu else [])],
            stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True, env=dict(os.environ, **(env or {})))
        self.pid = self.process.pid

    def ask(self, kind, seconds, way="plain"):
        self.process.stdin.write("%s %g %s\n" % (kind, seconds, way))
        self.process.stdin.flush()

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            sys.exit("a worker ended with status %s" % self.process.wait())
        return line.strip()

    def __enter__(self):
        assert self.answer() == "ready"
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait(60)


CAPTURE = """
receivers: {gpu_capture: {folder: %s, window: 1s, every: %s}}
exporters: {debug: {verbosity: basic}}
service:
  telemetry: {metrics: {level: none}}
  pipelines: {traces: {receivers: [gpu_capture], exporters: [debug]}}
"""

DEVICES = """
receivers: {gpu: {source: nvml, sampling_interval: 100ms, collection_interval: 1s%s}}
exporters: {file: {path: %s}}
service:
  telemetry: {metrics: {level: none}}
  pipelines: {metrics: {receivers: [gpu], exporters: [file]}}
"""


@contextlib.contextmanager
def collector(o, folder, config):
    if config is None:
        yield
        return
    path, log = os.path.join(folder, "config.yaml"), os.path.join(folder, "log")
    with open(path, "w") as f:
        f.write(config)
    with open(log, "w") as f:
        p = subprocess.Popen([os.path.abspath(o.collector), "--config", path], stdout=f, stderr=f)
    try:
        yield
        if p.poll() is not None:
            with open(log) as f:
                sys.exit("the Collector ended with status %s: %s" % (p.returncode, f.read()[-2000:]))
    finally:
        p.terminate()
        p.wait(20)


def devices(o, folder):
    return DEVICES % (", nvml: {library: %s}" % o.nvml if o.nvml else "", os.path.join(folder, "metrics.json"))


def costs(o, kinds):
    """Prints, for each way of looking, how much of the bare program's rate it costs, pair by pair."""
    rates = {}
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        library = {"CUDA_INJECTION64_PATH": os.path.abspath(o.shim), "OTELGPU_CAPTURE_DIR": folder}
        with Child(o) as plain, Child(o, library) as captured:
            ways = (
                ("bare", plain, None, "plain", o.seconds),
                ("sections of Python", plain, None, "sections", o.seconds),
                ("Collector, devices at 10 Hz", plain, devices(o, folder), "plain", o.seconds),
                ("capture library, idle", captured, None, "plain", o.seconds),
                ("windows of 1 s in 10 s", captured, CAPTURE % (folder, "10s"), "plain", 2.5 * o.seconds),
                ("windows of 1 s in 4 s", captured, CAPTURE % (folder, "4s"), "plain", 2 * o.seconds),
            )
            for _ in range(o.rounds):
                for kind in kinds:
                    for name, child, config, way, seconds in ways:
                        with collector(o, folder, config):
                            child.ask(kind, seconds, way)
                            rates.setdefault((kind, name), []).append(float(child.answer()))
    for kind in kinds:
        bare = rates[kind, "bare"]
        row("%s, %s per second, bare" % (kind, {"decode": "tokens", "train": "steps"}[kind]), "%.1f to %.1f" % (min(bare), max(bare)))
        for name, *_ in ways[1:]:
            lost = [100 * (1 - v / b) for v, b in zip(rates[kind, name], bare)]
            row("%s, cost of: %s" % (kind, name), "%.1f %% (%.1f to %.1f)" % (statistics.median(lost), min(lost), max(lost)))


def together(o, workers):
    """Returns the joules of the device while the workers run, by NVML, and what the Collector attributes to each."""
    import instruments

    try:
        nvml = instruments.Nvml(o.nvml or "libnvidia-ml.so.1")
        counter = nvml.instruments["energy counter"]
    except OSError:
        counter = lambda: None
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        with collector(o, folder, devices(o, folder) if counter() is not None else None):
            time.sleep(3)  # the Collector has measured the idle device
            before = counter()
            for kind, child in workers.items():
                child.ask(kind, 2.5 * o.seconds)
            for child in workers.values():
                child.answer()
            after = counter()
            time.sleep(4)  # the driver's last samples of processes
        shares = instruments.energies(os.path.join(folder, "metrics.json"))
    of = {kind: shares.get(child.pid, {}) for kind, child in workers.items()}
    return after and after - before, {kind: (v.get("gpu.process.energy"), v.get("gpu.process.energy_error")) for kind, v in of.items()}


def pair(o):
    """Compares what the Collector attributes to each of two processes that share the device with their joules alone."""
    def joules(v):
        return "not available" if v is None else "%.0f J" % v

    with Child(o) as one, Child(o) as other:
        workers = {"arithmetic": one, "memory": other}
        both, shares = together(o, workers)
        for kind, child in workers.items():
            alone, own = together(o, {kind: child})
            row("%s alone in %g s: the counter; attributed ± error; attributed beside the other" % (kind, 2.5 * o.seconds), "%s; %s ± %s; %s ± %s" % (
                joules(alone), *(joules(v) for v in own[kind]), *(joules(v) for v in shares[kind])))
        row("both at once: the counter", joules(both))


def row(what, result):
    print("| %s | %s |" % (what, result), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("shim")
    parser.add_argument("collector")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--kinds", default="decode,train,pair")
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--nvml")
    parser.add_argument("--worker", action="store_true")
    options = parser.parse_args()
    options.nvml = options.nvml and os.path.abspath(options.nvml)
    if options.worker:
        worker(options)
    elif not options.cpu and not torch.cuda.is_available():
        print("skipped: torch sees no GPU")
    else:
        asked = options.kinds.split(",")
        if rated := [kind for kind in ("decode", "train") if kind in asked]:
            costs(options, rated)
        if "pair" in asked:
            pair(options)
