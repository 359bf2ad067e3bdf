# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
"""Loops: each iteration is a step with phases, from one boundary event to the next."""

from __future__ import annotations

import gc
import inspect
import logging
import sys
import threading
import time
import types
from typing import Any, Dict, Iterable, Iterator, List, Optional, Set, Tuple, TypeVar, Union, cast, overload

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.trace import Status, StatusCode

from . import _capture
from . import _names as n
from ._clock import fits
from ._names import CopyDirection, HostMemory, OperationType, Precision, Verbosity
from ._runtime import STEP_DEADLINE, HANG_DEADLINE, Node, Runtime, _text, amount, count, line, lines, log, runtime
from ._section import Linkable, Section, current_step, failure
from ._settings import Schedule

MAX_PHASES = 64      # of one step
COMM = "comm"         # the phase of waiting for other ranks
MAX_INTERVALS = 4096  # of one phase of one step; with more its duration is unknown
MAX_MEETINGS = 16     # process groups and partners of one step whose last collective becomes a span


class _Phase:
    __slots__ = ("intervals", "added")

    def __init__(self) -> None:
        self.intervals: List[Tuple[float, float]] = []
        self.added = 0.0


class Meeting:
    """A collective: its process group, its number in the group, and marks of wait_mark()."""

    __slots__ = ("name", "group", "group_name", "size", "sequence", "peer", "start", "end")

    def __init__(self, name: str, group: str, group_name: str, size: int, sequence: Optional[int], peer: Optional[int],
                 start: Any) -> None:
        self.name, self.group, self.group_name, self.size = name, group, group_name, size
        self.sequence, self.peer, self.start = sequence, peer, start
        self.end: Any = None

    def attributes(self) -> Dict[str, Any]:
        out: Dict[str, Any] = {n.OPERATION_TYPE: "collective", n.COLLECTIVE_NAME: self.name,
                               n.COLLECTIVE_GROUP_ID: self.group, n.COLLECTIVE_GROUP_NAME: self.group_name,
                               n.COLLECTIVE_GROUP_SIZE: self.size}
        if self.sequence is not None:
            out[n.COLLECTIVE_SEQUENCE] = self.sequence
        if self.peer is not None:
            out[n.COLLECTIVE_PEER_RANK] = self.peer
        return out


