# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
"""Waiting for other ranks, so that the slow rank of a job is found.

In synchronous training the fast ranks wait in collectives for the slow one, inside backward (DDP), forward (FSDP, tensor
parallelism) or wherever the collective is: all ranks' phases look alike. What a rank waits between its arrival at a
collective and the collective's end is taken out of its phases and becomes the phase "comm".
"""

from __future__ import annotations

import functools
import threading
from typing import Any, Callable, Optional

from ._loop import Step
from ._runtime import runtime
from ._section import current_step

_FUNCTIONS = ("all_reduce", "all_gather", "all_gather_into_tensor", "all_to_all", "all_to_all_single", "barrier",
              "broadcast", "gather", "recv", "reduce", "reduce_scatter", "reduce_scatter_tensor", "scatter", "send",
              "_broadcast_coalesced")
_patched = False
_lock = threading.Lock()


def watch_collectives(model: Any = None) -> Any:
    """Records how long each step of loop() waits for other ranks, in all collectives of torch.distributed. Call it once,
    after init_process_group(); give it the model that DistributedDataParallel wraps around yours, whose all-reduces are
    hidden otherwise. It returns the model.

        model = otelgpu.watch_collectives(DistributedDataParallel(model))
    """
    try:
        import torch.distributed as dist

        if not dist.is_available():
            return model
        _patch(dist)
        register = getattr(model, "register_comm_hook", None)
        if register is not None and hasattr(model, "reducer"):
            register(_Buckets(model.process_group), _hook)
    except Exception as e:
        runtime().trouble("watching collectives", repr(e))
    return model


def _step() -> Optional[Step]:
    step = current_step.get()
    if step is None:
        step = runtime().open_step  # the autograd engine's threads have contexts of their own
    return step if step is not None and step._runtime is not None else None


def _timed(f: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(f)
    def around(*args: Any, **kwargs: Any) -> Any:
        step = None if _compiling() else _step()
        if step is None or kwargs.get("async_op"):
            return f(*args, **kwargs)
        start = step.wait_mark()
        try:
            return f(*args, **kwargs)
        finally:
            step.waited(start, step.wait_mark())

    setattr(around, "_otelgpu", True)
    return around


def _compiling() -> bool:
    import torch

    compiler = getattr(torch, "compiler", None)
    return bool(compiler is not None and compiler.is_compiling())


def _patch(dist: Any) -> None:
    global _patched
    with _lock:
        if _patched:
            return
        _patched = True
        where = [dist, dist.distributed_c10d]
        for name in _FUNCTIONS:
            f = getattr(dist, name, None)
            if f is None or getattr(f, "_otelgpu", False):
                continue
            timed = _timed(f)
            for module in where:
                if getattr(module, name, None) is f:
                    setattr(module, name, timed)
        dist.Work.wait = _timed(dist.Work.wait)
        import torch.distributed._functional_collectives as functional

        functional.wait_tensor = _timed(functional.wait_tensor)  # type: ignore[assignment]


class _Buckets:
    """State of DDP's communication hook: the all-reduces of one backward pass."""

    def __init__(self, group: Any) -> None:
        self.group = group


def _hook(state: _Buckets, bucket: Any) -> Any:
    """DDP's own averaging all-reduce. The rank arrives when its last bucket is ready; it waits until that is reduced, for
    the reductions of a group end in order."""
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

    step = _step() if bucket.is_last() else None
    start = None
    try:
        start = step.wait_mark() if step is not None else None
    except Exception as e:
        runtime().trouble("recording the arrival at an all-reduce", repr(e))
    reduced = allreduce_hook(state.group, bucket)
    if step is None or start is None:
        return reduced

    def done(future: Any) -> Any:
        try:
            step.waited(start, step.wait_mark())
        except Exception as e:
            runtime().trouble("recording the end of an all-reduce", repr(e))
        return future.value()

    return reduced.then(done)


_hook.__annotations__.clear()  # torch compares annotations with its own classes, which are not imported here
