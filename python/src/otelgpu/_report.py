# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
"""Sums of all sections and steps of the process, by name and nesting, and the report on them."""

from __future__ import annotations

import csv
import io
import logging
import math
import os
import threading
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Tuple, Union

from . import _names as n

MAX_POSITIONS = 4096  # in the nesting; further ones count under (other)
MAX_LOOPS, MAX_PHASES, MAX_STREAMS = 64, 64, 1024
OTHER = "(other)"
KEPT = 64  # disjoint intervals of a stream that later ones may still overlap

Path = Tuple[str, ...]
# Work of a section: what Figures lists from flops on.
_WORK = ("flops", "items", "read", "written", "to_device", "from_device")


class Figures(NamedTuple):
    """Figures of a set of runs. runs and work cover all of them; times and rates cover the timed ones, whose number is timed. Values
    that are unknown or not declared are None. Times are in s, work in operations, items and bytes. The standard deviation
    is of the population."""

    runs: int
    timed: int
    failed: int
    total: Optional[float]
    mean: Optional[float]
    stddev: Optional[float]
    min: Optional[float]
    max: Optional[float]
    flops: Optional[float]
    items: Optional[float]
    read: Optional[float]         # of device memory
    written: Optional[float]
    to_device: Optional[float]    # over PCIe, from the host
    from_device: Optional[float]
    flops_rate: Optional[float]   # per s of the timed runs
    items_rate: Optional[float]
    read_rate: Optional[float]
    written_rate: Optional[float]
    to_device_rate: Optional[float]
    from_device_rate: Optional[float]


class Operation(NamedTuple):
    """Sections of one name at one position in the nesting. share is the part of the time of all sections, in which each
    moment of a stream counts once; share_of_parent can exceed 1 if children run on several streams. Both are None for host
    times. first is the first run in the process, with the cost of loading, compiling and tuning."""

    path: Path
    category: Optional[str]
    precision: Optional[str]
    item_type: Optional[str]
    source: str  # device or host: who measured the times
    share: Optional[float]
    share_of_parent: Optional[float]
    all: Figures
    first: Figures
    rest: Figures

    @property
    def name(self) -> str:
        return self.path[-1]


class Loop(NamedTuple):
    """Steps of one loop. Times are means over the steps in which they are known, in s; share is of the mean step."""

    name: str
    steps: int
    incomplete: int  # steps of which some sections have no time
    mean: Optional[float]
    first: Optional[float]
    items_rate: Optional[float]
    phases: Dict[str, float]
    overlap: Optional[float]
    other: Optional[float]


class _Sums:
    """Sums of runs; the deviation by Welford's method."""

    __slots__ = ("count", "timed", "failed", "total", "mean", "squares", "least", "most", "work", "timed_work")

    def __init__(self) -> None:
        self.count = self.timed = self.failed = 0
        self.total = self.mean = self.squares = 0.0
        self.least, self.most = math.inf, 0.0
        self.work: List[Optional[float]] = [None] * len(_WORK)
        self.timed_work: List[Optional[float]] = [None] * len(_WORK)

    def add(self, seconds: Optional[float], failed: bool) -> None:
        self.count += 1
        self.failed += failed
        if seconds is not None:
            self.timed += 1
            self.total += seconds
            change = seconds - self.mean
            self.mean += change / self.timed
            self.squares += change * (seconds - self.mean)
            if seconds < self.least:
                self.least = seconds
            if seconds > self.most:
                self.most = seconds

    def add_work(self, i: int, value: Any, timed: bool) -> None:
        """Adds work of a run."""
        self.work[i] = (self.work[i] or 0.0) + float(value)
        if timed:
            self.timed_work[i] = (self.timed_work[i] or 0.0) + float(value)

    def forget_times(self) -> None:
        """Keeps the number of runs and their work."""
        count, failed, work = self.count, self.failed, self.work
        _Sums.__init__(self)
        self.count, self.failed, self.work = count, failed, work

    def join(self, other: "_Sums") -> "_Sums":
        """Returns the sums of both."""
        out = _Sums()
        out.count, out.timed, out.failed = (self.count + other.count, self.timed + other.timed, self.failed + other.failed)
        out.total = self.total + other.total
        if out.timed:
            apart = other.mean - self.mean
            out.mean = out.total / out.timed
            out.squares = self.squares + other.squares + apart * apart * self.timed * other.timed / out.timed
        out.least, out.most = min(self.least, other.least), max(self.most, other.most)
        for mine, a, b in ((out.work, self.work, other.work), (out.timed_work, self.timed_work, other.timed_work)):
            for i, (x, y) in enumerate(zip(a, b)):
                mine[i] = None if x is None and y is None else (x or 0.0) + (y or 0.0)
        return out

    def figures(self, device: bool) -> Figures:
        known = self.timed > 0
        # The host only knows when work was launched.
        rates = [w / self.total if device and w is not None and self.total > 0 else None for w in self.timed_work]
        return Figures(
            self.count, self.timed, self.failed, self.total if known else None, self.mean if known else None,
            math.sqrt(self.squares / self.timed) if known else None, self.least if known else None,
            self.most if known else None, *self.work, *rates)