class Step:
    """One iteration of a loop. items, item_type, epoch and model_flops (the model's theoretical FLOPs, for MFU, which needs
    their precision, such as bf16 under autocast; with devices, the number of GPUs) may be set until it ends."""

    def __init__(self, rt: Optional[Runtime], name: str, index: int, item_type: Optional[str]) -> None:
        self.index = index
        self.items: Optional[int] = None
        self.item_type = item_type
        self.epoch: Optional[int] = None
        self.model_flops: Optional[float] = None
        self.precision: Optional[str] = None
        self.devices: Optional[int] = None
        self.previous: Optional["Step"] = None
        self.elapsed: Optional[float] = None
        self.status = "ok"
        self.device: Optional[int] = None
        self.failure: Optional[Tuple[str, str]] = None
        self._batch: Optional[Tuple[int, int]] = None  # its parts, and the length of the first part
        self._runtime, self._name = rt, name
        self._lock = threading.Lock()
        self._open = 0  # sections without times yet
        self._running: Dict[int, Section] = {}  # that have not ended on the host, by the identity of their nodes
        self._ended = False
        self._untimed = 0  # sections that have no time on the step's clock
        self._unknown: Set[str] = set()  # their phases
        self._phases: Dict[str, _Phase] = {}
        self._covered: List[Tuple[float, float]] = []
        self._waits: List[Tuple[Any, Any]] = []  # for other ranks: host times in ns, or events of the device
        self._meetings: Dict[Tuple[str, Optional[str], Optional[int]], Meeting] = {}
        self._span: Any = None
        self._start_event: Any = None
        self._end_event: Any = None
        self._stream_id: Optional[int] = None
        self._host_start = self._host_end = self._submitted = 0
        self._wall_start = 0
        self._range: Any = None  # NVTX
        self._done = False

    def phase(self, name: str, *, type: OperationType = "section", category: Optional[str] = None,
              items: Optional[int] = None, item_type: Optional[str] = None, flops: Optional[float] = None,
              precision: Optional[Precision] = None, read: Optional[int] = None, written: Optional[int] = None,
              size: Optional[int] = None, copy: Optional[CopyDirection] = None, host_memory: Optional[HostMemory] = None,
              stream: Any = None, verbosity: Verbosity = "default", batched: bool = False, links: Iterable[Union[Linkable, Tuple[Linkable, int]]] = (),
              attributes: Optional[Dict[str, Any]] = None) -> Section:
        """A phase of the step, a section whose category is the phase: data, forward, backward, comm, optimizer and
        others. It ends at the latest with the step."""
        if self._runtime is None:
            return _Nothing(name)
        section = Section(name, type=type, category=name if category is None else category, items=items,
                          item_type=item_type, flops=flops, precision=precision, read=read, written=written, size=size,
                          copy=copy, host_memory=host_memory, stream=stream, verbosity=verbosity, batched=batched, links=links,
                          attributes=attributes)
        section._step, section._phase = self, _text(name, 64)
        return section

    def fail(self, error: Union[BaseException, str]) -> None:
        """Marks the open step as failed: its span gets the status ERROR with the text, and error.type. An exception
        that leaves the loop's body does this by itself."""
        self.failure = failure(error)

    def add_phase(self, name: str, seconds: float) -> None:
        """Adds a duration that was measured elsewhere, such as by a communication logger, to a phase. Its position in
        the step is unknown."""
        try:
            added = amount(seconds)
            if added > 0:
                with self._lock:
                    phase = self._phase(_text(name, 64))
                    if phase is not None:
                        phase.added += added
        except Exception as e:
            runtime().trouble("adding to a phase", repr(e))

    def _phase(self, name: str) -> Optional[_Phase]:
        if name not in self._phases and len(self._phases) >= MAX_PHASES:
            return None
        return self._phases.setdefault(name, _Phase())

    def waited(self, start: Any, end: Any) -> None:
        """Records that the step waited for other ranks between two marks of wait_mark()."""
        with self._lock:
            if len(self._waits) < MAX_INTERVALS:
                self._waits.append((start, end))

    def met(self, meeting: Meeting) -> None:
        """Records a collective; keeps the last one of each process group and of each partner."""
        key = meeting.group, None if meeting.sequence is not None else meeting.name, meeting.peer
        with self._lock:
            if key in self._meetings or len(self._meetings) < MAX_MEETINGS:
                self._meetings[key] = meeting

    def wait_mark(self) -> Any:
        """Returns the current time: an event of the current stream in a step with a device, otherwise the host's
        time."""
        rt = self._runtime
        if rt is not None and self._start_event is not None and rt.backend is not None:
            return rt.backend.record(rt.backend.stream()[0])
        return time.monotonic_ns()

    def _wait_intervals(self, total: float) -> Optional[List[Tuple[float, float]]]:
        """Returns the waits for other ranks; None if some are unknown."""
        if len(self._waits) >= MAX_INTERVALS:
            return None
        out: List[Tuple[float, float]] = []
        for start, end in self._waits:
            try:
                if self._start_event is None:
                    a, b = float(start - self._host_start), float(end - self._host_start)
                else:
                    begin = self._start_event
                    a, b = begin.elapsed_time(start) * 1e6, begin.elapsed_time(end) * 1e6
            except Exception:
                return None  # an event that was never reached
            if b > 0 and a < total:
                out.append((max(a, 0.0), min(b, total)))
        return merged(out)

    # -- called by sections and by the reading thread -----------------------------------------------------------------

    def end_range(self) -> None:
        started, self._range = self._range, None
        if started is not None:
            started[0].end(started[1])

    def opened(self, section: Section, node: Node) -> bool:
        """Called when a section of the step begins; returns False if the step has ended."""
        with self._lock:
            if self._ended:
                return False
            self._open += 1
            self._running[id(node)] = section
            return True

    def running(self, section: Section, node: Node) -> None:
        """Called when another object continues the section."""
        with self._lock:
            if id(node) in self._running:
                self._running[id(node)] = section

    def left(self, node: Node) -> None:
        """Called when a section of the step has ended on the host."""
        with self._lock:
            self._running.pop(id(node), None)

    def end_phases(self) -> None:
        """Ends the phases that are still open, and forgets the other open sections, which may outlive the step."""
        with self._lock:
            self._ended = True
            open_ones = list(self._running.values())
        for section in open_ones:
            if section._phase is not None and section._step is self:
                section._cut()
            elif section._node is not None:
                section._node.step = None
                with self._lock:
                    self._open -= 1
                    self._untimed += section.type != "host"
        self._running = {}

    def forgot(self, node: Node) -> None:
        """Called when a section of the step is discarded."""
        self.left(node)
        with self._lock:
            self._open -= 1

    def closed(self, node: Node) -> None:
        """Called when a section of the step has its times, or will have none."""
        where = None if node.lost else self._interval(node)
        with self._lock:
            self._running.pop(id(node), None)
            self._open -= 1
            if self._done:
                return
            phase = self._phase(node.phase) if node.phase is not None else None
            if where is None:
                if node.phase is not None or node.lost or node.declared[0] != "host":
                    self._untimed += 1
                if node.phase is not None:
                    self._unknown.add(node.phase)
                return
            if node.elapsed is not None:
                if len(self._covered) < MAX_INTERVALS:
                    self._covered.append(where)
                else:
                    self._untimed += 1
            if node.phase is not None:
                if phase is not None and len(phase.intervals) < MAX_INTERVALS:
                    phase.intervals.append(where)
                else:
                    self._unknown.add(node.phase)

    def _interval(self, node: Node) -> Optional[Tuple[float, float]]:
        """Returns the section's position in the step in ns from its start, from device events if both have them."""
        if node.end == 0:
            return None
        if node.elapsed is not None and self._start_event is not None and node.device == self.device:
            try:
                at = self._start_event.elapsed_time(node.start_event) * 1e6
                return at, at + node.elapsed * 1e9
            except Exception:
                return None  # the boundary itself failed; the step then states it
        if self._start_event is not None:
            return None
        return node.start - self._host_start, node.end - self._host_start

    def ready(self, now: float) -> bool:
        """Reports whether the step can be ended: its last boundary is reached, and its sections are read or overdue."""
        if self._end_event is not None and not self._end_event.query():
            if now - self._host_end < HANG_DEADLINE * 1e9:
                return False
            self.status = "timeout"
            return True
        return self._open <= 0 or now - self._host_end > STEP_DEADLINE * 1e9

    def abandon(self) -> None:
        """Ends the span with host times."""
        if not self._done:
            self._done = True
            if self._span is not None:
                self._span.end()

    def finish(self, clock: Any, offset: int) -> None:
        rt = self._runtime
        if self._done or rt is None:
            return
        first, last = self._start_event, self._end_event
        timed = first is not None and last is not None and self.status == "ok"
        seen = time.monotonic_ns()
        host_ns = self._host_end - self._host_start
        end = float(self._host_end)
        out: Dict[str, Any] = {n.OPERATION_TYPE: "step", n.STEP_INDEX: self.index}
        total = float(host_ns)
        if first is not None and last is not None and timed:
            total = first.elapsed_time(last) * 1e6
            if not fits(total, self._submitted, seen):
                timed, total, self.status = False, float(host_ns), rt.jumped()
        if timed:
            self.elapsed = total / 1e9
            out[n.STEP_DURATION] = out[n.DURATION] = self.elapsed
            if clock is not None and clock.newest:
                start, bound = clock.place(first, total, (self._submitted, seen))
                if bound is not None:
                    out[n.TIMING_ERROR] = bound / 1e9
                out[n.START_DELAY] = (start - self._host_start) / 1e9
                out[n.END_DELAY] = (start + total - self._host_end) / 1e9
                end = max(end, start + total)
        out[n.STEP_HOST_DURATION] = host_ns / 1e9
        with self._lock:
            self._done = True
            self._untimed += max(self._open, 0)  # not read before the deadline
            if self.status == "clock_jump":
                self._unknown.update(self._phases)
            out.update(self._parts(total, timed))
        out.update(rt.timing(timed, self.status, self.device))
        self._check_items(rt)
        for key, value, kind in ((n.STEP_ITEMS, self.items, count), (n.STEP_ITEM_TYPE, self.item_type, _text),
                                 (n.STEP_EPOCH, self.epoch, int), (n.STEP_MODEL_FLOP_COUNT, self.model_flops, amount),
                                 (n.STEP_DEVICE_COUNT, self.devices, count)):
            known = None if value is None else rt.value(key, kind, value)
            if known is not None:
                out[key] = known
        self._state_precision(rt, out)
        if self._stream_id is not None:
            out[n.STREAM_ID] = self._stream_id
        span = self._span
        if self.failure is not None:
            out[n.ERROR_TYPE] = self.failure[0]
            span.set_status(Status(StatusCode.ERROR, self.failure[1]))
        span.set_attributes(out)
        seconds = total / 1e9 if timed or first is None and self.status == "ok" else None
        rt.report.step(self._name, seconds, out)
        if lines.isEnabledFor(logging.INFO):
            lines.info("%s step %d%s", self._name, self.index, line(seconds, host_ns / 1e9, None, self.failure))
        for file in rt.step_files:
            try:
                file.write(self._name, seconds, out)
            except Exception as e:
                rt.trouble("writing the CSV of steps", repr(e))
        self._emit_meetings(rt, clock if timed else None, timed, offset)
        rt.counts["spans"] += 1
        span.end(end_time=max(int(end) + offset, self._wall_start))  # the wall clock may have been set back

    def _state_precision(self, rt: Runtime, out: Dict[str, Any]) -> None:
        if self.precision is not None:
            out[n.FLOP_PRECISION] = precision = str(self.precision)
            words = n.WORDS[n.FLOP_PRECISION]
            if precision not in words:
                rt.trouble(n.FLOP_PRECISION, f"{precision!r} is not one of {', '.join(words)}")
        elif self.model_flops is not None and "precision" not in rt.said:
            rt.said.add("precision")
            log.warning("otelgpu: step.model_flops is set without step.precision, so gpu.step.mfu is derived only if sections of the "
                        "step state a precision, or gpu_derive has a default (set step.precision, such as bf16 under autocast)")

    def _check_items(self, rt: Runtime) -> None:
        """Warns once if items is the number of parts of the batch, as len((inputs, labels)) is."""
        if self._batch is not None and self.items == self._batch[0] and "items" not in rt.said:
            rt.said.add("items")
            log.warning("otelgpu: step.items is %d, which is the number of parts of the batch, whose first part has %d items (set "
                        "step.items = len(batch[0]))", *self._batch)

    def _emit_meetings(self, rt: Runtime, clock: Any, timed: bool, offset: int) -> None:
        """Creates a span of the step's last collective in each process group."""
        with self._lock:
            meetings = list(self._meetings.values())
        inside = trace.set_span_in_context(self._span)
        for m in meetings:
            attributes = m.attributes()
            try:
                if timed:
                    start, bound = clock.place(m.start)
                    elapsed = m.start.elapsed_time(m.end) / 1e3 if m.end is not None else None
                    end = start + (elapsed or 0) * 1e9
                    if elapsed is not None:
                        attributes[n.DURATION] = elapsed
                        if bound is not None:
                            attributes[n.TIMING_ERROR] = bound / 1e9
                else:
                    start, end = m.start, m.end if m.end is not None else m.start
            except Exception:
                continue  # an event that was never reached
            attributes.update(rt.timing(n.DURATION in attributes, "ok", self.device))
            span = rt.tracer(self.device).start_span(m.name, context=inside, attributes=attributes,
                                                     start_time=int(start) + offset)
            rt.counts["spans"] += 1
            span.end(end_time=max(int(end), int(start)) + offset)

    def _parts(self, total: float, timed: bool) -> Dict[str, Any]:
        """Computes phases, their overlap and the uncovered rest: total = sum of phases - overlap + other, each at
        least 0. Time without a position (add_phase) is assumed to overlap as little as possible. A phase with a section
        that has no time is unknown, and so are overlap and rest."""
        out: Dict[str, Any] = {}
        placed: List[Tuple[float, float]] = []
        sum_of_phases = loose = 0.0
        waits = self._wait_intervals(total)
        if waits is None:
            self._unknown.add(COMM)
        elif waits:
            self._phases.setdefault(COMM, _Phase()).intervals += waits
        for name, phase in sorted(self._phases.items()):
            if name in self._unknown:
                continue
            inside = [(max(a, 0.0), min(b, total)) for a, b in phase.intervals if b > 0 and a < total]
            if name != COMM:
                inside = without(inside, waits or [])  # a phase is the rank's own work, without waits for the slowest rank
            placed += inside
            length = union(inside)
            added = min(phase.added * 1e9, total - length)
            out[n.STEP_PHASE_DURATION + name] = (length + added) / 1e9
            sum_of_phases += length + added
            loose += added
        if self._phases and not self._unknown and self._open <= 0:
            explained = min(union(placed) + loose, total)
            out[n.STEP_OVERLAP_DURATION] = max(sum_of_phases - explained, 0.0) / 1e9
            out[n.STEP_OTHER_DURATION] = max(total - explained, 0.0) / 1e9
        if self._untimed > 0:
            out[n.STEP_UNTIMED_COUNT] = self._untimed
        elif timed:
            out[n.STEP_COVERED_DURATION] = union([(max(a, 0.0), min(b, total)) for a, b in self._covered]) / 1e9
        return out


