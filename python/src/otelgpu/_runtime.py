# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
"""The single reader of events in the process, which creates the spans.

The program's threads append finished nests to a bounded queue. One daemon thread queries their events, takes clock
anchors, and creates the spans, parents first. A forked child starts with an empty queue and no thread: open sections
belong to the parent, which reports them.
"""

from __future__ import annotations

import atexit
import collections
import functools
import logging
import os
import sys
import threading
import time
from typing import Any, Callable, Deque, Dict, List, Optional, Sequence, Set, Tuple

from opentelemetry import trace
from opentelemetry.trace import Status, StatusCode

from . import _capture, _ids
from . import _names as n
from ._clock import DeviceClock, fits, wall_offset
from ._report import Collector, Report, duration
from ._settings import Settings
from ._device import Backend, find_backend

log = logging.getLogger("otelgpu")
# lines has a record for each section and step, which only its own level switches on.
lines = logging.getLogger("otelgpu.sections")
lines.setLevel(logging.WARNING)

SCOPE = "otelgpu"
# VERSION is the version of the package and of the instrumentation scope.
VERSION = "0.1.0"

MAX_PENDING = 8192     # finished nests with pending events; more are dropped and counted
MAX_NEST = 1024        # sections within one outermost section
MAX_NAMES = 4096       # names whose occurrences are counted
POLL = 0.02            # s between polls of events while something is pending
ANCHOR_EVERY = 0.5     # s between anchors while something is pending
HANG_DEADLINE = 120.0  # s after which unfinished work is reported with host times
ANCHOR_SOON = 0.1      # s between anchors while finished work awaits conversion
STEP_DEADLINE = 60.0   # s that an ended step waits for its sections
EXIT_DEADLINE = 5.0    # s that program exit waits for pending work
SLICE = 500_000        # ns that the reading thread creates spans without a pause
PAUSE = 0.0002         # s
END_DEADLINE = 5.0     # s that program exit waits for the end of the reading thread


def _text(value: Any, limit: int = 256) -> str:
    """Returns a name that OTLP accepts: a string within the length limit, without lone surrogates."""
    s = value if isinstance(value, str) else str(value)
    if s.isascii() and len(s) <= limit:
        return s
    return s[:limit].encode("utf-8", "replace").decode("utf-8")


def count(value: Any) -> int:
    """Returns a number of items or bytes, which an attribute of OTLP can have."""
    number = int(value)
    if not 0 <= number < 1 << 53:  # as in Go; exact as a float, and the sum of three fits
        raise ValueError(f"{_text(value, 40)} is not a whole number from 0 to 2^53")
    return number


def amount(value: Any) -> float:
    """Returns a number of operations."""
    number = float(value)
    if not 0 <= number <= 1e30:  # as in Go
        raise ValueError(f"{number} is not a number from 0 to 1e30")
    return number


# Values that a section declares: attribute of the span, and its type, in the order of Node.declared.
DECLARED: Dict[str, Callable[[Any], Any]] = {
    n.OPERATION_TYPE: str, n.OPERATION_ITEMS: count, n.OPERATION_ITEM_TYPE: _text, n.FLOP_COUNT: amount,
    n.FLOP_PRECISION: str, n.IO_SIZE: count, n.IO_READ_SIZE: count, n.IO_WRITE_SIZE: count, n.COPY_DIRECTION: str,
    n.COPY_HOST_MEMORY: str, n.OPERATION_CATEGORY: _text}
PLAIN = frozenset((type(None), str, int, float))


def line(measured: Optional[float], host: float, category: Optional[str], failed: Optional[Tuple[str, str]]) -> str:
    """Returns what a record states after the name; measured and host are times in s."""
    out = f": {duration(host)} (host)" if measured is None else f": {duration(measured)}"
    return out + (f", {category}" if category else "") + (f", failed: {failed[1]}" if failed else "")


