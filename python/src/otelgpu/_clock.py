# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
"""Converts device time to the host's clock.

An anchor is an event on an idle stream, recorded and polled between two reads of the host's clock. It happened
between them, so half of their distance bounds the error of the midpoint. Events of the program are interpolated
linearly between the two surrounding anchors; the larger of the two bounds applies. To it are added the resolution of
events and the curvature that two clocks can have relative to each other between anchors. The host knows the time of an
event's submission and a time at which it had finished. They outrank anchors, which mislead after a jump of the
device's clock.
"""

from __future__ import annotations

import collections
import time
from typing import Any, Deque, NamedTuple, Optional, Tuple

from ._device import RESOLUTION_NS

KEPT = 240
"""Anchors kept for each device: two minutes at two a second. Older work uses the oldest anchor, with a wider bound."""

WANDER = 1e-6
"""Maximum deviation of two quartz clocks from a straight line between two anchors, as a fraction of the distance."""

BEND = 1e-5
"""Maximum difference between the rate near an anchor and the mean rate up to the next anchor, which may be hours away."""

MAX_DRIFT = 5e-4
"""Maximum difference of the two clocks' rates. A larger one between two anchors is a jump of a clock."""

MIN_JUMP = 20_000
"""A section that is longer than the time between its submission and its end by so many ns has no duration."""

UNKNOWN_RATE = 2e-4
"""Maximum rate error of a device's clock before the second anchor: more than any quartz has."""

TRIES = 4
PATIENCE = 200_000      # ns that an attempt polls its event without a pause
GIVE_UP = 100_000_000   # ns after which an attempt is abandoned: the next poll makes another one


class Anchor(NamedTuple):
    event: Any
    host: float  # ns of the monotonic clock, the middle of the bracket
    half: float  # ns, half of the bracket
    length: float = 0.0  # ns of the device since the anchor before
    jumped: bool = False  # one of the clocks, since the anchor before


class DeviceClock:
    """Anchors of one device; used by the reading thread only."""

    def __init__(self, backend: Any, device: int) -> None:
        self._backend, self._device = backend, device
        self._anchors: Deque[Anchor] = collections.deque(maxlen=KEPT)

    @property
    def newest(self) -> float:
        """Time of the newest anchor in ns of the monotonic clock; 0 without one."""
        return self._anchors[-1].host if self._anchors else 0.0

    def take(self) -> None:
        """Takes an anchor, the narrowest of a few attempts; none if the device does not answer."""
        best: Optional[Anchor] = None
        for _ in range(TRIES):
            before = time.monotonic_ns()
            event = self._backend.anchor_event(self._device)
            # event.synchronize() would never return if the device hangs, and it releases the GIL, so that the wait for the
            # GIL would count.
            while not event.query():
                if time.monotonic_ns() - before > PATIENCE:
                    if time.monotonic_ns() - before > GIVE_UP:
                        break
                    time.sleep(0.001)
            else:
                after = time.monotonic_ns()
                anchor = Anchor(event, (before + after) / 2, (after - before) / 2)
                if best is None or anchor.half < best.half:
                    best = anchor
                continue
            break
        if best is not None:
            if self._anchors:
                try:
                    last = self._anchors[-1]
                    length, passed = last.event.elapsed_time(best.event) * 1e6, best.host - last.host
                    allowed = passed * MAX_DRIFT + last.half + best.half + 2 * RESOLUTION_NS
                    best = best._replace(length=length, jumped=abs(length - passed) > allowed)
                except Exception:
                    self._anchors.clear()  # the device was reset, and its clock may have been, too
            self._anchors.append(best)

    def place(self, event: Any, length: float = 0.0, history: Optional[Tuple[float, float]] = None,
              ) -> Tuple[float, Optional[float]]:
        """Returns the event's time in ns of the monotonic clock, and its bound, None if unknown. history is when the host
        submitted the event, and when it had seen the end of a section of that length in ns that the event starts.
        Requires an anchor that was taken after the event was seen to be finished."""
        anchors = self._anchors
        # Search from the end: events are nearly always recent.
        for i in range(len(anchors) - 2, -1, -1):
            at = anchors[i].event.elapsed_time(event) * 1e6
            if at >= 0:
                left, right = anchors[i], anchors[i + 1]
                break
        else:
            left, right = anchors[0], anchors[1] if len(anchors) > 1 else anchors[0]
            at = left.event.elapsed_time(event) * 1e6
        # elapsed_time is a float32 of milliseconds, so the nearer anchor is more exact.
        rest = right.length - at if right is not left else -at
        if abs(rest) < abs(at):
            rest = event.elapsed_time(right.event) * 1e6
        near = min(abs(at), abs(rest))
        host = right.host - left.host
        known = host > 0 and right.length > 0 and not right.jumped
        rate = host / right.length if known else 1.0
        after, before = left.host + at * rate, right.host - rest * rate
        time = after if near == abs(at) else before
        # Extrapolate if the event is older than all anchors.
        outside = max(-at, -rest, 0.0)
        half = max(left.half, right.half) + RESOLUTION_NS + near / (1 << 24)
        half += WANDER * (host + outside) if outside > 0 else min(WANDER * host, BEND * near)
        if not known:
            half += max(abs(at), abs(rest)) * UNKNOWN_RATE
            if right.jumped:
                time, half = (after + before) / 2, half + abs(after - before) / 2
        elif outside > 0:
            half += outside * (left.half + right.half) / right.length
        if history is not None:
            first = history[0]
            last = max(history[1] - length * (1 - UNKNOWN_RATE) + RESOLUTION_NS, first)
            low, high = max(time - half, first), min(time + half, last)
            if low > high:
                time, half = last, last - first
            else:
                time = min(max(time, first), last)
                half = max(time - low, high - time, RESOLUTION_NS)
        return time, None if getattr(event, "late", False) else half


def fits(length: float, first: float, last: float) -> bool:
    """Reports whether that much time of the device, in ns, can have passed between two times of the host."""
    return 0 <= length <= (last - first) * (1 + MAX_DRIFT) + MIN_JUMP


def wall_offset() -> int:
    """Returns wall clock minus monotonic clock in ns, reading the wall clock between two reads of the monotonic one."""
    best, offset = None, 0
    for _ in range(3):
        before = time.monotonic_ns()
        wall = time.time_ns()
        after = time.monotonic_ns()
        if best is None or after - before < best:
            best, offset = after - before, wall - (before + after) // 2
    return offset