def union(intervals: Iterable[Tuple[float, float]]) -> float:
    """Returns the length of the union of intervals; negative ones count as 0."""
    total, reached = 0.0, float("-inf")
    for a, b in sorted(intervals):
        a = max(a, reached)
        if b > a:
            total += b - a
            reached = b
    return total


def merged(intervals: Iterable[Tuple[float, float]]) -> List[Tuple[float, float]]:
    """Returns the union of intervals, sorted and disjoint."""
    out: List[Tuple[float, float]] = []
    for a, b in sorted(intervals):
        if out and a <= out[-1][1]:
            out[-1] = out[-1][0], max(out[-1][1], b)
        elif b > a:
            out.append((a, b))
    return out


def without(intervals: Iterable[Tuple[float, float]], holes: List[Tuple[float, float]]) -> List[Tuple[float, float]]:
    """Returns the parts of intervals outside all holes, which are sorted and disjoint."""
    out: List[Tuple[float, float]] = []
    for a, b in merged(intervals):
        for x, y in holes:
            if y <= a or x >= b:
                continue
            if x > a:
                out.append((a, x))
            a = max(a, y)
        if b > a:
            out.append((a, b))
    return out


class _Nothing(Section):
    """A phase of an unrecorded step."""

    def __enter__(self) -> Section:
        return self

    def __exit__(self, kind: Any, error: Any, tb: Any) -> None:
        return None


