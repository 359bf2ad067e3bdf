# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
"""Training with the Trainer of Hugging Face Transformers.

    python transformers_train.py [--steps 50]
"""

import argparse
import tempfile

import torch
from transformers import Trainer, TrainingArguments

from otelgpu.transformers import GPUSteps
from setup import start


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(64, 1)

    def forward(self, x, labels=None):
        out = self.layer(x)
        return {"loss": (out - labels).square().mean(), "logits": out}


def main() -> None:
    args = argparse.ArgumentParser()
    args.add_argument("--steps", type=int, default=50)
    options = args.parse_args()

    start("train")
    data = [{"x": torch.randn(64), "labels": torch.zeros(1)} for _ in range(4 * options.steps)]
    with tempfile.TemporaryDirectory() as folder:
        settings = TrainingArguments(output_dir=folder, per_device_train_batch_size=4, max_steps=options.steps,
                                     save_strategy="no", report_to=[], disable_tqdm=True)
        Trainer(Model(), settings, train_dataset=data, callbacks=[GPUSteps(item_type="sample")]).train()


if __name__ == "__main__":
    main()
