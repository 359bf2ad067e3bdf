# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
"""Records independently of otelgpu when each rank of a real torch.distributed job arrives at each collective.

install() wraps the collectives below otelgpu's own wrappers, so call it before otelgpu.watch_collectives(). A rank
waits from its arrival, or from the call that waits, to the arrival of the last rank. The rest of a step is its own
time.

With virtual=True, each rank's clock advances only in work() and while it waits in a collective, so own times are
exact on any machine. Ranks then exchange their arrivals through the job's store."""

import functools
import inspect
import threading
import time as real
import types

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional

from otelgpu import _clock, _collectives, _loop, _section

_lock = threading.Lock()
_virtual = False
_original = None
_now = 0
_step = 0
_counts = {}
_arrivals = {}  # by the key of a collective
_waits = []     # (step, key, start)
_bounds = []    # starts of steps
_pending = {}   # collectives by the identity of their work, which is kept alive
_newest = threading.local()


def now():
    return _now if _virtual else real.monotonic_ns()


def work(seconds):
    _advance(_now + round(seconds * 1e9))


def step():
    """Begins a step."""
    global _step
    _step += 1
    _bounds.append(now())


def own_times():
    """Returns own times of all ranks in seconds, by rank and step. All ranks must call it after the last step."""
    step()
    everywhere = [None] * dist.get_world_size()
    dist.all_gather_object(everywhere, (_arrivals, _waits, _bounds))
    last = {}
    for arrivals, _, _ in everywhere:
        for key, at in arrivals.items():
            last[key] = max(last.get(key, 0), at)
    out = []
    for _, waits, bounds in everywhere:
        own = [b - a for a, b in zip(bounds, bounds[1:])]
        until = {}
        for index, key, start in waits:
            if 0 < index <= len(own):
                begin = max(start, until.get(index, 0))
                own[index - 1] -= max(0, last[key] - begin)
                until[index] = max(begin, last[key])
        out.append([x / 1e9 for x in own])
    return out


def _advance(to):
    global _now
    with _lock:
        _now = max(_now, to)


def _arrive(group, name, peer=None):
    """Records this rank's arrival and returns the key with which to wait for the end."""
    me, at = dist.get_rank(), now()
    ranks = dist.get_process_group_ranks(group)
    key = group.group_name
    if peer is not None:  # the receiver waits for the sender
        source, target = (me, ranks[peer]) if name == "send" else (ranks[peer], me)
        key, ranks = f"{key}/{source}-{target}", [source]
    with _lock:
        _counts[key] = count = _counts.get(key, 0) + 1
    key = f"{key}/{count}"
    if me in ranks:
        _arrivals[key] = at
        if _virtual:
            store = dist.distributed_c10d._get_default_store()
            store.set(f"arrival/{key}/{me}", str(at))
    return key, ranks


def _ended(collective, start):
    key, ranks = collective
    _waits.append((_step, key, start))
    if _virtual:
        store = dist.distributed_c10d._get_default_store()
        _advance(max(int(store.get(f"arrival/{key}/{r}")) for r in ranks))


def _method(f, name):
    def around(group, *args, **kwargs):
        collective = _arrive(group, name, args[1] if name in ("send", "recv") else None)
        out = f(group, *args, **kwargs)
        if out is not None:
            _pending[id(out)] = out, collective
        return out
    return around


def _wait(f):
    def around(work, *args, **kwargs):
        start = now()
        out = f(work, *args, **kwargs)
        _, collective = _pending.pop(id(work), (None, None))
        if collective is not None:
            _ended(collective, start)
        return out
    return around


def watch(model):
    """Records the all-reduces of a DDP model, which end in an autograd callback that runs after this one; returns the
    model."""
    allreduce, get_future = _original
    queue = torch.autograd.Variable._execution_engine.queue_callback

    def reduce(group, bucket):
        tensor = bucket.buffer().div_(group.size())
        queue(functools.partial(_ended, _arrive(group, "allreduce"), now()))
        return get_future(allreduce(group, [tensor])).then(lambda future: future.value()[0])

    model.register_comm_hook(model.process_group, reduce)
    return model


def _functional(f, position):
    def around(*args, **kwargs):
        group = args[position] if len(args) > position else kwargs["group"]
        _newest.collective = _arrive(_collectives._resolve(group), f.__name__)
        return f(*args, **kwargs)
    around.__signature__ = inspect.signature(f)
    return around


def _wait_tensor(f):
    def around(*args, **kwargs):
        start = now()
        out = f(*args, **kwargs)
        collective, _newest.collective = getattr(_newest, "collective", None), None
        if collective is not None:
            _ended(collective, start)
        return out
    return around


def install(virtual):
    global _virtual, _original
    _virtual, _original = virtual, (dist.ProcessGroup.allreduce, dist.Work.get_future)
    if virtual:
        start = [real.monotonic_ns()]
        dist.broadcast_object_list(start)
        _advance(start[0])
        offset = _clock.wall_offset()
        _loop.time = _section.time = types.SimpleNamespace(monotonic_ns=now, time_ns=lambda: now() + offset)
    for name, collective in _collectives._METHODS.items():
        if hasattr(dist.ProcessGroup, name):
            setattr(dist.ProcessGroup, name, _method(getattr(dist.ProcessGroup, name), collective))
    dist.Work.wait = _wait(dist.Work.wait)
    for name in _collectives._FUNCTIONAL:
        f = getattr(functional, name, None)
        if f is not None:
            parameters = list(inspect.signature(f).parameters)
            if "group" in parameters:
                setattr(functional, name, _functional(f, parameters.index("group")))
    functional.wait_tensor = _wait_tensor(functional.wait_tensor)
