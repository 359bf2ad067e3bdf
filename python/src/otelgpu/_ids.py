# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
"""IDs of spans that are unique whatever the program seeds.

The SDK draws IDs from Python's global `random`. Trainers seed it alike on all ranks and in each run, so that all of them
draw the same trace and span IDs."""

from __future__ import annotations

import os
import random
from typing import Any

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
    kind = type(getattr(source, "id_generator", None))
    return kind.__name__ == "RandomIdGenerator" and kind.__module__.startswith("opentelemetry.sdk")


def replace(tracer: Any) -> None:
    """Gives a tracer of the SDK unique IDs."""
    if seeded(tracer):
        tracer.id_generator = IDS