class Node:
    """One section: its declared values, its two events, and their results."""

    # Defaults belong to the class, so that creating a node on the program's thread is one assignment.
    declared: Tuple[Any, ...] = (None,) * len(DECLARED)
    attributes: Dict[str, Any] = {}
    context: Any = None  # of the parent span; None: the parent is the section above
    here: Any = None     # the program's context at the start
    up: Optional["Node"] = None   # the section above, which may have ended before this one began
    top: Optional["Node"] = None  # the outermost section above
    submitted = False             # the outermost section has ended
    emitted: Optional[trace.SpanContext] = None
    lost = False
    links: Sequence[Tuple[trace.SpanContext, Optional[int]]] = ()
    requests = 0
    linked_items = 0
    children: List["Node"] = []  # replaced by the first child
    step: Any = None
    phase: Optional[str] = None
    error: Optional[str] = None
    message: Optional[str] = None
    stream: Any = None
    stream_id: Optional[int] = None
    device: Optional[int] = None
    start_event: Any = None
    end_event: Any = None
    host_start = 0
    host_end = 0
    status = "ok"
    start = 0.0
    end = 0.0
    bound: Optional[float] = None  # of the position, in ns
    elapsed: Optional[float] = None
    first = False
    size = 1
    devices: Set[int] = set()  # of an outermost section: where it and those within it are timed

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def timed(self) -> bool:
        return self.end_event is not None and self.start_event is not None

    def walk(self) -> "Sequence[Node]":
        """Returns the section and all its descendants, parents first."""
        if not self.children:
            return (self,)
        out: List[Node] = []
        waiting = [self]
        while waiting:  # a nest can be deeper than Python's stack
            node = waiting.pop()
            out.append(node)
            waiting += reversed(node.children)
        return out

    def request_links(self) -> List[trace.Link]:
        """Returns a link for each request. Shares are computed from items, unless some requests have no link."""
        out: List[trace.Link] = []
        for context, items in self.links:
            attributes: Optional[Dict[str, Any]] = None
            if items:
                attributes = {n.OPERATION_ITEMS: int(items)}
                if self.requests > len(self.links):
                    attributes[n.BATCH_SHARE] = items / self.linked_items
            out.append(trace.Link(context, attributes))
        return out


