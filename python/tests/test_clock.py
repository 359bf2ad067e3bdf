# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
"""Stated errors of placed sections, in simulated time with known true times."""

import random
import types

import pytest

from faketorch import float32
from otelgpu import _clock

MS, S = 1e6, 1e9


class World:
    """A device whose clock has another rate than the host's, which changes, and may jump once."""

    def __init__(self, seed, monkeypatch):
        self.random = random.Random(seed)
        self.now = 1e15
        self.base = self.random.uniform(-1e-4, 1e-4)
        self.pieces = [(self.now, 7e11, 1 + self.base)]
        monkeypatch.setattr(_clock, "time", types.SimpleNamespace(monotonic_ns=lambda: int(self.now), sleep=self.sleep))

    def sleep(self, seconds):
        self.now += seconds * S

    def device(self, t):
        since, at, rate = next(p for p in reversed(self.pieces) if t >= p[0])
        return at + (t - since) * rate

    def change(self, rate, jump=0.0, t=None):
        t = self.now if t is None else t
        self.pieces.append((t, self.device(t) + jump, 1 + self.base + rate))

    def anchor_event(self, device):
        self.now += 1500 + self.random.expovariate(1 / 2500)
        event = Event(self, self.now)
        self.now += 1000 + self.random.expovariate(1 / 2500)
        return event


class Event:
    def __init__(self, world, true):
        self.world, self.true = world, true
        self.ticks = round(world.device(true) / 500) * 500

    def query(self):
        self.world.now += self.world.random.uniform(800, 2500)
        return self.world.now >= self.true

    def elapsed_time(self, end):
        return float32((end.ticks - self.ticks) / MS)


def run(monkeypatch, seed, gap, length, wander=0.0, jump=0.0, sections=60):
    """Returns the error and the stated error of the start of each section, in ns. The host polls as the reading thread."""
    world = World(seed, monkeypatch)
    clock, out = _clock.DeviceClock(world, 0), []
    if jump:
        world.change(0, jump, world.now + world.random.uniform(0, sections * (gap + 50 * MS) / 2))
    for _ in range(sections):
        world.sleep(world.random.expovariate(1 / gap) / S)
        if wander:
            world.change(world.random.uniform(-wander, wander))
        submitted = world.now
        start = Event(world, submitted + 2000)
        end = Event(world, start.true + world.random.expovariate(1 / length))
        while world.now < end.true:
            world.sleep(0.02)
            if world.now - clock.newest >= 500 * MS:
                clock.take()
        seen = world.now
        while clock.newest < seen:
            world.sleep(0.02)
            clock.take()
        measured = start.elapsed_time(end) * MS
        if _clock.fits(measured, submitted, seen):
            at, bound = clock.place(start, measured, (submitted, seen))
            out.append((abs(at - start.true), bound))
        else:
            assert abs(measured - (end.true - start.true)) > abs(jump) / 2
    return out


@pytest.mark.parametrize("gap", [10 * MS, 2 * S, 60 * S, 3600 * S])
@pytest.mark.parametrize("wander", [0, 2e-6])
def test_a_section_after_any_pause_is_placed_within_a_tight_bound(monkeypatch, gap, wander):
    placed = [x for seed in range(20) for x in run(monkeypatch, seed, gap, 5 * MS, wander)]
    assert all(error <= bound for error, bound in placed)
    errors, bounds = (sorted(values) for values in zip(*placed))
    assert bounds[len(bounds) // 2] <= 3 * errors[len(errors) * 95 // 100]


@pytest.mark.parametrize("jump", [3 * MS, -3 * MS, 100 * MS, -100 * MS, -4295 * MS, 600 * S, -600 * S])
@pytest.mark.parametrize("length", [5 * MS, 300 * MS])
def test_a_jump_of_a_clock_does_not_move_sections_out_of_their_bound(monkeypatch, jump, length):
    placed = [x for seed in range(20) for x in run(monkeypatch, seed, 50 * MS, length, jump=jump)]
    outside = sum(error > bound for error, bound in placed)
    assert outside <= len(placed) // 1000 and len(placed) > 1150


def test_a_length_that_its_history_contradicts_is_no_duration():
    assert _clock.fits(MS, 0, MS) and _clock.fits(MS, 0, MS - _clock.MIN_JUMP)
    assert not _clock.fits(MS + 1000, 0, MS - _clock.MIN_JUMP)
    assert not _clock.fits(-1, 0, MS)


def test_history_outranks_anchors(monkeypatch):
    world = World(1, monkeypatch)
    clock = _clock.DeviceClock(world, 0)
    clock.take()
    event = Event(world, world.now)
    world.sleep(0.1)
    clock.take()
    for late in (S, -S):  # as if the device's clock had jumped before it
        first, last = event.true + late, event.true + late + 20 * MS
        at, bound = clock.place(event, 5 * MS, (first, last))
        assert first <= at <= last - 5 * MS + 2000  # the resolution, and the rate
        assert at - bound <= first and at + bound >= last - 5 * MS
    at, bound = clock.place(event, 5 * MS, (event.true, event.true + 5 * MS))
    assert event.true <= at <= event.true + 2000 and _clock.RESOLUTION_NS <= bound <= 2000
