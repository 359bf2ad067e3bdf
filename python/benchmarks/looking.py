# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
"""What looking costs, and whom joules belong to: `make hardware` runs this and prints rows for docs/hardware.md.

    python looking.py libotelgpu_capture.so otelcol-gpu [--rounds 5] [--seconds 10] [--kinds decode,train,pair] [--cpu]

A decode loop of a small transformer with random weights (many kernels below 10 µs) and a training step run bare, with
the capture library, with windows, with sections and with a Collector that reads the devices, in alternating rounds.
Two more processes, one bound by arithmetic and one by memory, run alone and together, for the share of each in the
energy of the pair. With five rounds, decode and train take eight minutes each, pair one. --cpu runs everything on the CPU, without energy, to try the script.
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
    a = torch.randn(4096, 4096, device=device, dtype=torch.bfloat16)
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


def worker(o):
    device = "cpu" if o.cpu else "cuda"
    if o.worker in ("arithmetic", "memory"):
        print("ready", flush=True)
        sys.stdin.readline()
        {"arithmetic": arithmetic, "memory": memory}[o.worker](device, time.monotonic() + o.seconds)
        return
    section = nothing
    if o.sections:
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
        section = otelgpu.section
    blocks = torch.nn.ModuleList(Block() for _ in range(LAYERS)).to(device)
    run = {"decode": decode, "train": train}[o.worker]
    run(blocks, device, time.monotonic() + 1, section)  # warm up
    print(json.dumps(run(blocks, device, time.monotonic() + o.seconds, section)), flush=True)


def child(o, kind, *arguments, env=None):
    return subprocess.Popen([sys.executable, os.path.abspath(__file__), o.shim, o.collector, "--worker", kind, "--seconds", str(o.seconds),
                             *(["--cpu"] if o.cpu else []), *arguments], stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True,
                            env=dict(os.environ, **(env or {})))


CAPTURE = """
receivers: {gpu_capture: {folder: %s, window: 1s, every: %s}}
exporters: {debug: {verbosity: basic}}
service:
  telemetry: {metrics: {level: none}}
  pipelines: {traces: {receivers: [gpu_capture], exporters: [debug]}}
"""

DEVICES = """
receivers: {gpu: {source: nvml, sampling_interval: 100ms, collection_interval: 10s}}
exporters: {debug: {verbosity: basic}}
service:
  telemetry: {metrics: {level: none}}
  pipelines: {metrics: {receivers: [gpu], exporters: [debug]}}
"""


@contextlib.contextmanager
def collector(o, folder, config):
    if config is None:
        yield
        return
    path = os.path.join(folder, "config.yaml")
    with open(path, "w") as f:
        f.write(config)
    p = subprocess.Popen([os.path.abspath(o.collector), "--config", path], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        p.terminate()
        p.wait(20)


def costs(o):
    """Prints, for each way of looking, the rate of the bare program over the rate with it, pair by pair."""
    for kind, unit in (("decode", "tokens"), ("train", "steps")):
        if kind not in o.kinds.split(","):
            continue
        rates = {}
        for _ in range(o.rounds):
            with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
                library = {"CUDA_INJECTION64_PATH": os.path.abspath(o.shim), "OTELGPU_CAPTURE_DIR": folder}
                for name, env, config, arguments in (
                    ("bare", None, None, []),
                    ("capture library, idle", library, None, []),
                    ("windows of 1 s in 10 s", library, CAPTURE % (folder, "10s"), []),
                    ("windows of 1 s in 4 s", library, CAPTURE % (folder, "4s"), []),
                    ("sections of Python", None, None, ["--sections"]),
                    ("Collector, devices at 10 Hz", None, DEVICES, []),
                ):
                    with collector(o, folder, config):
                        p = child(o, kind, *arguments, env=env)
                        out, _ = p.communicate()
                        if p.returncode:
                            sys.exit("%s, %s: status %d" % (kind, name, p.returncode))
                    rates.setdefault(name, []).append(json.loads(out.splitlines()[-1]))
        row("%s, %s per second, bare" % (kind, unit), "%.1f to %.1f" % (min(rates["bare"]), max(rates["bare"])))
        for name, values in rates.items():
            if name != "bare":
                lost = [100 * (1 - v / bare) for v, bare in zip(values, rates["bare"])]
                row("%s, cost of: %s" % (kind, name), "%.1f %% (%.1f to %.1f)" % (statistics.median(lost), min(lost), max(lost)))


def joules(o, *kinds):
    """Returns the joules of the device while the workers run, and the utilization of each process, by NVML."""
    import instruments

    nvml = None if o.cpu else instruments.Nvml()
    workers = {kind: child(o, kind) for kind in kinds}
    for p in workers.values():
        assert p.stdout.readline() == "ready\n"
    before = nvml and nvml.instruments["energy counter"]()
    for p in workers.values():
        p.stdin.write("go\n")
        p.stdin.flush()
    shares = {p.pid: [] for p in workers.values()}
    while any(p.poll() is None for p in workers.values()):
        time.sleep(0.25)
        for pid, sm in (nvml.processes() if nvml else {}).items():
            shares.setdefault(pid, []).append(sm)
    after = nvml and nvml.instruments["energy counter"]()
    return (after - before if nvml else float("nan")), {
        kind: statistics.mean(shares[p.pid]) if shares[p.pid] else float("nan") for kind, p in workers.items()}


def pair(o):
    both, share = joules(o, "arithmetic", "memory")
    for kind in ("arithmetic", "memory"):
        alone, own = joules(o, kind)
        row("%s alone: J in %g s, utilization; utilization beside the other" % (kind, o.seconds), "%.0f, %.0f %%; %.0f %%" % (alone, own[kind], share[kind]))
    row("both: J in %g s" % o.seconds, "%.0f" % both)


def row(what, result):
    print("| %s | %s |" % (what, result), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("shim")
    parser.add_argument("collector")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--kinds", default="decode,train,pair")
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--worker")
    parser.add_argument("--sections", action="store_true")
    options = parser.parse_args()
    if options.worker:
        worker(options)
    elif not options.cpu and not torch.cuda.is_available():
        print("skipped: torch sees no GPU")
    else:
        costs(options)
        if "pair" in options.kinds.split(","):
            pair(options)
