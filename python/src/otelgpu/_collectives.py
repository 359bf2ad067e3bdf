# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
# pyright: basic, reportMissingImports=false
"""Records waits for other ranks, so that the straggler of a job is found.

In synchronous training the fast ranks wait in collectives for the slow one, inside backward (DDP), forward (FSDP, tensor
parallelism) or wherever the collective is: all ranks' phases look alike. The time between a rank's arrival at a
collective and the collective's end is subtracted from its phases and becomes the phase "comm".

The last collective of each process group in a step becomes a span with the group's identity and the collective's number
in the group, so that ranks are compared with ranks that run the same collectives. Numbers count all collectives since
watch_collectives(), recorded or not: every rank of a group runs them in the same order.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import threading
import weakref
import zlib
from typing import Any, Callable, Dict, List, Optional, Tuple

from ._loop import Meeting, Step
from ._runtime import _text, runtime
from ._section import current_step

_FUNCTIONS = ("all_gather", "all_gather_coalesced", "all_gather_into_tensor", "all_gather_single", "all_reduce",
              "all_reduce_coalesced", "all_to_all", "all_to_all_single", "barrier", "broadcast", "gather",
              "monitored_barrier", "recv", "reduce", "reduce_scatter", "reduce_scatter_single",
              "reduce_scatter_tensor", "scatter", "send", "_broadcast_coalesced")

# Methods of ProcessGroup by collective. All collectives from Python call them, except the functional ones.
_METHODS = {
    "_allgather_base": "all_gather", "_reduce_scatter_base": "reduce_scatter", "all_gather_single": "all_gather",
    "all_gather_single_coalesced": "all_gather", "all_to_all_single": "all_to_all", "allgather": "all_gather",
    "allgather_coalesced": "all_gather", "allgather_into_tensor_coalesced": "all_gather", "allreduce": "all_reduce",
    "allreduce_coalesced": "all_reduce", "alltoall": "all_to_all", "alltoall_base": "all_to_all", "barrier": "barrier",
    "broadcast": "broadcast", "gather": "gather", "gather_single": "gather", "monitored_barrier": "barrier",
    "recv": "recv", "recv_anysource": "recv", "reduce": "reduce", "reduce_scatter": "reduce_scatter",
    "reduce_scatter_single": "reduce_scatter", "reduce_scatter_single_coalesced": "reduce_scatter",
    "reduce_scatter_tensor_coalesced": "reduce_scatter", "scatter": "scatter", "send": "send",
}
_FUNCTIONAL = {
    "all_gather_single": "all_gather", "all_gather_single_autograd": "all_gather", "all_gather_tensor": "all_gather",
    "all_gather_tensor_autograd": "all_gather", "all_reduce": "all_reduce", "all_to_all_single": "all_to_all",
    "all_to_all_single_autograd": "all_to_all", "broadcast": "broadcast", "reduce_scatter_single": "reduce_scatter",
    "reduce_scatter_single_autograd": "reduce_scatter", "reduce_scatter_tensor": "reduce_scatter",
    "reduce_scatter_tensor_autograd": "reduce_scatter",
}
_POINT_TO_POINT = ("recv", "send")
MAX_OPEN = 1024    # asynchronous collectives that have not ended
MAX_GROUPS = 4096  # process groups whose collectives are numbered
MAX_LISTED = 64    # ranks that a group's identity lists
WATCHED = 8        # parameters of a model whose gradients signal a backward pass, at its start and elsewhere

_patched = False
_lock = threading.Lock()
_thread = threading.local()


class _Group:
    """Properties of a process group, and the number of its collectives so far."""

    __slots__ = ("id", "name", "size", "ranks", "next")

    def __init__(self, group: Any, ranks: List[int]) -> None:
        unique = str(group.group_name)
        listed = ", ".join(map(str, ranks))
        if len(ranks) > MAX_LISTED:
            listed = f"{ranks[0]}, ..., {ranks[-1]}; {zlib.crc32(listed.encode()):08x}"
        self.id = _text(f"{unique} [{listed}]", 1024)
        self.name = _text(getattr(group, "group_desc", "") or unique)
        self.size, self.ranks = len(ranks), ranks
        self.next = itertools.count(1).__next__  # atomic


_groups: Dict[Tuple[str, int], _Group] = {}
_open: Dict[int, Tuple[Step, Meeting]] = {}  # by the identity of their work
_watched: "weakref.WeakSet[Any]" = weakref.WeakSet()  # models


def watch_collectives(model: Any = None) -> Any:
    """Records how long each step of loop() waits for other ranks, in all collectives of torch.distributed. Call it once,
    at the same point in all ranks, before or after the model is wrapped; pass the model if DistributedDataParallel
    has already wrapped it. Returns the model.

        model = otelgpu.watch_collectives(DistributedDataParallel(model))
    """
    try:
        import torch
        import torch.distributed as dist

        if not dist.is_available():
            return model
        _patch(dist)
        if isinstance(model, torch.nn.parallel.DistributedDataParallel):
            _watch(model)
    except Exception as e:
        runtime().trouble("watching collectives", repr(e))
    return model


def _step() -> Optional[Step]:
    step = current_step.get()
    if step is None:
        step = runtime().open_step  # threads of the autograd engine have their own contexts
    return step if step is not None and step._runtime is not None else None


def _timed(f: Callable[..., Any], begins: bool = True) -> Callable[..., Any]:
    """Wraps a function whose time is a wait for other ranks. It begins a collective or ends this thread's newest
    one."""
    @functools.wraps(f)
    def around(*args: Any, **kwargs: Any) -> Any:
        step = None if _compiling() else _step()
        if step is None or kwargs.get("async_op"):
            return f(*args, **kwargs)
        if begins:
            _thread.newest = None
        start = step.wait_mark()
        try:
            return f(*args, **kwargs)
        finally:
            end = step.wait_mark()
            step.waited(start, end)
            meeting = getattr(_thread, "newest", None)
            if meeting is not None and meeting.end is None:
                meeting.end = end

    setattr(around, "_otelgpu", True)
    return around


def _timed_work(wait: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps Work.wait, which ends an asynchronous collective."""
    @functools.wraps(wait)
    def around(work: Any, *args: Any, **kwargs: Any) -> Any:
        step = None if _compiling() else _step()
        known = _open.pop(id(work), None)
        if step is None:
            return wait(work, *args, **kwargs)
        start = step.wait_mark()
        try:
            return wait(work, *args, **kwargs)
        finally:
            end = step.wait_mark()
            step.waited(start, end)
            if known is not None and known[0] is step:
                known[1].end = end

    setattr(around, "_otelgpu", True)
    return around


