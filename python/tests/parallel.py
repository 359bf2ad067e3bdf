# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
"""A torch.distributed job on the CPU in which some ranks are late, for tests; started by torchrun.

    parallel.py KIND SLOW_RANKS PHASE SECONDS STEPS OUT [JITTER]

KIND: ddp, fsdp, tp (tensor parallel by DTensor), pp (one pipeline of all ranks), dp_pp (two stages, replicated by DDP),
dp_tp, or hf (the Trainer of Transformers with its default seed). PHASE: data, forward, backward or optimizer. Each rank writes its spans, as OTLP, to OUT/RANK.pb.gz; OUT/own.json has
the time that each rank spent on its own work in each step, by arrivals.py.

With JITTER, time is virtual: each phase takes the time in PHASES, multiplied by a normally distributed factor with
that standard deviation, and nothing else takes time."""

import gzip
import json
import pathlib
import random
import sys
import time

import torch
import torch.distributed as dist
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel

import arrivals
import otelgpu

PHASES = {"data": 0.002, "forward": 0.005, "backward": 0.010, "optimizer": 0.003}  # s of work in virtual time


class Keep(SpanExporter):
    def __init__(self):
        self.spans = []

    def export(self, spans):
        self.spans += spans
        return SpanExportResult.SUCCESS


class Delay(torch.autograd.Function):
    """Sleeps in the backward pass."""
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        late("backward")
        return g


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Linear(64, 64), torch.nn.Linear(64, 64)

    def forward(self, x):
        if jitter is None:
            time.sleep(0.005)  # device work, the same on all ranks
        return self.b(Delay.apply(self.a(x)))


def late(name):
    """Performs a phase's work in virtual time; a slow rank takes longer."""
    extra = delay if rank in slow and phase == name else 0
    if jitter is None:
        time.sleep(extra)
    else:
        arrivals.work(max(0, PHASES[name] * (1 + jitter * noise.gauss(0, 1))) + extra)


def plain(model):
    def step(x):
        with turn.phase("forward"):
            late("forward")
            loss = model(x).square().mean()
        with turn.phase("backward"):
            loss.backward()
    return model, step


def stage(model, forward_to, backward_to):
    """A stage of a pipeline: receives activations from the previous stage and gradients from the next one."""
    def step(x):
        with turn.phase("forward"):
            if forward_to[0] is not None:
                x = torch.empty(4, 64)
                dist.recv(x, src=forward_to[0])
                x.requires_grad_()
            late("forward")
            y = model(x)
            if forward_to[1] is not None:
                dist.send(y.detach().contiguous(), dst=forward_to[1])
        with turn.phase("backward"):
            grad = torch.empty(4, 64)
            if backward_to[0] is not None:
                dist.recv(grad, src=backward_to[0])
                y.backward(grad)
            else:
                y.square().mean().backward()
            if backward_to[1] is not None:
                dist.send(x.grad.contiguous(), dst=backward_to[1])
    return model, step


def tensor_parallel(model, mesh):
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
    return parallelize_module(model, mesh, {"a": ColwiseParallel(), "b": RowwiseParallel()})


def make():
    if kind == "ddp":
        return plain(otelgpu.watch_collectives(arrivals.watch(DistributedDataParallel(Net()))))
    if kind == "fsdp":
        from torch.distributed.fsdp import fully_shard
        return plain(otelgpu.watch_collectives(fully_shard(Net(), mesh=init_device_mesh("cpu", (world,)))))
    if kind == "tp":
        return plain(otelgpu.watch_collectives(tensor_parallel(Net(), init_device_mesh("cpu", (world,)))))
    if kind == "dp_tp":
        from torch.distributed.fsdp import fully_shard
        mesh = init_device_mesh("cpu", (world // 2, 2), mesh_dim_names=("dp", "tp"))
        return plain(otelgpu.watch_collectives(fully_shard(tensor_parallel(Net(), mesh["tp"]), mesh=mesh["dp"])))
    if kind == "pp":
        otelgpu.watch_collectives()
        before, after = rank - 1 if rank else None, rank + 1 if rank + 1 < world else None
        return stage(Net(), (before, after), (after, before))
    half = world // 2  # dp_pp
    mesh = init_device_mesh("cpu", (2, half), mesh_dim_names=("pp", "dp"))
    model = DistributedDataParallel(Net(), process_group=mesh["dp"].get_group())
    model = otelgpu.watch_collectives(arrivals.watch(model))
    first = rank < half
    forward_to = (None, rank + half) if first else (rank - half, None)
    return stage(model, forward_to, (rank + half, None) if first else (None, rank - half))


kind, slow, phase, delay = sys.argv[1], [int(r) for r in sys.argv[2].split(",") if r], sys.argv[3], float(sys.argv[4])
steps, folder = int(sys.argv[5]), pathlib.Path(sys.argv[6])
jitter = float(sys.argv[7]) if len(sys.argv) > 7 else None
torch.set_num_threads(1)
torch.manual_seed(0)
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
noise = random.Random(1000 + rank)
arrivals.install(virtual=jitter is not None)
out, provider = Keep(), TracerProvider(resource=Resource.create({"service.name": "train", **otelgpu.job()}))
provider.add_span_processor(BatchSpanProcessor(out, max_queue_size=100_000))
trace.set_tracer_provider(provider)
x = torch.randn(4, 64)


def loader():
    for _ in range(steps):
        arrivals.step()
        late("data")
        yield x


def train():
    global turn
    model, step = make()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for turn, item in otelgpu.loop("train", loader()):
        step(item)
        with turn.phase("optimizer"):
            late("optimizer")
            optimizer.step()
            optimizer.zero_grad()


def trainer():
    import transformers
    from otelgpu.transformers import GPUSteps

    class Data(torch.utils.data.Dataset):
        def __len__(self):
            return steps * world

        def __getitem__(self, i):
            late("data")
            return {"x": torch.randn(64)}

    class Model(Net):
        def forward(self, x):
            late("forward")
            return {"loss": super().forward(x).square().mean()}

    class Optimizer(torch.optim.SGD):
        def step(self, closure=None):
            late("optimizer")
            return super().step(closure)

    class Steps(transformers.TrainerCallback):
        """Follows GPUSteps, whose steps begin where this one's do."""
        def on_train_begin(self, *_, **__):
            arrivals.watch(it.model_wrapped)
            arrivals.step()

        def on_step_end(self, *_, **__):
            arrivals.step()

    options = transformers.TrainingArguments(
        output_dir=str(folder), per_device_train_batch_size=1, num_train_epochs=1, save_strategy="no", report_to=[], disable_tqdm=True,
        use_cpu=True, logging_strategy="no")
    model = Model()
    it = transformers.Trainer(model, options, train_dataset=Data(), callbacks=[GPUSteps(), Steps()],
                              optimizers=(Optimizer(model.parameters(), lr=0.01), None))
    it.train()


(trainer if kind == "hf" else train)()
provider.shutdown()
(folder / f"{rank}.pb.gz").write_bytes(gzip.compress(encode_spans(out.spans).SerializeToString(), mtime=0))
own = arrivals.own_times()
if rank == 0:
    (folder / "own.json").write_text(json.dumps(own))
dist.barrier()
dist.destroy_process_group()