class Runtime:
    """State of one process."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.wake = threading.Condition(self.lock)
        self.backend: Optional[Backend] = None
        self.inbox: Deque[Node] = collections.deque()  # appended to without the lock
        self.pending: Dict[Any, Deque[Node]] = {}
        self.steps: Deque[Any] = collections.deque()
        self.held = 0  # nests from the inbox without spans yet; used by the reading thread only
        self.counts: Dict[str, int] = collections.Counter()
        self.names: Set[str] = set()
        self.streams: Dict[Any, int] = {}
        self.thread: Optional[threading.Thread] = None
        self.reading = threading.Lock()  # of threads that read instead of it
        self.idle = False
        self.stopping = False
        self.flushing = 0
        self.hurry = threading.Event()
        self.clocks: Dict[int, DeviceClock] = {}
        self.finished: List[Tuple[float, Node]] = []
        self.tracers: Dict[Optional[int], Tuple[Any, Any]] = {}
        self.said: Set[str] = set()
        self.settings = Settings(self.trouble)
        self.report = Collector()
        self.step_files: List[Any] = []  # of step_csv()
        self.scopeless = False  # scopes of the provider have no attributes
        self.provider: Any = None
        self.comparison: Optional[_ids.Comparison] = None  # of the program's span IDs; None: they are unique
        self.not_captured = False  # the driver has started without the capture library, which it never loads later
        self.open_step: Any = None  # of the newest running loop
        self.yielded = 0  # when the reading thread last paused, in ns of the monotonic clock

    # -- called by the program -----------------------------------------------------------------------------------------

    def trouble(self, where: str, reason: str, counter: str = "error") -> None:
        """Counts errors and logs each once per location."""
        self.counts[counter] += 1
        if where not in self.said and len(self.said) < 64:
            self.said.add(where)
            log.warning("otelgpu: %s: %s; the program continues; such losses are counted in otelgpu.stats()", where, reason)

    def device_backend(self) -> Optional[Backend]:
        if self.backend is None:
            try:
                self.backend = find_backend()
                self.not_captured = self.backend is not None and not _capture.wanted()
            except Exception as e:
                self.trouble("cannot use the device", repr(e))
        return self.backend

    def first_time(self, name: str) -> bool:
        """Reports whether this is the first section of that name."""
        if name in self.names:
            return False
        with self.lock:
            if name in self.names:
                return False
            if len(self.names) < MAX_NAMES:
                self.names.add(name)
            return True

    def stream_number(self, key: Any) -> int:
        """Returns a small number of the stream, from 1, stable within this process."""
        with self.lock:
            return self.streams.setdefault(key, len(self.streams) + 1)

    def submit(self, root: Node) -> None:
        """Enqueues a nest whose outermost section has ended."""
        provider = trace.get_tracer_provider()
        if provider is not self.provider:
            self.attach(provider)
        reason = self._refusal(self.held + len(self.inbox))
        if reason:
            self.drop(root, reason)
            return
        root.submitted = True
        self.inbox.append(root)
        # The reading thread sets idle before it reads the inbox for the last time, so one of the two sees the other.
        if self.idle or self.thread is None:
            with self.wake:
                self._awake()

    def submit_step(self, step: Any) -> None:
        """Enqueues a step that has ended on the host."""
        self.attach(trace.get_tracer_provider())
        with self.wake:
            reason = self._refusal(len(self.steps))
            if not reason:
                self.steps.append(step)
                self._awake()
            else:
                self.counts[reason] += 1
        if reason:
            step.abandon()

    def jumped(self) -> str:
        """Reports a jump of the device's clock, and returns the status of what it hit."""
        self.trouble("the device's clock jumped", "such sections have host times")
        return "clock_jump"

    def drop(self, root: Node, reason: str) -> None:
        """Counts a nest without spans, and releases its steps."""
        root.submitted = True
        for node in root.walk():
            with self.lock:
                self.counts[reason] += 1
            node.lost, node.up, node.top = True, None, None
            if node.step is not None:
                node.step.closed(node)

    def _refusal(self, queued: int) -> str:
        if self.stopping:
            return "dropped.shutdown"
        return "dropped.queue_full" if queued >= MAX_PENDING else ""

    def _awake(self) -> None:
        if self.thread is None or not self.thread.is_alive():
            thread = threading.Thread(target=self._run, name="otelgpu", daemon=True)
            try:
                thread.start()
            except RuntimeError:
                return  # the interpreter is ending, and starts no threads any more: stop() reads what is pending
            self.thread = thread
        if self.idle:
            self.wake.notify_all()

    def flush(self, timeout: float) -> bool:
        """Waits until all ended sections have become spans; returns False on timeout."""
        deadline = time.monotonic() + timeout
        with self.wake:
            self.flushing += 1
            self.hurry.set()
        try:
            while self.inbox or self.held or self.steps:
                left = deadline - time.monotonic()
                if left <= 0 or self.stopping:
                    return False
                if self.thread is None or not self.thread.is_alive():
                    self._read_here()
                    continue
                with self.wake:
                    if self.inbox or self.held or self.steps:
                        self.wake.wait(min(left, 0.05))
            return True
        finally:
            with self.wake:
                self.flushing -= 1
                if not self.flushing:
                    self.hurry.clear()

    def _read_here(self) -> None:
        """Polls once on the calling thread, without reading thread."""
        if self.reading.acquire(blocking=False):
            try:
                self.poll()
            except Exception as e:
                self.trouble("reading events", repr(e))
            finally:
                self.reading.release()
        time.sleep(0.0005)

    def stop(self, timeout: float) -> None:
        """Waits for pending work, and ends the reading thread for good. Python would end the thread where it takes the
        GIL next; inside a call of torch this aborts the process."""
        if self.stopping:
            return
        if self.inbox or self.held or self.steps:
            self.flush(timeout)
        with self.wake:
            self.stopping = True
            self.hurry.set()
            self.wake.notify_all()
            thread = self.thread
        if thread is not None and thread.is_alive():
            thread.join(END_DEADLINE)
        self._compare_ids()
        if self.backend is not None:
            self.backend.close(END_DEADLINE)
        if self.settings.print_report and (self.report.positions or self.report.loops):
            try:
                print(report(), file=sys.stderr)
            except Exception as e:
                self.trouble("printing the report", repr(e))
        with self.lock:
            waiting = [*self.inbox, *(r for q in self.pending.values() for r in q), *(r for _, r in self.finished)]
            lost = sum(r.size for r in waiting)
            if not lost and not self.steps:
                return
            self.counts["dropped.exit"] += lost + len(self.steps)
        log.warning("otelgpu: %d sections are lost: the device or the exporter of spans had not finished %g s after the end of the program",
                    lost, timeout)

    # -- the reading thread -------------------------------------------------------------------------------------------

    def _run(self) -> None:
        relaxed = False
        while True:
            with self.wake:
                self.idle = True
                while not (self.stopping or self.inbox or self.held or self.steps):
                    self.wake.wait()
                self.idle = False
                if self.stopping:
                    return
            if self.hurry.wait(POLL):
                time.sleep(0.0005)  # a flush waits: poll often, but let the program run
            try:
                if self.backend is not None and not relaxed:
                    relaxed = True
                    self.backend.relax_capture_mode()
            except Exception as e:
                self.trouble("cannot exchange the capture mode of the reading thread", repr(e))
            self.yielded = time.monotonic_ns()
            try:
                self.poll()
            except Exception as e:
                self.trouble("reading events", repr(e))

    def poll(self) -> None:
        """Polls everything that is pending once."""
        now = time.monotonic_ns()
        with self.lock:
            while self.inbox:
                self.held += 1
                root = self.inbox.popleft()
                root.devices = {node.device for node in root.walk() if node.timed and node.device is not None}
                self.pending.setdefault(root.stream, collections.deque()).append(root)
            queues = list(self.pending.items())
        self._anchor(now)
        for key, queue in queues:
            while queue and self._ready(queue[0], now):
                root = queue.popleft()
                self.finished.append((time.monotonic_ns(), root))
            if not queue:
                with self.lock:
                    if not queue:
                        self.pending.pop(key, None)
        self._place()
        self._end_steps(now)
        self._compare_ids()

    def _anchor(self, now: float) -> None:
        """Takes anchors of each device with pending work: regularly, and after work finished."""
        with self.lock:
            devices = {s.device for s in self.steps if s.device is not None}
            devices = devices.union(*(q[0].devices for q in self.pending.values() if q))
        done: Set[int] = set().union(*(root.devices for _, root in self.finished))
        devices |= done
        for device in devices:
            clock = self.clocks.setdefault(device, DeviceClock(self.backend, device))
            every = ANCHOR_EVERY
            if device in done:
                every = 0.0 if self.flushing else ANCHOR_SOON
            if now - clock.newest >= every * 1e9:
                try:
                    clock.take()
                except Exception as e:
                    self.trouble("cannot take an anchor of the device's clock", repr(e))

    def _ready(self, root: Node, now: float) -> bool:
        try:
            # Of the nodes on the root's stream the root ends last.
            done = root.end_event is None or root.end_event.query()
            if done and root.children:
                for node in root.walk():
                    seen = root.end_event is not None and node.stream == root.stream
                    if node.end_event is not None and not seen and not node.end_event.query():
                        done = False
                        break
        except Exception as e:
            self.trouble("the device failed", repr(e))
            return self._untimed(root, "device_error")
        if not done and now - root.host_end > HANG_DEADLINE * 1e9:
            return self._untimed(root, "timeout")
        return done

    @staticmethod
    def _untimed(root: Node, status: str) -> bool:
        """Gives a nest host times."""
        root.devices = set()
        for node in root.walk():
            if node.timed:
                node.status = status
        return True

    def _place(self) -> None:
        """Converts and emits nests that have a later anchor, or need none."""
        if not self.finished:
            return
        rest: List[Tuple[float, Node]] = []
        offset = wall_offset()
        for seen, root in self.finished:
            clocks = [self.clocks.get(device) for device in root.devices]
            hopeless = time.monotonic_ns() - seen > HANG_DEADLINE * 1e9
            up = root.up if root.context is None else None
            early = up is not None and up.emitted is None and not up.lost
            if (early or any(clock is None or clock.newest < seen for clock in clocks)) and not hopeless:
                rest.append((seen, root))
                continue
            try:
                self._settle(root, 0 if hopeless else seen, offset)
            except Exception as e:
                self.counts["dropped.error"] += root.size
                self.trouble("making a span", repr(e))
            self.held -= 1
            self._yield()
        self.finished = rest
        with self.wake:
            self.wake.notify_all()

    def _yield(self) -> None:
        """Releases the GIL after a while: a thread of the program that wants it would wait up to sys.getswitchinterval()
        (5 ms) after each call of torch. With a long queue, or while a flush waits, throughput counts more."""
        now = time.monotonic_ns()
        if now - self.yielded > SLICE and not self.flushing and self.held + len(self.inbox) < MAX_PENDING // 4:
            time.sleep(PAUSE)
            self.yielded = time.monotonic_ns()

    def _settle(self, root: Node, seen: float, offset: int) -> None:
        for node in root.walk():
            clock = self.clocks.get(node.device) if node.device is not None and seen else None
            node.declared = self.converted(node.declared)
            node.start, node.end = float(node.host_start), float(node.host_end)
            if node.timed and node.status == "ok" and clock is not None:
                try:
                    length = float(node.start_event.elapsed_time(node.end_event)) * 1e6
                    if fits(length, node.host_start, seen):
                        node.start, node.bound = clock.place(node.start_event, length, (node.host_start, seen))
                        node.end, node.elapsed = node.start + length, length / 1e9
                    else:
                        node.status = self.jumped()
                except Exception as e:
                    node.elapsed, node.status = None, "device_error"
                    node.start, node.end = float(node.host_start), float(node.host_end)
                    self.trouble("reading events", repr(e))
            if node.step is not None:
                node.step.closed(node)
            if node.elapsed is not None and node.device is not None and self.backend is not None:
                self.backend.recycle(node.device, node.start_event, node.end_event)
                node.start_event = node.end_event = None
        if self.backend is not None:
            for device in root.devices:
                model = self.backend.identity(device).get(n.HW_MODEL)
                if model:
                    self.report.devices[device] = model
        self.report.add(root)
        if lines.isEnabledFor(logging.INFO):
            for node in root.walk():
                failed = (node.error, node.message or "") if node.error is not None else None
                lines.info("%s%s", node.name, line(node.elapsed, (node.end - node.start) / 1e9, node.declared[-1], failed))
        if self.comparison is not None and root.context is not None:
            self.comparison.observe(trace.get_current_span(root.context))
        self._emit(root, self._context(root), offset)

    @staticmethod
    def _context(root: Node) -> Any:
        """Returns the context of the parent, which may be a section that ended before this one."""
        if root.context is not None or root.up is None or root.up.emitted is None:
            return root.here if root.context is None else root.context
        return trace.set_span_in_context(trace.NonRecordingSpan(root.up.emitted))

    def _emit(self, root: Node, context: Any, offset: int) -> None:
        waiting, opened = [(root, context)], []
        while waiting:
            node, context = waiting.pop()
            try:
                span = self.tracer(node.device).start_span(
                    node.name, context=context, links=node.request_links() if node.links else None,
                    attributes=self.describe(node), start_time=int(node.start) + offset)
                opened.append((node, span))
                node.emitted = span.get_span_context()
                if node.error is not None:
                    span.set_status(Status(StatusCode.ERROR, node.message))
                if node.children:
                    context = trace.set_span_in_context(span, context)
                self.counts["spans"] += 1
            except Exception as e:
                self.counts["dropped.error"] += 1
                node.lost = True
                self.trouble("making a span", repr(e))
            node.up = node.top = None
            # A child of one of the program's own spans keeps that parent.
            waiting += [(child, context if child.context is None else child.context) for child in node.children]
        for node, span in reversed(opened):  # parents last
            try:
                span.end(end_time=max(int(node.end), int(node.start)) + offset)
            except Exception as e:
                self.trouble("ending a span", repr(e))

    def describe(self, node: Node) -> Dict[str, Any]:
        """Returns the attributes of a section: measured values first, because an attribute limit drops from the end."""
        declared = node.declared
        out: Dict[str, Any] = {n.OPERATION_TYPE: declared[0]}
        if node.elapsed is not None:
            out[n.DURATION] = node.elapsed
            if node.bound is not None:
                out[n.TIMING_ERROR] = node.bound / 1e9
            out[n.START_DELAY] = (node.start - node.host_start) / 1e9
            out[n.END_DELAY] = (node.end - node.host_end) / 1e9
        out.update(self.timing(node.elapsed is not None, node.status, node.device))
        for key, value in zip(DECLARED, declared):
            if value is not None:
                out[key] = value
        if n.FLOP_COUNT not in out:
            out.pop(n.FLOP_PRECISION, None)
        if n.IO_SIZE in out:  # otherwise the size is the sum of read and written
            out[n.IO_SIZE] += out.get(n.IO_READ_SIZE, 0) + out.get(n.IO_WRITE_SIZE, 0)
        out.update(node.attributes)
        for key, words in n.WORDS.items():
            if key in out and out[key] not in words:
                self.trouble(key, f"{out[key]!r} is not one of {', '.join(words)}")
        if node.requests > len(node.links):
            out[n.BATCH_SIZE] = node.requests
        if node.first:
            out[n.OPERATION_OCCURRENCE] = 1
        if node.stream_id is not None:
            out[n.STREAM_ID] = node.stream_id
        if node.error is not None:
            out[n.ERROR_TYPE] = node.error
        return out

    def converted(self, values: Sequence[Any]) -> Tuple[Any, ...]:
        """Returns declared values with their types."""
        return tuple(None if value is None else self.value(key, kind, value) for value, (key, kind) in zip(values, DECLARED.items()))

    def value(self, key: str, kind: Callable[[Any], Any], value: Any) -> Any:
        """Returns a declared value with its type; another value is reported and omitted."""
        try:
            return kind(value)
        except Exception as e:
            self.trouble(key, repr(e))
            return None

    def timing(self, timed: bool, status: str, device: Optional[int]) -> Dict[str, Any]:
        """Returns how the times were measured, and on which device."""
        out: Dict[str, Any] = {}
        backend = self.backend
        out[n.TIMING_SOURCE] = backend.source if timed and backend is not None else "host"
        if status != "ok":
            out[n.TIMING_STATUS] = status
        if device is not None and backend is not None:
            identity = backend.identity(device)
            for key in identity if self.scopeless else (n.HW_ID, n.HW_NAME):
                if key in identity:
                    out[key] = identity[key]
        return out

    def tracer(self, device: Optional[int]) -> Any:
        """Returns the tracer of a device, with the device's identity on the instrumentation scope."""
        provider = trace.get_tracer_provider()
        self.attach(provider)
        known = self.tracers.get(device)
        if known is not None and known[0] is provider:
            return known[1]
        attributes = {}
        if device is not None and self.backend is not None:
            attributes = dict(self.backend.identity(device))
            attributes[n.TIMING_SOURCE] = self.backend.source
        try:
            tracer = provider.get_tracer(SCOPE, VERSION, attributes=attributes or None)
        except TypeError:  # the provider of another vendor
            self.scopeless = True
            tracer = provider.get_tracer(SCOPE, VERSION)
        _ids.replace(tracer)
        self.tracers[device] = (provider, tracer)
        return tracer

    def attach(self, provider: Any) -> None:
        """Makes the provider wait for pending sections before it shuts down or flushes, and reports a missing SDK
        once. A span processor cannot do this: the SDK calls processors in registration order, ours last."""
        if provider is self.provider:
            return
        self.provider = provider
        if isinstance(provider, (trace.ProxyTracerProvider, trace.NoOpTracerProvider)):
            if "sdk" not in self.said:
                self.said.add("sdk")
                log.warning("otelgpu: no OpenTelemetry SDK is configured, so no span is sent (set a TracerProvider before "
                            "the first section, or start the program by opentelemetry-instrument)")
            return
        if _ids.seeded(provider) and "ids" not in self.said:
            job, rank, ranks = _job_of_ranks()
            if ranks > 1:
                self.comparison = _ids.Comparison(job, rank, SCOPE)
        else:
            self.comparison = None
        # Handlers of atexit run in reverse order, and the provider has registered its shutdown.
        atexit.unregister(_end)
        atexit.register(_end)
        for name in ("shutdown", "force_flush"):
            method = getattr(provider, name, None)
            if method is not None and not getattr(method, "_otelgpu", False):
                try:
                    setattr(provider, name, _after_flush(method))
                except AttributeError:
                    pass  # a provider with __slots__: program exit still waits

    def _compare_ids(self) -> None:
        """Logs once if ranks of this host share the IDs of the program's own spans."""
        comparison = self.comparison
        if comparison is None or comparison.done:
            return
        try:
            if comparison.equal():
                self.said.add("ids")
                log.warning("otelgpu: ranks of this job share the trace and span IDs of the program's own spans, because the SDK draws "
                            "them from Python's `random`, which the ranks seed alike (pass id_generator=otelgpu.ids.UniqueIds() to "
                            "the TracerProvider, or set OTEL_PYTHON_ID_GENERATOR=otelgpu for opentelemetry-instrument); otelgpu's "
                            "spans have unique IDs")
        except Exception as e:
            comparison.done = True
            log.debug("otelgpu: cannot compare the span IDs of ranks: %r", e)

    def _end_steps(self, now: float) -> None:
        with self.lock:
            waiting = list(self.steps)
        done: List[Any] = []
        offset = wall_offset()
        for step in waiting:
            try:
                if not step.ready(now):
                    continue
            except Exception as e:
                self.trouble("the device failed", repr(e))
                step.status = "device_error"
            done.append(step)
            try:
                clock = self.clocks.get(step.device) if step.device is not None else None
                step.finish(clock, offset)
            except Exception as e:
                self.trouble("ending a step", repr(e))
                step.abandon()
        if done:
            with self.wake:
                for step in done:
                    self.steps.remove(step)
                self.wake.notify_all()


