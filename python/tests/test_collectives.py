# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
"""Phases of the ranks of a real torch.distributed job on the CPU contain only the rank's own work."""

import gzip
import json
import pathlib
import subprocess
import sys

import pytest

from otelgpu import _loop

PREFIX = "gpu.step.phase.duration."


def ranks(folder, kind, world, slow, phase, delay, steps):
    """Runs parallel.py in virtual time, and returns the phases and the collectives of each step of each rank."""
    pytest.importorskip("torch.distributed.run", reason="PyTorch is not installed")
    for name in ("transformers", "accelerate") if kind == "hf" else ():
        pytest.importorskip(name, reason="a trainer is not installed")
    trace_service = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
    program = pathlib.Path(__file__).parent / "parallel.py"
    out = subprocess.run([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(world),
                          str(program), kind, str(slow), phase, str(delay), str(steps), str(folder), "0.05"],
                         capture_output=True, text=True, timeout=300)
    assert out.returncode == 0, out.stderr[-3000:]
    result = []
    for rank in range(world):
        request = trace_service.ExportTraceServiceRequest.FromString(gzip.decompress((folder / f"{rank}.pb.gz").read_bytes()))
        spans = [s for r in request.resource_spans for scope in r.scope_spans for s in scope.spans]
        values = {s.span_id: {a.key: getattr(a.value, a.value.WhichOneof("value")) for a in s.attributes} for s in spans}
        found = {}
        for s in spans:
            if "gpu.step.index" in values[s.span_id]:
                found[s.span_id] = {k[len(PREFIX):]: v for k, v in values[s.span_id].items() if k.startswith(PREFIX)}, []
        for s in spans:
            at = values[s.span_id]
            if at["gpu.operation.type"] == "collective":
                found[s.parent_span_id][1].append((at["gpu.collective.group.id"], at["gpu.collective.sequence"]))
        result.append([found[i] for i in sorted(found, key=lambda i: values[i]["gpu.step.index"])])
    return result


@pytest.mark.parametrize("kind,world,phase", [
    ("ddp", 2, "backward"), ("ddp", 2, "forward"), ("fsdp", 2, "backward"), ("hf", 2, "backward")])
def test_the_slow_rank_has_the_delay_and_the_others_wait(tmp_path, kind, world, phase):
    delay, slow, count = 0.1, world - 1, 25
    steps = ranks(tmp_path, kind, world, slow, phase, delay, count)
    assert [len(s) for s in steps] == [count] * world
    sequences = []
    for i in range(count):
        (group, number), = steps[0][i][1]
        assert all(s[i][1] == steps[0][i][1] for s in steps), "the ranks end a step at the same collectives"
        assert group.endswith(str(list(range(world))))
        sequences.append(number)
        phases = [s[i][0] for s in steps]
        if i > 0:  # the first one initializes
            assert phases[slow][phase] > delay and phases[slow].get("comm", 0) < delay / 2, phases
            assert all(p[phase] < delay / 2 and p["comm"] > delay * 0.8 for r, p in enumerate(phases) if r != slow), phases
    assert sequences == sorted(set(sequences))


def test_waits_are_taken_out_of_phases():
    assert _loop.without([(0, 10), (5, 20)], [(2, 4), (15, 30)]) == [(0, 2), (4, 15)]
    assert _loop.without([(0, 10)], [(-5, 20)]) == []
    assert _loop.merged([(5, 6), (0, 2), (1, 3), (9, 9)]) == [(0, 3), (5, 6)]


