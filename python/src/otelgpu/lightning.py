# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
# pyright: basic, reportMissingImports=false
"""Steps of Lightning's Trainer.

    from otelgpu.lightning import GPUSteps

    trainer = Trainer(callbacks=[GPUSteps()])
"""

from __future__ import annotations

from typing import Any, Optional

try:
    from lightning.pytorch import Callback
except ImportError:
    from pytorch_lightning import Callback  # type: ignore[assignment, no-redef, unused-ignore, import-not-found]

from ._collectives import watch_collectives
from ._settings import Schedule
from ._turns import Turns

__all__ = ["GPUSteps"]


class GPUSteps(Callback):  # type: ignore[misc, unused-ignore]
    """Creates a span for each training batch, with the phases data, forward, backward and optimizer, and its items: samples,
    or with item_type="token" the elements of "input_ids". A module's flops_per_batch, as for Lightning's own throughput
    monitor, is the step's model_flops. Records the waits for other ranks. Validation is not part of a step."""

    def __init__(self, name: str = "train", item_type: Optional[str] = None, schedule: Optional[Schedule] = None) -> None:
        self._turns = Turns(name, item_type, schedule)

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        watch_collectives(getattr(trainer.strategy, "model", None))

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        self._turns.begin(_batches(trainer) + 1)

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        if self._turns.step is not None:
            self._turns.step.epoch = trainer.current_epoch
            self._turns.take(batch)
            self._turns.step.model_flops = getattr(pl_module, "flops_per_batch", None)
        self._turns.phase("forward")

    def on_before_backward(self, trainer: Any, pl_module: Any, loss: Any) -> None:
        self._turns.phase("backward")

    def on_after_backward(self, trainer: Any, pl_module: Any) -> None:
        self._turns.phase(None)

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        self._turns.phase("optimizer")

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self._turns.end()
        self._turns.begin(_batches(trainer) + 1)

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        self._turns.again()

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        self._turns.cancel()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self._turns.cancel()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self._turns.end(exception)


def _batches(trainer: Any) -> int:
    """The number of training batches so far."""
    return int(trainer.fit_loop.epoch_loop.total_batch_idx) + 1