def _after_flush(method: Callable[..., Any]) -> Callable[..., Any]:
    """Calls the provider's method after ended sections have become spans."""
    @functools.wraps(method)
    def around(*args: Any, **kwargs: Any) -> Any:
        rt = _runtime
        if threading.current_thread() is not rt.thread:
            rt.flush(EXIT_DEADLINE)
        return method(*args, **kwargs)

    setattr(around, "_otelgpu", True)
    return around


def _job_of_ranks() -> Tuple[str, int, int]:
    """Returns the job of this process, its rank, and the number of ranks; 0 without a launcher."""
    from ._job import job

    found = job()
    rank, ranks = found.get(n.JOB_RANK), found.get(n.JOB_WORLD_SIZE)
    if not isinstance(rank, int) or not isinstance(ranks, int):
        return "", 0, 0
    return str(found.get(n.JOB_ID) or os.getppid()), rank, ranks


_runtime = Runtime()
_before_fork: List[Runtime] = []  # kept, because the destruction of their events would call the driver


def runtime() -> Runtime:
    return _runtime


def _after_fork() -> None:
    """Gives a forked child its own empty state. The parent's locks may be locked, and its thread does not exist
    here."""
    global _runtime
    _before_fork.append(_runtime)
    _runtime = Runtime()
    _runtime.settings = _before_fork[-1].settings