def _noted(f: Callable[..., Any], name: str, position: int) -> Callable[..., Any]:
    """Wraps a method of ProcessGroup, or a functional collective with its group at that position, to record it."""
    @functools.wraps(f)
    def around(*args: Any, **kwargs: Any) -> Any:
        if _compiling():
            return f(*args, **kwargs)
        noted = None
        try:
            noted = _note(name, args, kwargs, position)
        except Exception as e:
            runtime().trouble("recording a collective", repr(e))
        out = f(*args, **kwargs)
        if noted is not None and position == 0 and out is not None:
            with _lock:
                if len(_open) >= MAX_OPEN:
                    del _open[next(iter(_open))]  # the end of some, such as of DDP's reducer, is not visible here
                _open[id(out)] = noted
        return out

    setattr(around, "_otelgpu", True)
    return around


def _note(name: str, args: Tuple[Any, ...], kwargs: Dict[str, Any], position: int) -> Optional[Tuple[Step, Meeting]]:
    group = args[position] if len(args) > position else kwargs.get("group")
    if position:
        group = _resolve(group)
    known = _known(group)
    if known is None:
        return None
    sequence = None if name in _POINT_TO_POINT else known.next()
    step = _step()
    if step is None:
        return None
    peer = None
    if sequence is None and len(args) > 2 and isinstance(args[2], int) and 0 <= args[2] < known.size:
        peer = known.ranks[args[2]]  # after the group and the tensors; a receive from any rank has none
    meeting = Meeting(name, known.id, known.name, known.size, sequence, peer, step.wait_mark())
    step.met(meeting)
    _thread.newest = meeting
    return step, meeting


