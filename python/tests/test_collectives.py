# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
"""Ranks of a real torch.distributed job on the CPU: each one's phases are its own work."""

import json
import subprocess
import sys

import pytest

from otelgpu import _loop

PROGRAM = """
import json, os, sys, time
import torch, torch.distributed as dist
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
import otelgpu

kind, slow, phase, delay = sys.argv[1], [int(r) for r in sys.argv[2].split(",")], sys.argv[3], float(sys.argv[4])
torch.set_num_threads(1)
out, provider = InMemorySpanExporter(), TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(out))
trace.set_tracer_provider(provider)
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)

class Delay(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()
    @staticmethod
    def backward(ctx, g):
        if rank in slow and phase == "backward":
            time.sleep(delay)
        return g

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Linear(64, 64), torch.nn.Linear(64, 8)
    def forward(self, x):
        return self.b(Delay.apply(self.a(x)))

model = Net()
if kind == "ddp":
    model = otelgpu.watch_collectives(torch.nn.parallel.DistributedDataParallel(model))
else:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    model = otelgpu.watch_collectives(fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),))))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
x = torch.randn(4, 64)

def late(name):
    if rank in slow and phase == name:
        time.sleep(delay)

for step in otelgpu.loop("train", total_steps=25):
    with step.phase("forward"):
        late("forward")
        loss = model(x).square().mean()
    with step.phase("backward"):
        loss.backward()
    with step.phase("optimizer"):
        late("optimizer")
        optimizer.step()
        optimizer.zero_grad()
provider.shutdown()
prefix = "gpu.step.phase.duration."
steps = [{k[len(prefix):]: v for k, v in s.attributes.items() if k.startswith(prefix)}
         for s in out.get_finished_spans() if s.name == "train"]
meetings = [[s.parent.span_id, s.attributes["gpu.collective.group.id"], s.attributes["gpu.collective.sequence"],
             s.attributes["gpu.collective.name"]]
            for s in out.get_finished_spans() if s.attributes.get("gpu.operation.type") == "collective"]
indices = {s.context.span_id: s.attributes["gpu.step.index"] for s in out.get_finished_spans() if s.name == "train"}
steps = [{"phases": p, "meetings": [m[1:] for m in meetings if indices[m[0]] == i + 1]} for i, p in enumerate(steps)]
all_ranks = [None] * dist.get_world_size()
dist.all_gather_object(all_ranks, steps)
if rank == 0:
    print(json.dumps(all_ranks), flush=True)
dist.destroy_process_group()
"""


def ranks(tmp_path, kind, world, slow, phase, delay):
    pytest.importorskip("torch.distributed.run", reason="PyTorch is not installed")
    program = tmp_path / "train.py"
    program.write_text(PROGRAM)
    out = subprocess.run([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(world),
                          str(program), kind, slow, phase, str(delay)], capture_output=True, text=True, timeout=300)
    assert out.returncode == 0, out.stderr[-3000:]
    return json.loads([line for line in out.stdout.split("\n") if line.startswith("[[")][-1])


@pytest.mark.parametrize("kind,world,phase", [("ddp", 2, "backward"), ("ddp", 2, "forward"), ("fsdp", 2, "backward")])
def test_the_slow_rank_has_the_delay_and_the_others_wait(tmp_path, kind, world, phase):
    delay, slow = 0.1, world - 1
    steps = ranks(tmp_path, kind, world, str(slow), phase, delay)
    assert [len(s) for s in steps] == [25] * world
    everywhere = "[" + ", ".join(map(str, range(world))) + "]"
    sequences = []
    for i in range(25):
        met = steps[0][i]["meetings"]
        assert all(s[i]["meetings"] == met for s in steps), "the ranks end a step at the same collectives"
        assert len(met) == 1 and met[0][0].endswith(everywhere)
        sequences.append(met[0][1])
    assert sequences == sorted(set(sequences))
    steps = [[x["phases"] for x in s] for s in steps]
    right = 0
    for i in range(5, 25):  # the first ones set up
        mine = steps[slow][i]
        others = [s[i] for r, s in enumerate(steps) if r != slow]
        own = [max((v, k) for k, v in s[i].items() if k != "comm") for s in steps]
        right += own[slow][1] == phase and all(mine[phase] - o[phase] > delay / 2 for o in others) \
            and all(o["comm"] > mine.get("comm", 0) for o in others)
    assert right >= 19, steps


def test_waits_are_taken_out_of_phases():
    assert _loop.without([(0, 10), (5, 20)], [(2, 4), (15, 30)]) == [(0, 2), (4, 15)]
    assert _loop.without([(0, 10)], [(-5, 20)]) == []
    assert _loop.merged([(5, 6), (0, 2), (1, 3), (9, 9)]) == [(0, 3), (5, 6)]