_T = TypeVar("_T")


def _sizes(batch: Any) -> Optional[Tuple[int, int]]:
    """The number of parts of a batch such as (inputs, labels), and their common length; None for anything else."""
    if not isinstance(batch, (tuple, list)):
        return None
    try:
        parts: List[Any] = list(cast(Any, batch))
        if not 2 <= len(parts) <= 4 or isinstance(parts[0], (str, bytes)):
            return None
        lengths = {len(part) for part in parts}
    except Exception:
        return None
    return None if len(lengths) > 1 or len(parts) in lengths else (len(parts), lengths.pop())


@overload
def loop(name: str, iterable: None = None, *, item_type: Optional[str] = None, total_steps: Optional[int] = None,
         first: int = 1, schedule: Optional[Schedule] = None, stream: Any = None) -> Iterator[Step]: ...


@overload
def loop(name: str, iterable: Iterable[_T], *, item_type: Optional[str] = None, total_steps: Optional[int] = None,
         first: int = 1, schedule: Optional[Schedule] = None, stream: Any = None) -> Iterator[Tuple[Step, _T]]: ...


def loop(name: str, iterable: Optional[Iterable[Any]] = None, *, item_type: Optional[str] = None,
         total_steps: Optional[int] = None, first: int = 1, schedule: Optional[Schedule] = None,
         stream: Any = None) -> Iterator[Any]:
    """Creates a span for each step of a training or serving loop.

    Without an iterable it yields a Step per iteration, endlessly or total_steps times. With one it yields (Step,
    item), and the time that the iterable takes to produce the item is the phase "data". first is the index of the
    first step. The loop runs as it would without otelgpu, even if otelgpu is disabled or fails.
    """
    source = None if iterable is None else iter(iterable)
    boundary: Any = None
    previous: Optional[Step] = None
    index = first
    while total_steps is None or index - first < total_steps:
        step = _begin(name, index, item_type, schedule, stream, boundary)
        step.previous, previous = previous, None
        if step.previous is not None:
            step.previous.previous = None  # a chain of all steps would grow forever
        token = _attach(step)
        failed: Optional[BaseException] = None
        last = False
        item: Any = None
        try:
            if source is None:
                yield step
            else:
                data = step.phase("data")
                with data:
                    try:
                        item = next(source)
                    except StopIteration:
                        last = True
                        data.discard()
                if not last:
                    if index == first:
                        step._batch = _sizes(item)
                    yield step, item
                    item = None
        except GeneratorExit:
            # Python does not say why the loop was left: by break, or by an exception of the body.
            if step._runtime is not None and step.failure is None:
                step.failure = _raised(sys._getframe(1))
            raise
        except BaseException as e:
            failed = e
            raise
        finally:
            _detach(token)
            if last:
                _forget(step)
            else:
                boundary = _end(step, stream, failed)
        if last:
            return
        previous = step
        index += 1