def _exit() -> None:
    """Runs at the end of the main thread, also of a process that multiprocessing forked. Other threads of the program
    may go on, with new sections; then the process ends later, with _end."""
    if all(t.daemon or t is threading.current_thread() for t in threading.enumerate()):
        _end()


def _end() -> None:
    _runtime.stop(EXIT_DEADLINE)


def flush(timeout: float = 5.0) -> bool:
    """Waits up to timeout seconds until all ended sections are spans in the OpenTelemetry SDK; returns False on
    timeout. The SDK's own force_flush sends them. Program exit calls it, for up to 5 s."""
    return _runtime.flush(timeout)


def report() -> Report:
    """Returns the sections and steps of the process so far, which have been read: call flush() before for all that have
    ended. print(otelgpu.report()) shows tables; to_dict(), to_csv() and log() are other forms."""
    with _runtime.lock:
        lost = {k: v for k, v in _runtime.counts.items() if k not in ("spans", "unsampled")}
    return _runtime.report.snapshot(lost)


def reset_report() -> None:
    """Restarts the report, such as after a warm-up."""
    _runtime.report.reset()


def stats() -> Dict[str, int]:
    """Returns counts since the start of the process: spans created, sections skipped (unsampled, disabled), and losses
    by reason (dropped.queue_full, dropped.nest_full, dropped.exit, dropped.shutdown, dropped.error, error), and phases
    that were open at the end of their step (unended)."""
    with _runtime.lock:
        return dict(_runtime.counts)


# The SDK's provider shuts down in a handler of atexit that may run before ours. threading runs its handlers earlier, before
# it joins the threads; concurrent.futures relies on them, too.
atexit.register(_end)
try:
    threading._register_atexit(_exit)  # type: ignore[attr-defined]
except (AttributeError, RuntimeError):
    pass
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