class _Union:
    """Length of the union of intervals that arrive roughly in order."""

    def __init__(self) -> None:
        self.done = 0.0
        self.parts: List[Tuple[float, float]] = []

    def add(self, start: float, end: float) -> None:
        later: List[Tuple[float, float]] = []
        while self.parts and self.parts[-1][1] >= start:
            a, b = self.parts.pop()
            if a > end:
                later.append((a, b))
            else:
                start, end = min(a, start), max(b, end)
        self.parts.append((start, end))
        self.parts += reversed(later)
        if len(self.parts) > KEPT:
            a, b = self.parts.pop(0)
            self.done += b - a

    @property
    def length(self) -> float:
        return self.done + sum(b - a for a, b in self.parts)


class _Position:
    def __init__(self, node: Any) -> None:
        self.first, self.rest = _Sums(), _Sums()
        self.category: Optional[str] = None
        self.precision: Optional[str] = None
        self.item_type: Optional[str] = None
        self.device = node.elapsed is not None


class _Steps:
    def __init__(self) -> None:
        self.all = _Sums()
        self.first: Optional[float] = None
        self.phases: Dict[str, _Sums] = {}
        self.overlap, self.other = _Sums(), _Sums()
        self.incomplete = 0


class Collector:
    """Adds up sections and steps; the reading thread calls add() and step()."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.positions: Dict[Path, _Position] = {}
        self._streams: Dict[Any, _Union] = {}
        self.loops: Dict[str, _Steps] = {}
        self.devices: Dict[int, str] = {}  # models

    def add(self, root: Any) -> None:
        """Adds a section and those within it."""
        with self._lock:
            waiting: List[Tuple[Any, Path]] = [(root, ())]
            while waiting:
                node, above = waiting.pop()
                path = self._add(node, above)
                waiting += [(child, path) for child in reversed(node.children)]

    def _add(self, node: Any, above: Path) -> Path:
        """Adds one section, and returns its position."""
        path = (*above, node.name)
        position = self.positions.get(path)
        if position is None:
            if len(self.positions) >= MAX_POSITIONS:
                path = (OTHER,)
                position = self.positions.get(path)
            if position is None:
                position = self.positions[path] = _Position(node)
        _, items, item_type, flops, precision, size, read, written, direction, _, category = node.declared
        if category is not None and position.category is None:
            position.category = str(category)
        if precision is not None and position.precision is None:
            position.precision = str(precision)
        if item_type is not None and position.item_type is None:
            position.item_type = str(item_type)
        seconds: Optional[float] = node.elapsed
        if node.elapsed is not None:
            if not position.device:  # times of the host and of the device are not mixed
                position.device = True
                position.first.forget_times()
                position.rest.forget_times()
            stream = self._streams.get(node.stream)
            if stream is None:
                stream = self._streams.setdefault(node.stream if len(self._streams) < MAX_STREAMS else OTHER, _Union())
            stream.add(node.start / 1e9, node.end / 1e9)
        elif not position.device and node.status == "ok":
            seconds = (node.host_end - node.host_start) / 1e9
        sums = position.first if position.first.count == 0 else position.rest
        timed = seconds is not None
        sums.add(seconds, node.error is not None)
        if flops is not None:
            sums.add_work(0, flops, timed)
        if items is not None:
            sums.add_work(1, items, timed)
        if direction in ("host_to_device", "device_to_host"):
            # One transfer, also if it is declared as read and written.
            moved = size if size is not None else max(read or 0, written or 0) or None
            if moved is not None:
                sums.add_work(4 if direction == "host_to_device" else 5, moved, timed)
        else:
            for i, value in ((2, read), (2, size), (3, written)):
                if value is not None:
                    sums.add_work(i, value, timed)
        return path

    def step(self, name: str, seconds: Optional[float], values: Dict[str, Any]) -> None:
        """Adds a step with the attributes of its span."""
        with self._lock:
            steps = self.loops.get(name)
            if steps is None:
                if len(self.loops) >= MAX_LOOPS:
                    name = OTHER
                steps = self.loops.setdefault(name, _Steps())
            if steps.all.count == 0:
                steps.first = seconds
            steps.all.add(seconds, n.ERROR_TYPE in values)
            if n.STEP_ITEMS in values:
                steps.all.add_work(1, values[n.STEP_ITEMS], seconds is not None)
            steps.incomplete += n.STEP_UNTIMED_COUNT in values
            for key, value in values.items():
                if key.startswith(n.STEP_PHASE_DURATION):
                    phase = key[len(n.STEP_PHASE_DURATION):]
                    if phase in steps.phases or len(steps.phases) < MAX_PHASES:
                        steps.phases.setdefault(phase, _Sums()).add(value, False)
            for sums, key in ((steps.overlap, n.STEP_OVERLAP_DURATION), (steps.other, n.STEP_OTHER_DURATION)):
                if key in values:
                    sums.add(values[key], False)

    def reset(self) -> None:
        with self._lock:
            self.positions, self._streams, self.loops = {}, {}, {}

    def snapshot(self, lost: Dict[str, int]) -> "Report":
        with self._lock:
            total = sum(u.length for u in self._streams.values())
            operations: List[Operation] = []
            for path, p in self.positions.items():
                every = p.first.join(p.rest)
                above = self.positions.get(path[:-1])
                share = every.total / total if p.device and total > 0 else None
                of_parent = None
                if p.device and above is not None and above.device:
                    parent_total = above.first.total + above.rest.total
                    of_parent = every.total / parent_total if parent_total > 0 else None
                operations.append(Operation(
                    path, p.category, p.precision, p.item_type, "device" if p.device else "host", share, of_parent,
                    every.figures(p.device), p.first.figures(p.device), p.rest.figures(p.device)))
            loops = [_loop(name, s) for name, s in self.loops.items()]
            return Report(operations, loops, total, [self.devices[d] for d in sorted(self.devices)], lost)


def _loop(name: str, s: _Steps) -> Loop:
    f = s.all.figures(True)
    return Loop(name, s.all.count, s.incomplete, f.mean, s.first, f.items_rate,
                {k: v.mean for k, v in s.phases.items()}, s.overlap.mean if s.overlap.timed else None,
                s.other.mean if s.other.timed else None)


def _bytes(o: Operation) -> float:
    return sum(x for x in o.all[10:14] if x)


_SORTS: Dict[str, Optional[Callable[[Operation], float]]] = {
    "time": lambda o: o.all.total or 0.0, "flops": lambda o: o.all.flops or 0.0, "bytes": _bytes, "name": None}


class Report:
    """The sections and loops of the process so far. print() shows it as tables; unknown values are "-".

    total is the time of all sections in s, in which each moment of a stream counts once; lost are counts of stats() by
    reason."""

    def __init__(self, operations: List[Operation], loops: List[Loop], total: float, devices: List[str],
                 lost: Dict[str, int]) -> None:
        self.total, self.devices, self.lost, self.loops = total, devices, lost, loops
        self.operations = operations
        self.sort("time")

    def sort(self, by: str = "time") -> "Report":
        """Sorts siblings by time, flops, bytes or name, largest first; children always follow their parent."""
        if by not in _SORTS:
            raise ValueError(f"cannot sort by {by!r} (use one of {', '.join(_SORTS)})")
        value = _SORTS[by]
        below: Dict[Path, List[Operation]] = {}
        for o in self.operations:
            below.setdefault(o.path[:-1], []).append(o)
        by_path = {o.path: o for o in self.operations}
        self.operations = []
        for top in [(), *(p for p in below if p and p not in by_path)]:
            waiting = [top]
            while waiting:
                path = waiting.pop()
                if path in by_path:
                    self.operations.append(by_path[path])
                children = below.get(path, [])
                children.sort(key=(lambda o: o.path) if value is None else value, reverse=value is not None)
                waiting += [o.path for o in reversed(children)]
        return self
        return self

    def category(self, name: str) -> "Report":
        """Returns the report on the sections of one category."""
        return Report([o for o in self.operations if o.category == name], [], self.total, self.devices, self.lost)

    def __getitem__(self, path: Union[str, Path]) -> Operation:
        """Returns the operation at a path, such as "step/forward" or ("step", "forward"). Raises KeyError."""
        wanted = tuple(path.split("/")) if isinstance(path, str) else path
        for o in self.operations:
            if o.path == wanted or o.path == (path,):
                return o
        raise KeyError(path)

    def to_dict(self) -> Dict[str, Any]:
        """Returns plain values for JSON: seconds, bytes, rates per second, shares from 0 to 1. Unknown values are
        omitted."""
        def known(x: Any) -> Dict[str, Any]:
            return {k: v for k, v in x._asdict().items() if v is not None}

        operations: List[Dict[str, Any]] = []
        for o in self.operations:
            row = known(o)
            row.update(path="/".join(o.path), all=known(o.all), first=known(o.first), rest=known(o.rest))
            operations.append(row)
        return {"total": self.total, "devices": self.devices, "lost": self.lost, "operations": operations,
                "loops": [known(loop) for loop in self.loops]}

    def to_csv(self, file: Union[str, "os.PathLike[str]", io.TextIOBase, None] = None) -> str:
        """Returns a row for each operation and set of runs (all, first, rest) as CSV, and writes it to the file. Unknown
        values are empty."""
        out = io.StringIO()
        w = csv.writer(out, lineterminator="\n")
        w.writerow(["path", "category", "precision", "item_type", "source", "share", "share_of_parent", "set",
                    *Figures._fields])
        for o in self.operations:
            for name, figures in (("all", o.all), ("first", o.first), ("rest", o.rest)):
                if figures.runs:
                    w.writerow(["/".join(o.path), o.category, o.precision, o.item_type, o.source, o.share,
                                o.share_of_parent, name, *figures])
        text = out.getvalue()
        if isinstance(file, io.TextIOBase):
            file.write(text)
        elif file is not None:
            with open(file, "w", encoding="utf-8", newline="") as f:
                f.write(text)
        return text

    def log(self, logger: logging.Logger, level: int = logging.INFO) -> None:
        """Logs a line for each operation and loop."""
        for line in str(self).splitlines():
            if line:
                logger.log(level, "%s", line)

    def __str__(self) -> str:
        out = [f"{duration(self.total)} of GPU time in sections" + (f", {', '.join(self.devices)}" if self.devices else "")]
        if self.lost:
            out.append("not recorded: " + ", ".join(f"{v} ({k})" for k, v in self.lost.items()))
        if self.operations:
            out += ["", _row("Time", ("runs", "total", "%parent", "%all", "mean", "stddev", "min", "max", "first", "rest"))]
            for o in self.operations:
                f = o.all
                count = str(f.runs) if f.timed == f.runs else f"{f.timed}/{f.runs}"
                out.append(_row(_label(o), (
                    count, duration(f.total), _percent(o.share_of_parent), _percent(o.share), duration(f.mean), duration(f.stddev),
                    duration(f.min), duration(f.max), duration(o.first.mean), duration(o.rest.mean))))
        work = [o for o in self.operations if any(x is not None for x in o.all[8:14])]
        if work:
            out += ["", _row("Work", ("read", "write", "to device", "from dev.", "TFLOP/s", "items/s", "GB", "TFLOP", "items"))
                    + "   rates of memory and PCIe in GB/s"]
            for o in work:
                f = o.all
                moved = [x for x in f[10:14] if x is not None]
                out.append(_row(_label(o), (
                    *(_scaled(x, 1e9) for x in (f.read_rate, f.written_rate, f.to_device_rate, f.from_device_rate)),
                    _scaled(f.flops_rate, 1e12), _scaled(f.items_rate, 1), _scaled(sum(moved) if moved else None, 1e9),
                    _scaled(f.flops, 1e12), _scaled(f.items, 1))))
        for loop in self.loops:
            out += ["", f"Loop {loop.name}: {loop.steps} steps of {duration(loop.mean)}, the first {duration(loop.first)}"
                    + (f", {_scaled(loop.items_rate, 1)} items/s" if loop.items_rate is not None else "")
                    + (f"; {loop.incomplete} with sections that have no time" if loop.incomplete else "")]
            parts = [*loop.phases.items(), ("(overlap)", loop.overlap), ("(other)", loop.other)]
            for name, seconds in parts:
                share = seconds / loop.mean if seconds is not None and loop.mean else None
                out.append(_row("  " + name, (duration(seconds), _percent(share))))
        return "\n".join(out) + "\n"


def _label(o: Operation) -> str:
    return "  " * (len(o.path) - 1) + o.name + (" (host)" if o.source == "host" else "")


def _row(label: str, values: Iterable[str]) -> str:
    return f"{label[:30]:<30}" + "".join(f"{v:>10}" for v in values)


def _scaled(value: Optional[float], unit: float) -> str:
    return "-" if value is None else f"{value / unit:.4g}"


def _percent(value: Optional[float]) -> str:
    return "-" if value is None else f"{100 * value:.1f}"


def duration(seconds: Optional[float]) -> str:
    if seconds is None:
        return "-"
    for limit, unit, name in ((1e-6, 1e-9, "ns"), (1e-3, 1e-6, "us"), (1.0, 1e-3, "ms")):
        if seconds < limit:
            return f"{seconds / unit:.4g}{name}"
    return f"{seconds:.4g}s"