# Instructions by which code leaves a loop or drops an iterator without an exception.
_LEAVES = {"POP_TOP", "POP_ITER", "END_FOR", "SWAP", "ROT_TWO", "RETURN_VALUE", "RETURN_CONST", "DELETE_FAST", "DELETE_NAME",
           "STORE_FAST", "STORE_NAME"}


def _raised(frame: Optional[types.FrameType]) -> Optional[Tuple[str, str]]:
    """Returns the failure of the code that abandoned a loop, if an exception leaves its frame. A frame that an exception
    leaves has a traceback at its current instruction, which only the garbage collector finds at this moment. The search
    takes as long as a collection, and is needed only if the instruction is not one that leaves a loop."""
    try:
        if frame is None or frame.f_code.co_flags & inspect.CO_GENERATOR or _instruction(frame) in _LEAVES:
            return None
        found = [x for x in gc.get_referrers(frame)
                 if isinstance(x, types.TracebackType) and x.tb_lasti == frame.f_lasti and x.tb_frame is frame]
        for trace_back in found:
            for error in gc.get_referrers(trace_back):
                if isinstance(error, BaseException) and error.__traceback__ is trace_back:
                    return failure(error) if isinstance(error, Exception) else None
        return ("_OTHER", "") if found else None  # Python before 3.12 connects them later
    except Exception:
        return None


