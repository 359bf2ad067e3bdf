# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
"""Fully sharded data parallel training on several ranks, with detection of the straggler.

    torchrun --nproc-per-node 2 fsdp.py [--steps 50] [--slow-rank 1]

torchtitan and other loops on FSDP2 or DDP are instrumented alike: loop(), phases, and watch_collectives() around the model.
"""

import argparse
import time

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import otelgpu
from setup import start


def main() -> None:
    args = argparse.ArgumentParser()
    args.add_argument("--steps", type=int, default=50)
    args.add_argument("--slow-rank", type=int, default=-1, help="a rank whose data takes 20 ms longer")
    options = args.parse_args()

    start("train")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    dist.init_process_group("nccl" if device == "cuda" else "gloo")
    if device == "cuda":
        torch.cuda.set_device(dist.get_rank() % torch.cuda.device_count())
    model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10)).to(device)
    model = otelgpu.watch_collectives(fully_shard(model, mesh=init_device_mesh(device, (dist.get_world_size(),))))
    optimizer = torch.optim.AdamW(model.parameters())

    def batches():
        for _ in range(options.steps):
            if dist.get_rank() == options.slow_rank:
                time.sleep(0.02)
            yield torch.randn(32, 256, device=device), torch.randint(10, (32,), device=device)

    for step, (x, y) in otelgpu.loop("train", batches(), item_type="sample"):
        with step.phase("forward"):
            loss = torch.nn.functional.cross_entropy(model(x), y)
        with step.phase("backward"):
            loss.backward()
        with step.phase("optimizer"):
            optimizer.step()
            optimizer.zero_grad()
        step.items = len(x)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
