# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
"""What looking costs, and whom joules belong to, on a real GPU: two parts of hardware.py.

    python looking.py libotelgpu_capture.so otelcol-gpu [--rounds 5] [--budget 330] [--kinds decode,train,pair] [--cpu] [--nvml PATH]

A decode loop of a small Llama of transformers with random weights (many kernels below 10 µs; without transformers, of a
like model) and a training step run bare, with sections, with a Collector that reads the devices, with the capture
library and with windows, in alternating rounds. Each round has two processes of its own, one of them with the capture
library, because two processes of one program differ by some percent. Five rounds take five minutes; --budget shortens
what is measured, and leaves out rounds, so that all is done in that many seconds.
Two more processes, one bound by arithmetic and one by memory, run alone and together, and the Collector attributes the
energy of the pair to them; this takes one minute. If a row of it says "beyond" for processes never seen apart, raise
unknownPower in internal/processenergy/model.go; if it does for processes seen apart, their power depends on the
neighbor: apply contention to windows without overlap, too. --cpu runs everything on the CPU, to try the script; with
--nvml, the Collector reads a stub (tests/nvml_stub.c), whose processes draw 400 and 180 W at equal utilization: it
attributes 962 J (± 663) to each before it has seen them apart, and 1,389 and 626 J of 1,400 and 638 J afterwards.
"""

import argparse
import contextlib
import ctypes
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from table import row, skip, torch_on_gpu

try:
    import torch
except (ImportError, OSError) as e:
    skip("torch cannot be imported: %s" % e)

LAYERS, WIDTH, HEADS, VOCABULARY = 8, 512, 8, 8192
SHARED = "/dev/shm" if os.path.isdir("/dev/shm") else None  # where rings and other files are
LIMIT = 2  # percent that looking may cost


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


class Own(torch.nn.Module):
    """A language model of these layers, used if transformers is not installed."""

    def __init__(self):
        super().__init__()
        self.embed, self.head = torch.nn.Embedding(VOCABULARY, WIDTH), torch.nn.Linear(WIDTH, VOCABULARY)
        self.layers = torch.nn.ModuleList(Block() for _ in range(LAYERS))

    def forward(self, ids, cache=None):
        x, new = self.embed(ids), []
        for i, layer in enumerate(self.layers):
            x, kept = layer(x, cache and cache[i])
            new.append(kept)
        return self.head(x), new


class Program:
    """The two programs, around the same model. step and layer are the sections around their parts."""

    def __init__(self, device):
        self.device, self.step, self.layer = device, nothing, nothing
        torch.manual_seed(1)
        try:
            import transformers

            model = transformers.LlamaForCausalLM(transformers.LlamaConfig(
                vocab_size=VOCABULARY, hidden_size=WIDTH, intermediate_size=4 * WIDTH, num_hidden_layers=LAYERS,
                num_attention_heads=HEADS, num_key_value_heads=HEADS, max_position_embeddings=256)).to(device)
            self.name, layers = "transformers %s" % transformers.__version__, model.model.layers
        except Exception as e:  # not installed, or a version that does not fit to torch
            print("transformers cannot be used: %r" % e, file=sys.stderr)
            model = Own().to(device)
            self.name, layers = "torch alone", model.layers
        self.model = model
        for one in layers:
            one.forward = self.inside(one.forward)
        self.optimizer = torch.optim.AdamW(model.parameters(), fused=device != "cpu")

    def inside(self, forward):
        def inner(*arguments, **named):
            with self.layer("layer"):
                return forward(*arguments, **named)
        return inner

    def run(self, ids, cache=None):
        """Returns the logits of each token, and the cache with them; without one while it trains."""
        if isinstance(self.model, Own):
            return self.model(ids, cache)
        out = self.model(input_ids=ids, past_key_values=cache, use_cache=not torch.is_grad_enabled())
        return out.logits, out.past_key_values

    def wait(self):
        if self.device != "cpu":
            torch.cuda.synchronize()

    def decode(self, end):
        """Returns tokens per second: 64 tokens for each prompt of 16, one sequence at a time."""
        tokens, begin = 0, time.monotonic()
        with torch.inference_mode():
            while time.monotonic() < end:
                ids, cache = torch.randint(VOCABULARY, (1, 16), device=self.device), None
                for _ in range(64):
                    with self.step("token"):
                        logits, cache = self.run(ids, cache)
                        ids = logits[:, -1:].argmax(-1)
                    tokens += 1
                self.wait()
        return tokens / (time.monotonic() - begin)

    def train(self, end):
        """Returns steps per second, of a batch of 8 sequences of 128 tokens."""
        ids = torch.randint(VOCABULARY, (8, 129), device=self.device)
        steps, begin = 0, time.monotonic()
        while time.monotonic() < end:
            with self.step("step"):
                with self.step("forward"):
                    logits, _ = self.run(ids[:, :-1])
                    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
                with self.step("backward"):
                    loss.backward()
                with self.step("optimizer"):
                    self.optimizer.step()
                    self.optimizer.zero_grad()
            steps += 1
            self.wait()
        return steps / (time.monotonic() - begin)