WAYS = """
import contextlib, json, time
import torch, torch.distributed as dist
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint
import otelgpu

torch.set_num_threads(1)
out, provider = InMemorySpanExporter(), TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(out))
trace.set_tracer_provider(provider)
dist.init_process_group("gloo")
rank, data = dist.get_rank(), torch.randn(4, 64)

class Delay(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()
    @staticmethod
    def backward(ctx, g):
        if rank == 1:
            time.sleep(0.1)
        return g

class Net(torch.nn.Module):
    def __init__(self, checkpointed=False):
        super().__init__()
        self.a, self.b, self.spare = torch.nn.Linear(64, 64), torch.nn.Linear(64, 8), torch.nn.Linear(4, 4)
        self.checkpointed = checkpointed
    def inner(self, x):
        return Delay.apply(self.a(x))
    def forward(self, x):
        if self.checkpointed:
            x = checkpoint(self.inner, x.requires_grad_(), use_reentrant=True)
        else:
            x = self.inner(x)
        return {"logits": self.b(x)}

def reduce(group, bucket):
    work = dist.all_reduce(bucket.buffer().div_(2), group=group, async_op=True)
    return work.get_future().then(lambda future: future.value()[0])

def train(name, model, steps=6, accumulate=1):
    for step in otelgpu.loop(name, total_steps=steps):
        last = step.index % accumulate == 0
        with contextlib.nullcontext() if last else model.no_sync():
            with step.phase("forward"):
                loss = model(data)["logits"].square().mean()
            with step.phase("backward"):
                loss.backward()

def ddp(net, **kw):
    return DistributedDataParallel(net, find_unused_parameters=True, **kw)

before = ddp(Net())
otelgpu.watch_collectives(before)
train("wrapped before", before)
train("wrapped after", ddp(Net()))
hooked = ddp(Net())
hooked.register_comm_hook(dist.group.WORLD, reduce)
train("own hook", hooked)
train("buckets", ddp(Net(), bucket_cap_mb=0.001))
train("views", ddp(Net(), gradient_as_bucket_view=True))
used = Net(checkpointed=True)
del used.spare
train("checkpoint", DistributedDataParallel(used))
train("accumulation", ddp(Net()), 8, accumulate=4)
provider.shutdown()
spans = out.get_finished_spans()
names = {s.context.span_id: (s.name, s.attributes["gpu.step.index"]) for s in spans if "gpu.step.index" in s.attributes}
steps = {}
for s in spans:
    if s.context.span_id in names:
        name, index = names[s.context.span_id]
        prefix = "gpu.step.phase.duration."
        steps.setdefault(name, []).append([{k[len(prefix):]: v for k, v in s.attributes.items() if k.startswith(prefix)}, []])
for s in spans:
    if s.attributes.get("gpu.operation.type") == "collective":
        name, index = names[s.parent.span_id]
        steps[name][index - 1][1].append(s.attributes["gpu.collective.sequence"])
ranks = [None, None]
dist.all_gather_object(ranks, [steps, otelgpu.stats()])
if rank == 0:
    print("RESULT " + json.dumps(ranks), flush=True)
dist.barrier()
dist.destroy_process_group()
"""


def test_waits_of_ddp_in_every_way_of_using_it(tmp_path):
    pytest.importorskip("torch.distributed.run", reason="PyTorch is not installed")
    program = tmp_path / "train.py"
    program.write_text(WAYS)
    out = subprocess.run([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
                          str(program)], capture_output=True, text=True, timeout=300)
    assert out.returncode == 0, out.stderr[-3000:]
    line = [x for x in out.stdout.split("\n") if x.startswith("RESULT ")][-1]
    (punctual, counts), (late, _) = json.loads(line.removeprefix("RESULT "))
    assert counts.get("error", 0) == 0, out.stderr[-3000:]
    assert set(punctual) == {"wrapped before", "wrapped after", "own hook", "buckets", "views", "checkpoint", "accumulation"}
    for name, steps in punctual.items():
        every = 4 if name == "accumulation" else 1
        for i, (_, met) in enumerate(steps):
            assert met == late[name][i][1], (name, i)
            assert len(met) == (1 if (i + 1) % every == 0 else 0), (name, i)
        assert all(x["backward"] > 0.1 for x, _ in late[name])
        # A busy machine sometimes delays the punctual rank, too.
        assert any(x.get("comm", 0) > 0.05 * every > x["backward"] for x, _ in steps[1:]), (name, steps)
        assert any(x.get("comm", 0) < 0.05 for x, met in late[name][1:] if met), (name, late[name])