def _resolve(group: Any) -> Any:
    """Returns the process group of a functional collective, which also accepts lists of ranks, meshes and names."""
    import torch.distributed as dist
    import torch.distributed._functional_collectives as functional

    c10d: Any = dist.distributed_c10d
    if isinstance(group, dist.ProcessGroup):
        return group
    return c10d._resolve_process_group(functional._resolve_group_name(group))


def _known(group: Any) -> Optional[_Group]:
    key = str(group.group_name), id(group)
    known = _groups.get(key)
    if known is None:
        import torch.distributed as dist

        if len(_groups) >= MAX_GROUPS:
            return None
        known = _groups[key] = _Group(group, list(dist.get_process_group_ranks(group)))
    return known


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
        dist.Work.wait = _timed_work(dist.Work.wait)
        from torch.nn.parallel import DistributedDataParallel

        setattr(DistributedDataParallel, "__init__", _watching(DistributedDataParallel.__init__))
        for name, collective in _METHODS.items():
            method = getattr(dist.ProcessGroup, name, None)
            if method is not None:
                setattr(dist.ProcessGroup, name, _noted(method, collective, 0))
        import torch.distributed._functional_collectives as functional

        for name, collective in _FUNCTIONAL.items():
            f = getattr(functional, name, None)
            if f is None:
                continue
            parameters = list(inspect.signature(f).parameters)
            if "group" in parameters:
                setattr(functional, name, _noted(f, collective, parameters.index("group")))
        for name in ("wait_tensor", "wait_tensors"):
            f = getattr(functional, name, None)
            if f is not None:
                setattr(functional, name, _timed(f, begins=False))


class _Backward:
    """Records how long a DDP model waits for other ranks at the end of each backward pass. DDP waits for its
    all-reduces in a callback of autograd, which it queues when all gradients are ready. A callback queued at one of
    the gradients runs before it, and one that is queued by that one after it. A communication hook would see each
    all-reduce, but autograd would call Python for each bucket, and the program could not set its own hook."""

    def __init__(self, model: Any) -> None:
        import torch

        variable: Any = torch.autograd.Variable
        self._model, self._group = weakref.ref(model), model.process_group
        self._queue = variable._execution_engine.queue_callback
        self._pass: Optional[int] = None  # the newest one
        parameters = [p for p in model.parameters() if p.requires_grad]
        # The first parameters get their gradients last, so one of them is part of the pass in which DDP waits, even if
        # checkpoints nest passes. The others are for models that do not use all parameters.
        few = parameters[:WATCHED] + parameters[WATCHED::max(1, len(parameters) // WATCHED)]
        for parameter in few:
            parameter.register_post_accumulate_grad_hook(self._ready)

    def _ready(self, _: Any) -> None:
        if _compiling():
            return
        try:
            model, task = self._model(), _task()
            if task == self._pass or model is None or not model.require_forward_param_sync:  # as in no_sync()
                return
            self._pass = task
            self._queue(self._computed)
        except Exception as e:
            runtime().trouble("watching a backward pass", repr(e))

    def _computed(self) -> None:
        try:
            known = _known(self._group)
            if known is None:
                return
            sequence = known.next()
            step = _step()
            if step is not None:
                meeting = Meeting("all_reduce", known.id, known.name, known.size, sequence, None, step.wait_mark())
                step.met(meeting)
                self._queue(functools.partial(self._reduced, step, meeting))
        except Exception as e:
            runtime().trouble("recording the arrival at an all-reduce", repr(e))

    def _reduced(self, step: Step, meeting: Meeting) -> None:
        try:
            meeting.end = step.wait_mark()
            step.waited(meeting.start, meeting.end)
        except Exception as e:
            runtime().trouble("recording the end of an all-reduce", repr(e))


def _task() -> int:
    import torch

    return int(torch._C._current_graph_task_id())


def _watch(model: Any) -> None:
    with _lock:
        if model in _watched:
            return
        _watched.add(model)
    _Backward(model)


def _watching(init: Callable[..., None]) -> Callable[..., None]:
    """Wraps the constructor of DistributedDataParallel to watch its models."""
    @functools.wraps(init)
    def around(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        try:
            _watch(self)
        except Exception as e:
            runtime().trouble("watching a model", repr(e))

    return around
