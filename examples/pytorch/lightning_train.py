# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
"""Training with Lightning.

    python lightning_train.py [--steps 50]
"""

import argparse

import torch
from lightning.pytorch import LightningModule, Trainer

from otelgpu.lightning import GPUSteps
from setup import start


class Model(LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(64, 1)

    def training_step(self, batch, index):
        return self.layer(batch).square().mean()

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters())


def main() -> None:
    args = argparse.ArgumentParser()
    args.add_argument("--steps", type=int, default=50)
    options = args.parse_args()

    start("train")
    data = torch.utils.data.DataLoader(torch.randn(16 * options.steps, 64), batch_size=16)
    trainer = Trainer(max_epochs=1, logger=False, enable_checkpointing=False, enable_progress_bar=False,
                      enable_model_summary=False, callbacks=[GPUSteps(item_type="sample")])
    trainer.fit(Model(), data)


if __name__ == "__main__":
    main()