def _instruction(frame: types.FrameType) -> str:
    import dis

    return dis.opname[frame.f_code.co_code[frame.f_lasti]]


def _begin(name: str, index: int, item_type: Optional[str], schedule: Optional[Schedule], stream: Any, boundary: Any) -> Step:
    rt = runtime()
    idle = Step(None, name, index, item_type)
    try:
        if not rt.settings.level or not (rt.settings.schedule if schedule is None else schedule).records(index):
            return idle
        above = trace.get_current_span()
        parent = above.get_span_context()
        if parent.is_valid and not parent.trace_flags.sampled:
            rt.counts["unsampled"] += 1
            return idle
        step = Step(rt, name, index, item_type)
        step._host_start = step._submitted = time.monotonic_ns()
        try:
            backend = rt.device_backend() if rt.settings.sync != "none" else None
            if backend is not None:
                on, key = backend.stream(stream)
                if not backend.capturing(on):
                    number = rt.stream_number(key)
                    if boundary is not None and boundary[0] == number:
                        step._start_event, step._submitted = boundary[1:]
                    else:
                        step._host_start = step._submitted = time.monotonic_ns()
                        step._start_event = backend.record(on)
                    step.device, step._stream_id = key[0], number
        except Exception as e:
            step.status = "device_error"
            rt.trouble("the first event of a step", repr(e))
        step._wall_start = time.time_ns()
        ranges = rt.settings.ranges
        if ranges is not None:
            step._range = ranges, ranges.start(_text(name), index=index)
        step._span = rt.tracer(step.device).start_span(_text(name), start_time=step._wall_start)
        if rt.comparison is not None and parent.is_valid:
            rt.comparison.observe(above)
        return step
    except Exception as e:
        rt.trouble("starting a step", repr(e))
        return idle


