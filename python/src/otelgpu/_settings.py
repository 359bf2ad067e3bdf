# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
"""What a process records."""

from __future__ import annotations

import os
from typing import Callable, NamedTuple, Optional

from ._names import VERBOSITIES
from ._nvtx import Ranges


class Schedule(NamedTuple):
    """Selects the steps to record; the others are only counted. As in torch.profiler.schedule, after skip_first steps
    follow cycles of wait, warmup and active steps; repeat is the number of cycles, 0 means unlimited. every is the
    length of a cycle, instead of wait: Schedule(every=10) records steps 10, 20, 30 and so on. Schedule() records
    every step."""

    skip_first: int = 0
    wait: int = 0
    warmup: int = 0
    active: int = 0
    repeat: int = 0
    every: int = 0

    def records(self, index: int) -> bool:
        """Reports whether the step with that index, from 1, is recorded."""
        active = max(self.active, 1) if self.every > 0 else max(self.active, 0)
        warmup = max(self.warmup, 0)
        wait = max(self.every - warmup - active, 0) if self.every > 0 else max(self.wait, 0)
        i = index - 1 - max(self.skip_first, 0)
        if i < 0:
            return False
        if active == 0:
            return i >= wait + warmup
        cycle = wait + warmup + active
        if self.repeat > 0 and i // cycle >= self.repeat:
            return False
        return i % cycle >= wait + warmup


class Settings:
    """Settings of a process, at first from the environment. A forked child keeps them."""

    def __init__(self, trouble: Callable[[str, str], None]) -> None:
        self.allowed = _switch("OTELGPU_ENABLED", True)  # the operator's, which the program cannot override
        self.enabled = True
        self.verbosity = "default"
        self.sync = "deferred"
        self.schedule = Schedule()
        self.ranges: Optional[Ranges] = Ranges() if _switch("OTELGPU_NVTX", False) else None
        self.print_report = False
        word = os.environ.get("OTELGPU_VERBOSITY", "").strip().lower()
        if word in VERBOSITIES:
            self.verbosity = word
        elif word:
            trouble("OTELGPU_VERBOSITY", f"{word!r} is not one of {', '.join(VERBOSITIES)}")
        self.update()

    def update(self) -> None:
        """Computes the level: the highest verbosity that is recorded; 0: nothing is."""
        self.level = VERBOSITIES.index(self.verbosity) if self.allowed and self.enabled else 0


def _switch(name: str, default: bool) -> bool:
    word = os.environ.get(name, "").strip().lower()
    return word not in ("0", "false", "no", "off") if word else default
