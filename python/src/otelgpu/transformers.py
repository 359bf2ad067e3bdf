# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
# pyright: basic, reportMissingImports=false
"""Steps of the Trainer of Hugging Face Transformers.

    from otelgpu.transformers import GPUSteps

    trainer = Trainer(model, args, train_dataset=data, callbacks=[GPUSteps()])
"""

from __future__ import annotations

from typing import Any, List, Optional

from transformers import TrainerCallback

from ._collectives import watch_collectives
from ._runtime import runtime
from ._settings import Schedule
from ._turns import Turns

__all__ = ["GPUSteps"]


class GPUSteps(TrainerCallback):  # type: ignore[misc, unused-ignore]
    """Creates a span for each optimizer step, with the phases data, forward, backward and optimizer, its items (samples,
    or with item_type="token" the tokens, padding included) and, for language models, the model's FLOPs: six for each
    parameter outside of the embeddings and each token, as the trainer counts them. Evaluation and checkpoints are not part
    of a step."""

    def __init__(self, name: str = "train", item_type: Optional[str] = None, schedule: Optional[Schedule] = None) -> None:
        self._turns = Turns(name, item_type, schedule)
        self._hooks: List[Any] = []
        self._names: List[str] = ["input_ids"]
        self._per_token = 0.0
        self._precision: Optional[str] = None
        self._devices = 1
        watch_collectives()  # before the trainer wraps the model

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        if model is not None:
            self._hooks = [model.register_forward_pre_hook(self._forward, with_kwargs=True),
                           model.register_forward_hook(self._backward)]
            try:
                self._learn(args, model)
            except Exception as e:
                runtime().trouble("the FLOPs of a model", repr(e))
        self._turns.begin(state.global_step + 1)

    def _learn(self, args: Any, model: Any) -> None:
        self._names = [getattr(model, "main_input_name", "input_ids")]
        count = getattr(model, "num_parameters", None)
        if count is not None:
            self._per_token = 6.0 * count(exclude_embeddings=True)
            self._precision = "bf16" if args.bf16 else "fp16" if args.fp16 else _precision(model)
        self._devices = max(1, args.n_gpu)

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._turns.step is not None and state.epoch is not None:
            self._turns.step.epoch = int(state.epoch)
        self._turns.phase(None)

    def _forward(self, module: Any, inputs: Any, named: Any) -> None:
        step = self._turns.step
        if module.training and step is not None:
            self._turns.phase("forward")
            tokens = self._turns.take(named or inputs, self._names)
            if tokens and self._per_token:
                step.model_flops = (step.model_flops or 0.0) + self._per_token * tokens
                step.precision = self._precision
                step.devices = self._devices if self._devices > 1 else None

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


def _precision(model: Any) -> Optional[str]:
    """Returns the precision of a model's products without autocast."""
    import torch

    kinds = {torch.bfloat16: "bf16", torch.float16: "fp16", torch.float64: "fp64"}
    if model.dtype != torch.float32:
        return kinds.get(model.dtype)
    return "fp32" if torch.get_float32_matmul_precision() == "highest" else "tf32"