def nothing(name):
    return contextlib.nullcontext()


def arithmetic(device, end):
    """Returns how many products of matrices were computed."""
    n = 4096 if device != "cpu" else 512
    a = torch.randn(n, n, device=device, dtype=torch.bfloat16)
    return repeat(device, end, lambda: a @ a)


def memory(device, end):
    """Returns how often the memory was read and written."""
    a = torch.zeros(1 << (28 if device != "cpu" else 22), device=device)
    return repeat(device, end, lambda: a.add_(1))


def repeat(device, end, work):
    times = 0
    while time.monotonic() < end:
        for _ in range(20):
            work()
        if device != "cpu":
            torch.cuda.synchronize()
        times += 20
    return times


def rehearsal(folder, nvml, kind, end):
    """Lets a stub of NVML follow this process (tests/nvml_stub.c), and returns for how many seconds it had the device."""
    import instruments

    stub, file = ctypes.CDLL(nvml), os.path.join(folder, kind)
    stub.stub_had.restype = ctypes.c_double
    stub.stub_forget()
    before = stub.stub_had(os.getpid())
    rehearsal.times = getattr(rehearsal, "times", None) or [time.monotonic()]
    rehearsal.times.append(time.monotonic())
    instruments.tell(file, rehearsal.times)
    time.sleep(max(0.0, end - time.monotonic()))
    rehearsal.times.append(time.monotonic())
    instruments.tell(file, rehearsal.times)
    time.sleep(0.2)  # the other one wrote its time, too
    stub.stub_forget()
    return stub.stub_had(os.getpid()) - before


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


def kernels_of_the_stub(path):
    """Returns a section that launches a kernel of 1 µs of the stub of CUPTI."""
    stub = ctypes.CDLL(path)

    def launch(name):
        stub.stub_launch(b"kernel", ctypes.c_uint64(1000))
        return contextlib.nullcontext()
    return launch


def worker(o):
    """Runs what each line of standard input asks for: the kind, its seconds, and where sections are."""
    device = "cpu" if o.cpu else "cuda"
    plain = nothing
    if o.cpu and "CUDA_INJECTION64_PATH" in os.environ:  # what the driver does otherwise
        ctypes.CDLL(os.environ["CUDA_INJECTION64_PATH"]).InitializeInjection()
        if "OTELGPU_CUPTI_LIBRARY" in os.environ:
            plain = kernels_of_the_stub(os.environ["OTELGPU_CUPTI_LIBRARY"])
    program = Program(device) if {"decode", "train"} & set(o.kinds.split(",")) else None
    rates = {"decode": program.decode, "train": program.train} if program else {}
    for run in rates.values():
        run(time.monotonic() + 1)  # warm up
    print("ready %s" % (program.name if program else ""), flush=True)
    section = None
    for line in sys.stdin:
        kind, seconds, way = line.split()
        if kind in rates:
            if way != "plain" and section is None:
                section = sections_of_otelgpu()
                program.step = program.layer = section
                rates[kind](time.monotonic() + 0.5)
            program.step = nothing if way == "plain" else section
            program.layer = section if way == "layers" else plain
            print(rates[kind](time.monotonic() + float(seconds)), flush=True)
        else:
            end, folder = time.monotonic() + float(seconds), os.environ.get("OTELGPU_STUB_LOADS")
            if o.cpu and o.nvml and folder:
                print(rehearsal(folder, o.nvml, kind, end), flush=True)
            else:
                print({"arithmetic": arithmetic, "memory": memory}[kind](device, end), flush=True)


