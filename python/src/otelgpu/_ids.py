# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
"""IDs of spans that are unique whatever the program seeds, and the search for spans of the program whose IDs are not.

The SDK draws IDs from Python's global `random`. Trainers seed it alike on all ranks and in each run, so that all of them
draw the same trace and span IDs."""

from __future__ import annotations

import collections
import hashlib
import os
import random
import stat
import tempfile
import time
from typing import Any, Deque, List, Set

# Seeded by the operating system, now and in each forked child. A program cannot reach it by random.seed(). To ask the
# operating system for each ID takes ten times as long.
_own = random.Random()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_own.seed)


class Ids:
    """Draws IDs from its own generator."""

    def generate_span_id(self) -> int:
        """Returns a random ID of 64 bits that is not 0."""
        return _own.getrandbits(64) or self.generate_span_id()

    def generate_trace_id(self) -> int:
        """Returns a random ID of 128 bits that is not 0."""
        return _own.getrandbits(128) or self.generate_trace_id()

    def is_trace_id_random(self) -> bool:
        return True


IDS = Ids()


def seeded(source: Any) -> bool:
    """Reports whether IDs of a provider or tracer depend on the program's seed. Generators other than the SDK's default
    were chosen by the program, which relies on them."""
    kind: Any = getattr(source, "id_generator", None).__class__
    return bool(kind.__name__ == "RandomIdGenerator" and kind.__module__.startswith("opentelemetry.sdk"))


def replace(tracer: Any) -> None:
    """Gives a tracer of the SDK unique IDs."""
    if seeded(tracer):
        tracer.id_generator = IDS


COMPARED = 32        # own spans of the program whose IDs are compared
STARTED = 10 * 10**9  # ns between the starts of a host's ranks, at most
FORGOTTEN = 86_400 * 10**9  # ns after which files of other jobs are removed

_born = time.time_ns()


def _reborn() -> None:
    global _born
    _born = time.time_ns()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reborn)


class Comparison:
    """Compares the IDs of the program's own spans, as far as they have sections or steps below them, with other ranks on
    this host. `random` does not reveal whether it was seeded, and ranks may seed it differently, so that only the IDs
    themselves show that ranks share them. Each rank writes its first ones to a small file in the folder for temporary
    files, and one rank of the host reports equal ones."""

    def __init__(self, job: str, rank: int, scope: str) -> None:
        self._job = hashlib.sha256(job.encode()).hexdigest()[:16]
        self._rank, self._scope = rank, scope
        self._new: Deque[int] = collections.deque()
        self._own: Set[int] = set()
        self.done = False

    def observe(self, span: Any) -> None:
        """Takes a parent, which is of interest if the program created it in this process: a rank may share a parent that
        it was given, by its launcher or before it was forked."""
        scope = getattr(span, "instrumentation_scope", None)
        if self.done:
            return
        if scope is not None and scope.name != self._scope and (getattr(span, "start_time", 0) or 0) >= _born:
            self._new.append(span.get_span_context().span_id)

    def equal(self) -> bool:
        """Reports, in one rank of the host only, whether another rank has a span with the same ID."""
        found: List[int] = []
        while self._new:
            one = self._new.popleft()
            if one not in self._own and len(self._own) < COMPARED:
                self._own.add(one)
                found.append(one)
        if not self._own or self.done:
            return False
        folder = _folder()
        if folder is None:
            self.done = True
            return False
        path = os.path.join(folder, f"{self._job}-{self._rank}")
        if found:
            with open(path, "ab" if len(self._own) > len(found) else "wb") as f:
                f.write(b"".join(b"%016x\n" % one for one in found))
        shared = False
        for other in os.scandir(folder):
            changed = other.stat(follow_symlinks=False).st_mtime_ns
            if changed < _born - FORGOTTEN:
                os.unlink(other.path)
            elif other.name.startswith(self._job) and other.path != path and changed >= _born - STARTED:
                with open(other.path, "rb") as f:
                    lines = f.read(17 * COMPARED).split(b"\n")
                shared = shared or any(len(line) == 16 and int(line, 16) in self._own for line in lines)
        self.done = shared or len(self._own) >= COMPARED
        return shared and _first(os.path.join(folder, f"said-{self._job}"))


def _folder() -> Any:
    """Returns a folder that only this user can write; None: there is none."""
    user = os.getuid() if hasattr(os, "getuid") else 0
    path = os.path.join(tempfile.gettempdir(), f"otelgpu-ids-{user}")
    os.makedirs(path, mode=0o700, exist_ok=True)
    found = os.lstat(path)
    own = not hasattr(os, "getuid") or found.st_uid == user and not found.st_mode & 0o022
    return path if own and stat.S_ISDIR(found.st_mode) else None


def _first(path: str) -> bool:
    """Reports whether this process is the first of the run to create the file."""
    try:
        if os.lstat(path).st_mtime_ns < _born - STARTED:
            os.unlink(path)
    except FileNotFoundError:
        pass
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        return True
    except FileExistsError:
        return False
