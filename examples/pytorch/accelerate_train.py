# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
"""Training with Accelerate.

    python accelerate_train.py [--steps 50]      # or: accelerate launch accelerate_train.py
"""

import argparse

import torch
from accelerate import Accelerator

import otelgpu
from setup import start


def main() -> None:
    args = argparse.ArgumentParser()
    args.add_argument("--steps", type=int, default=50)
    options = args.parse_args()

    start("train")
    accelerator = Accelerator()
    model = torch.nn.Linear(64, 1)
    data = torch.utils.data.DataLoader(torch.randn(16 * options.steps, 64), batch_size=16)
    model, optimizer, data = accelerator.prepare(model, torch.optim.AdamW(model.parameters()), data)
    model = otelgpu.watch_collectives(model)
    for step, batch in otelgpu.loop("train", data, item_type="sample"):
        with step.phase("forward"):
            loss = model(batch).square().mean()
        with step.phase("backward"):
            accelerator.backward(loss)
        with step.phase("optimizer"):
            optimizer.step()
            optimizer.zero_grad()
        step.items = len(batch)


if __name__ == "__main__":
    main()
