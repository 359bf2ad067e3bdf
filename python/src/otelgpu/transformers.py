# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
"""Steps of the Trainer of Hugging Face Transformers.

    from otelgpu.transformers import GPUSteps

    trainer = Trainer(model, args, train_dataset=data, callbacks=[GPUSteps()])
"""

from __future__ import annotations

from typing import Any, List, Optional

from transformers import TrainerCallback

from ._collectives import watch_collectives
from ._loop import Schedule
from ._turns import Turns

__all__ = ["GPUSteps"]


class GPUSteps(TrainerCallback):  # type: ignore[misc, unused-ignore]
    """Creates a span for each optimizer step, with the phases data, forward, backward and optimizer. Evaluation and
    checkpoints are not part of a step."""

    def __init__(self, name: str = "train", item_type: Optional[str] = None, schedule: Schedule = Schedule()) -> None:
        self._turns = Turns(name, item_type, schedule)
        self._hooks: List[Any] = []
        watch_collectives()  # before the trainer wraps the model

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        if model is not None:
            self._hooks = [model.register_forward_pre_hook(self._forward), model.register_forward_hook(self._backward)]
        self._turns.begin(state.global_step + 1)

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._turns.step is not None and state.epoch is not None:
            self._turns.step.epoch = int(state.epoch)
        self._turns.phase(None)

    def _forward(self, module: Any, inputs: Any) -> None:
        if module.training and self._turns.step is not None:
            self._turns.phase("forward")

    def _backward(self, module: Any, inputs: Any, output: Any) -> None:
        if module.training and self._turns.step is not None:
            self._turns.phase("backward")

    def on_substep_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._turns.phase(None)

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._turns.phase("optimizer")

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._turns.phase(None)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._turns.end()
        self._turns.begin(state.global_step + 1)

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._turns.again()

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._turns.again()

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._turns.cancel()
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