def _attach(step: Step) -> Any:
    if step._runtime is None:
        # Sections of an unrecorded step do not belong to an outer one.
        return None
    try:
        inside = trace.set_span_in_context(step._span)
        pushed = _capture.push_span(step._span.get_span_context())
        step._runtime.open_step = step
        return otel_context.attach(inside), inside, current_step.set(step), pushed
    except Exception as e:
        runtime().trouble("starting a step", repr(e))
        return None


def _detach(token: Any) -> None:
    if token is None:
        return
    attached, inside, step, pushed = token
    try:
        if pushed:
            _capture.pop()
        current_step.reset(step)
        if otel_context.get_current() is inside:
            otel_context.detach(attached)
    except ValueError:
        pass  # the generator was closed in another task or thread: that one's context is not ours to change
    except Exception as e:
        runtime().trouble("ending a step", repr(e))


def _forget(step: Step) -> None:
    """The iterable is exhausted: discards the step."""
    step.index = -1
    step.end_range()
    if step._span is not None:
        step._done = True


def _end(step: Step, stream: Any, failed: Optional[BaseException]) -> Any:
    """Ends the step and returns the boundary with which the next one may begin."""
    rt = step._runtime
    if rt is None or step._done:
        return None
    if rt.open_step is step:
        rt.open_step = None
    if rt is not runtime():
        return None  # the process before a fork has the step
    try:
        backend = rt.backend
        boundary = None
        try:
            if step._start_event is not None and backend is not None:
                on, key = backend.stream(stream)
                number = rt.stream_number(key)
                if number == step._stream_id and not backend.capturing(on):
                    submitted = time.monotonic_ns()
                    step._end_event = backend.record(on)
                    boundary = (number, step._end_event, submitted)
        except Exception as e:
            step.status = "device_error"
            rt.trouble("the last event of a step", repr(e))
        step._host_end = time.monotonic_ns()
        step.end_phases()
        step.end_range()
        if isinstance(failed, Exception):
            step.failure = failure(failed)
        rt.submit_step(step)
        return boundary
    except Exception as e:
        rt.trouble("ending a step", repr(e))
        step.abandon()
        return None