class Child:
    """A worker in its own process."""

    def __init__(self, o, env=None):
        self.process = subprocess.Popen(
            [sys.executable, os.path.abspath(__file__), o.shim, o.collector, "--worker", "--kinds", o.kinds,
             *(["--cpu"] if o.cpu else []), *(["--nvml", o.nvml] if o.nvml else [])],
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
        self.model = self.answer().partition("ready ")[2]
        return self

    def __exit__(self, *_):
        self.process.kill()  # it has answered, and its own end takes seconds
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(5)


# With the lowest limit, the receiver opens one window, and logs its own estimate of the cost.
CAPTURE = """
receivers: {gpu_capture: {folder: %s, window: 1s, every: %s, max_cost: 1.0e-9, budget: 1000000}}
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
    """Runs a Collector, and yields a function that returns its log so far."""
    if config is None:
        yield str
        return
    path, log = os.path.join(folder, "config.yaml"), os.path.join(folder, "log")
    with open(path, "w") as f:
        f.write(config)
    with open(log, "w") as f:
        p = subprocess.Popen([os.path.abspath(o.collector), "--config", path], stdout=f, stderr=f)
    try:
        yield lambda: open(log).read()
        if p.poll() is not None:
            sys.exit("the Collector ended with status %s: %s" % (p.returncode, open(log).read()[-2000:]))
    finally:
        p.terminate()
        p.wait(20)


def devices(o, folder):
    return DEVICES % (", nvml: {library: %s}" % o.nvml if o.nvml else "", os.path.join(folder, "metrics.json"))


def ways(seconds):
    """Returns the ways to look: the name, the seconds, where sections are, whether in the process with the capture
    library, and which run of that process it is compared with. A run with windows has one window."""
    return (
        ("bare", seconds, "plain", False, None),
        ("Python sections per step", seconds, "steps", False, "bare"),
        ("Python sections per layer and step", seconds, "layers", False, "bare"),
        ("Collector, devices at 10 Hz", seconds, "plain", False, "bare"),
        ("nothing, which shows the spread", seconds, "plain", False, "bare"),
        ("capture library, idle", seconds, "plain", True, "bare"),
        ("windows of 1 s in 4 s, beyond the idle library", 4, "plain", True, "capture library, idle"),
        ("windows of 1 s in 10 s, beyond the idle library", 10, "plain", True, "capture library, idle"),
    )


def plan(budget, rounds, kinds, longest=4.0):
    """Returns how many rounds fit into budget, and the seconds of each run without windows: at least one."""
    around = 4.5  # the Collectors of one kind in one round
    runs = sum(w[1] is None for w in ways(None))
    for n in range(rounds, 0, -1):
        seconds = (budget / (n * kinds) - around - 14) / runs
        if seconds >= 1:
            return n, min(seconds, longest)
    return 1, 1.0


def costs(o, kinds):
    """Prints, for each way of looking, how much of the program's rate it costs, round by round."""
    end = time.monotonic() + (o.budget or float("inf"))
    rounds = plan(end - time.monotonic() - 25, o.rounds, len(kinds))[0]  # all processes have started after that
    rates, refused, model = [], {}, ""
    with tempfile.TemporaryDirectory(dir=SHARED) as folder, contextlib.ExitStack() as stack:
        pairs = []
        for i in range(rounds):  # all at once: they are ready sooner. Each has its own ring, as each window is for one of them
            rings = os.path.join(folder, str(i))
            os.mkdir(rings, 0o700)
            pairs.append((Child(o), Child(o, {"CUDA_INJECTION64_PATH": os.path.abspath(o.shim), "OTELGPU_CAPTURE_DIR": rings})))
        try:
            for pair in pairs:
                for child in pair:
                    model = stack.enter_context(child).model
            started = time.monotonic()
            seconds = plan(end - started, rounds, len(kinds), o.seconds)[1]
            for i, (plain, captured) in enumerate(pairs):
                if i and end - time.monotonic() < (time.monotonic() - started) / i:
                    break
                rings = os.path.join(folder, str(i))
                # The first window of a process loads CUPTI.
                subprocess.run([os.path.abspath(o.collector), "capture", "--folder", rings, "--for", "100ms", "--out",
                                os.path.join(rings, "out"), str(captured.pid)], capture_output=True)
                for kind in kinds:
                    got = {}
                    rates.append((kind, got))
                    for name, length, where, inside, _ in ways(seconds)[::-1 if i % 2 else 1]:
                        config = devices(o, folder) if "Collector" in name else None
                        if "windows" in name:
                            config = CAPTURE % (rings, "%ds" % length)
                        child = captured if inside else plain
                        with collector(o, folder, config) as log:
                            child.ask(kind, length, where)
                            got[name] = float(child.answer())
                            if "windows" in name and (why := no_window(log())):
                                refused[kind, name] = why
                                del got[name]
                            elif "windows" in name:
                                got["estimate", name] = float(re.search(ESTIMATE, log()).group(1))
                for child in plain, captured:
                    child.__exit__()
                shutil.rmtree(rings)  # its memory: containers often have 64 MiB of it
        finally:
            for kind in kinds:
                summary(kind, [got for of, got in rates if of == kind], refused, model)


ESTIMATE = r'"cost_of_a_window": ([0-9.e-]+)'


def no_window(log):
    """Returns why a Collector recorded no window, or not its cost; empty: it did."""
    if why := re.search(r'cannot record a window.*?"reason": "([^"]*)"', log):
        return why.group(1)
    return "" if re.search(r'"spans": [1-9]', log) and re.search(ESTIMATE, log) else "no window was recorded"


def summary(kind, rounds, refused, model):
    """Prints the rows of one program; of rounds, which an error may have ended early."""
    bare = [got["bare"] for got in rounds if "bare" in got]
    if not bare:
        return
    row("%s, %s per second, bare" % (kind, {"decode": "tokens", "train": "steps"}[kind]), "%.1f to %.1f (%s)" % (
        min(bare), max(bare), model))
    for name, length, *_, base in ways(0):
        lost = [100 * (got[base] - got[name]) / got[base] for got in rounds if name in got and base in got]
        estimates = [1e3 * got["estimate", name] for got in rounds if ("estimate", name) in got]
        if lost:
            row("%s, cost of: %s" % (kind, name), verdict(lost))
        if lost and estimates:
            row("%s, ms lost by one of the %s, and as the receiver estimates it from above" % (kind, name), "%.0f (%.0f to %.0f); %.0f to %.0f" % (
                *(10 * length * f(lost) for f in (statistics.median, min, max)), min(estimates), max(estimates)))
        if not lost and (kind, name) in refused:
            row("%s, cost of: %s" % (kind, name), "not measured: " + refused[kind, name])


def verdict(lost):
    """Returns the median of the percentages lost, their range, and whether they are within the limit."""
    within = statistics.median(lost) <= LIMIT
    return "%.1f %% (%.1f to %.1f in %d rounds): %s %d %%%s" % (
        statistics.median(lost), min(lost), max(lost), len(lost), "within" if within else "more than", LIMIT,
        "" if all((x <= LIMIT) == within for x in lost) else " in the median, not in each round")


def pair(o):
    """Compares what the Collector attributes to each of two processes that share the device with their joules alone: when it has
    never seen them apart, and when it has."""
    import instruments

    try:
        nvml = instruments.Nvml(o.nvml or "libnvidia-ml.so.1")
        counter = nvml.instruments["energy counter"]
    except OSError:
        nvml, counter = None, lambda: None
    with Child(o) as one, Child(o) as other, tempfile.TemporaryDirectory(dir=SHARED) as folder:
        workers = {"arithmetic": one, "memory": other}

        def attributed(pid):
            v = instruments.energies(os.path.join(folder, "metrics.json")).get(pid, {})
            return [v.get(name) for name in ("gpu.process.energy", "gpu.process.energy_error")]

        def together(*kinds):
            """Runs workers at once, and returns what instruments.shares compares."""
            pids = {kind: workers[kind].pid for kind in kinds}
            used, known = {pid: [] for pid in pids.values()}, {kind: attributed(pid) for kind, pid in pids.items()}
            before, begin = counter(), time.monotonic()
            time.sleep(2)
            idle = before is not None and (counter() - before) / (time.monotonic() - begin)
            before, begin = counter(), time.monotonic()
            for kind in kinds:
                workers[kind].ask(kind, 1.75 * o.seconds)
            while nvml and time.monotonic() < begin + 1.75 * o.seconds:
                time.sleep(0.2)
                for pid, sm in nvml.processes().items():
                    used.get(pid, []).append(sm)
            work = {kind: float(workers[kind].answer()) for kind in kinds}
            time.sleep(0.2)  # the counter is refreshed
            joules = None if before is None else counter() - before - idle * (time.monotonic() - begin)
            time.sleep(4)  # the driver's last samples of processes
            done = {}
            for kind, pid in pids.items():
                energy, error = (v if v is None else v - (u or 0) for u, v in zip(known[kind], attributed(pid)))
                done[kind] = work[kind], energy, error, statistics.fmean(used[pid]) if used[pid] else None
            return {"joules": joules, "processes": done}

        with collector(o, folder, devices(o, folder) if counter() is not None else None):
            time.sleep(3)  # the Collector measures the idle device
            first = together(*workers)
            alone = {kind: together(kind) for kind in workers}
            for what, result in instruments.shares(alone, {"never seen apart": first, "seen apart": together(*workers)}):
                row(what, result)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("shim")
    parser.add_argument("collector")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4, help="of each run without windows, at most")
    parser.add_argument("--budget", type=float, help="seconds for decode and train together")
    parser.add_argument("--kinds", default="decode,train,pair")
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--nvml")
    parser.add_argument("--worker", action="store_true")
    options = parser.parse_args()
    options.nvml = options.nvml and os.path.abspath(options.nvml)
    if options.cpu:
        LAYERS, WIDTH, HEADS, VOCABULARY = 2, 64, 2, 256
        torch.set_num_threads(1)
        options.rounds = min(options.rounds, 2)  # a process takes seconds of CPU to start
    if options.worker:
        worker(options)
    else:
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # rows of what is measured are printed
        if not options.cpu:
            torch_on_gpu()
        asked = options.kinds.split(",")
        if rated := [kind for kind in ("decode", "train") if kind in asked]:
            costs(options, rated)
        if "pair" in asked:
            pair(options)
