# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
"""Sections: a timed part of a stream, with any number of launches."""

from __future__ import annotations

import contextvars
import functools
import inspect
import sys
import time
from typing import Any, AsyncGenerator, Callable, Dict, Generator, Iterable, List, Optional, Tuple, TypeVar, Union, cast

from opentelemetry import context as otel_context
from opentelemetry import trace

from . import _capture
from . import _names as n
from ._names import VERBOSITIES, CopyDirection, HostMemory, OperationType, Precision, Verbosity
from ._runtime import HANG_DEADLINE, MAX_NEST, PLAIN, Node, Runtime, _text, count, runtime

_current: "contextvars.ContextVar[Optional[Section]]" = contextvars.ContextVar("otelgpu_section", default=None)
current_step: "contextvars.ContextVar[Any]" = contextvars.ContextVar("otelgpu_step", default=None)

MAX_LINKS = 128  # of one section, as the SDK's default

_F = TypeVar("_F", bound=Callable[..., Any])

Linkable = Any  # a Context, a Span or a SpanContext


def span_context(of: Linkable) -> trace.SpanContext:
    if isinstance(of, trace.SpanContext):
        return of
    if isinstance(of, trace.Span):
        return of.get_span_context()
    return trace.get_current_span(of).get_span_context()


def compiling() -> bool:
    """Reports whether torch.compile traces the caller. This module never imports torch, which may be imported after
    it."""
    torch = sys.modules.get("torch")
    compiler = getattr(torch, "compiler", None)
    return compiler is not None and bool(compiler.is_compiling())


def failure(error: Union[BaseException, str]) -> Tuple[str, str]:
    """Returns error.type and the description of the status."""
    if isinstance(error, BaseException):
        kind = type(error).__qualname__
        return kind, _text(f"{kind}: {error}")
    return "_OTHER", _text(error)


# Values that a decorator's calls and a nested use of one object repeat.
_GIVEN = ("name", "type", "category", "items", "item_type", "flops", "precision", "read", "written", "size", "copy",
          "host_memory", "batched", "attributes", "_level", "_given_stream", "_given_links", "_step", "_phase")


class Section:
    """One section: a with statement, or a decorator. Its attributes may be set until its end.

    items: elements processed. flops: operations, a multiply-add is two. read, written: bytes of device memory; size:
    bytes of a copy, or if the direction is unknown. precision: fp64, fp32, tf32, fp16, bf16, fp8, fp4, int8. type:
    section (default), copy (with copy= its direction: host_to_device, device_to_host, device_to_device,
    peer_to_peer), collective, graph, or host for host work (such as compilation). stream: a stream of torch, CuPy,
    Numba or cuda.core, or its handle; the current one by default. verbosity: default, verbose or debug, from which on
    configure() or OTELGPU_VERBOSITY lets the section be recorded. batched=True records the section when any linked
    request is sampled, also below an unsampled span.

    A decorated generator is one section from its first item until it is exhausted or closed, and a function that
    returns a future one until the future is done.
    """

    _step: Any = None
    _phase: Optional[str] = None
    _links: List[Tuple[trace.SpanContext, Optional[int]]] = []  # replaced by the first link
    _requests = 0
    _linked_items = 0
    _runtime: Optional[Runtime] = None  # while the section is open
    _ran_in: Optional[Runtime] = None
    _node: Optional[Node] = None
    _outer: Optional["Section"] = None  # current before this one
    _nested: List["Section"] = []  # further uses of this object while it is open; replaced by the first
    _inside = False  # current in its context, or above a current section
    _span: Any = None
    _stream: Any = None
    _failure: Optional[Tuple[str, str]] = None
    _pushed = False
    _range: Any = None  # NVTX
    _known: Optional[float] = None  # elapsed, after a wait for the device
    _level = 1          # index of the verbosity

    def __init__(self, name: str, *, type: OperationType = "section", category: Optional[str] = None,
                 items: Optional[int] = None, item_type: Optional[str] = None, flops: Optional[float] = None,
                 precision: Optional[Precision] = None, read: Optional[int] = None, written: Optional[int] = None,
                 size: Optional[int] = None, copy: Optional[CopyDirection] = None,
                 host_memory: Optional[HostMemory] = None, stream: Any = None,
                 verbosity: Verbosity = "default", batched: bool = False,
                 links: Iterable[Union[Linkable, Tuple[Linkable, int]]] = (),
                 attributes: Optional[Dict[str, Any]] = None) -> None:
        self.name = name
        self.type: str = type
        self.category = category
        self.items = items
        self.item_type = item_type
        self.flops = flops
        self.precision: Optional[str] = precision
        self.read = read
        self.written = written
        self.size = size
        self.copy: Optional[str] = copy
        self.host_memory: Optional[str] = host_memory
        self.batched = batched
        self.attributes = attributes
        self._given_stream = stream
        self._given_links = links
        if verbosity != "default":
            if verbosity in VERBOSITIES[1:]:
                self._level = VERBOSITIES.index(verbosity)
            else:
                runtime().trouble("verbosity", f"{verbosity!r} is not one of {', '.join(VERBOSITIES[1:])}")

    @property
    def elapsed(self) -> Optional[float]:
        """GPU time in seconds; None until it is known, and if no device was timed. Never waits."""
        return self._node.elapsed if self._node is not None and self._known is None else self._known

    def link(self, request: Linkable, items: Optional[int] = None) -> None:
        """Links the section to a request that it serves, with that many of its items. A batch serves many requests."""
        try:
            self._requests += 1
            items = None if items is None else runtime().value(n.OPERATION_ITEMS, count, items)
            self._linked_items += items or 0
            if not self._links:
                self._links = []
            if len(self._links) < MAX_LINKS:
                self._links.append((span_context(request), items))
        except Exception as e:
            runtime().trouble("linking a request", repr(e))

    def fail(self, error: Union[BaseException, str]) -> None:
        """Marks the open section as failed: its span gets the status ERROR with the text, and error.type. A with
        statement does this by itself for an exception that leaves it."""
        self._failure = failure(error)

    def discard(self) -> None:
        """Discards the open section with all its descendants."""
        node, self._node = self._node, None
        if node is not None:
            if node.first:
                runtime().names.discard(node.name)
            for inner in node.walk():
                inner.lost = True
                if inner.step is not None:
                    inner.step.forgot(inner)

    def __enter__(self) -> "Section":
        if compiling():
            return self  # sections would break the graph of a compiled region
        rt = runtime()
        if rt.settings.level < self._level:
            return self
        if self._runtime is rt:  # open already: each use is a section
            again = self._again()
            self._nested = [*self._nested, again]
            return again.__enter__()
        try:
            self._begin(rt)
        except Exception as e:
            self._node = None
            rt.trouble("starting a section", repr(e))
        return self

    def __exit__(self, kind: Any, error: Any, tb: Any) -> None:
        if self._nested:
            here = _current.get()
            again = here if here in self._nested else self._nested[-1]
            self._nested = [s for s in self._nested if s is not again]
            again.__exit__(kind, error, tb)
            return
        rt = self._runtime
        if rt is None:
            return
        self._runtime = None
        # As in the SDK, exceptions that only leave the code, such as GeneratorExit and CancelledError, are no failures.
        if isinstance(error, Exception):
            self._failure = failure(error)
        try:
            self._end(rt)
        except Exception as e:
            rt.trouble("ending a section", repr(e))

    def __call__(self, f: _F) -> _F:
        """As a decorator: each call is a separate section."""
        if inspect.isasyncgenfunction(f):
            return cast(_F, functools.wraps(f)(_over_async(self._again, f)))
        if inspect.isgeneratorfunction(f):
            @functools.wraps(f)
            def around_items(*args: Any, **kwargs: Any) -> Any:
                return (yield from self._again()._over(f(*args, **kwargs)))
            return cast(_F, around_items)
        if inspect.iscoroutinefunction(f):
            @functools.wraps(f)
            async def around_async(*args: Any, **kwargs: Any) -> Any:
                with self._again():
                    return await f(*args, **kwargs)
            return cast(_F, around_async)

        @functools.wraps(f)
        def around(*args: Any, **kwargs: Any) -> Any:
            section = self._again()
            with section:
                out: Any = f(*args, **kwargs)
                if type(out) in PLAIN or not _unfinished(out):
                    return out
                if hasattr(out.__class__, "add_done_callback"):
                    return section._until_done(out)
                section.discard()  # nothing of a coroutine or generator has run yet
            section = self._again()
            if inspect.isgenerator(out):
                return section._over(out)
            return _over_async(lambda: section, lambda: out)() if inspect.isasyncgen(out) else section._awaiting(out)
        return cast(_F, around)

    def _over(self, items: Any) -> Generator[Any, Any, Any]:
        """Runs a generator as one section, which is not current while the generator is suspended."""
        with self:
            self._suspend()
            sent, thrown = None, None
            while True:
                self._resume()
                try:
                    item = items.send(sent) if thrown is None else items.throw(thrown)
                except StopIteration as stop:
                    return stop.value
                finally:
                    self._suspend()
                try:
                    sent, thrown = (yield item), None
                except GeneratorExit:
                    items.close()
                    raise
                except BaseException as e:
                    sent, thrown = None, e

    async def _awaiting(self, coroutine: Any) -> Any:
        with self:
            return await coroutine

    def _until_done(self, future: Any) -> Any:
        """Hands the open section over to a future, whose end is the section's."""
        self._suspend()
        ended = Section(self.name)
        ended.__dict__.update(self.__dict__)

        def done(_: Any) -> None:
            error = None
            try:
                error = future.exception()
            except BaseException:
                pass  # cancelled, or a future without this method
            ended.__exit__(None, error, None)

        future.add_done_callback(done)
        self._runtime = None  # the with statement has nothing to end
        if ended._node is not None and ended._node.step is not None:
            ended._node.step.running(ended, ended._node)
        return future

    def _suspend(self) -> None:
        """Makes the section no longer current, without ending it."""
        if self._inside:
            self._leave()
        if self._pushed:
            self._pushed = False
            _capture.pop()

    def _resume(self) -> None:
        if self._runtime is not None and self._span is not None:
            self._enter()
            self._pushed = _capture.push_span(self._span.get_span_context(), self._links)

    def _enter(self) -> None:
        self._inside, self._outer = True, _current.get()
        _current.set(self)

    def _leave(self) -> None:
        self._inside = False
        here = _current.get()
        if here is self:
            _current.set(self._outer)
            return
        # A section that began later is still open, or this is a different task or thread.
        while here is not None and here._outer is not self:
            here = here._outer
        if here is not None:
            here._outer = self._outer

    def _again(self) -> "Section":
        again = object.__new__(Section)
        given = self.__dict__
        again.__dict__.update({k: given[k] for k in _GIVEN if k in given})
        return again

    def _begin(self, rt: Runtime) -> None:
        self._failure = self._known = None
        for link in rt.value("links", tuple, self._given_links) or ():
            request, items = cast(Tuple[Any, Optional[int]], link if isinstance(link, tuple) else (link, None))
            self.link(request, items)
        here = otel_context.get_current()
        span = trace.get_current_span(here)
        parent = span.get_span_context()
        if not self._wanted(parent):
            rt.counts["unsampled"] += 1
            return
        node = Node(_text(self.name))
        node.first = rt.first_time(node.name)
        node.context, node.here = here, here
        node.step, node.phase = self._step or current_step.get(), self._phase
        outer = _current.get()
        # A section from the copied context of another thread or task may have ended, or belong to the process before a
        # fork.
        if outer is not None and outer._ran_in is rt and outer._node is not None:
            if outer._span is span or not parent.is_valid:
                node.context = None  # child of the section, not of a span of the program
            node.up, node.top = outer._node, outer._node.top or outer._node
        self._span = span
        if node.step is not None and not (node.step._runtime is rt and node.step.opened(self, node)):
            node.step = None  # it has ended, or belongs to the process before a fork
        self._runtime, self._ran_in, self._node = rt, rt, node
        self._enter()
        ranges = rt.settings.ranges
        if ranges is not None:
            self._range = ranges, ranges.start(node.name, self.category)
        backend = rt.backend or rt.device_backend()
        if not rt.not_captured:
            self._pushed = _capture.push_span(parent, self._links)
        if backend is not None and self.type != "host" and rt.settings.sync != "none":
            try:
                stream, key = backend.stream(self._given_stream)
                if backend.capturing(stream):
                    node.status = "captured"
                else:
                    node.stream, node.device = key, key[0]
                    node.stream_id = rt.streams.get(key) or rt.stream_number(key)
                    self._stream = stream
                    node.host_start = time.monotonic_ns()
                    node.start_event = backend.record(stream, key[0])
                    return
            except Exception as e:
                node.status = "device_error"
                rt.trouble("recording an event", repr(e))
        node.host_start = time.monotonic_ns()

    def _wanted(self, parent: trace.SpanContext) -> bool:
        """Reports whether the span will be recorded: below an unsampled parent no event is recorded, unless a linked
        request is sampled."""
        if not parent.is_valid or parent.trace_flags.sampled:
            return True
        return self.batched and any(sc.trace_flags.sampled for sc, _ in self._links)

    def _cut(self) -> None:
        """Ends the open section at the end of its step."""
        rt, self._runtime = self._runtime, None
        if rt is not None:
            rt.trouble("a phase that its step ended", f"{self.name!r} was still open (end each phase within its step)", "unended")
            self._end(rt)

    def _end(self, rt: Runtime) -> None:
        node = self._node
        if self._pushed:
            self._pushed = False
            _capture.pop()
        if self._inside:
            self._leave()
        if self._range is not None:
            ranges, started = self._range
            self._range = None
            ranges.end(started)
        if node is None or rt is not runtime():
            return  # the process before a fork has the section; a thread that does not exist here may have its locks
        if node.start_event is not None:
            try:
                # During a capture, an event would become a node of the graph.
                backend = rt.backend
                if backend is not None and not backend.capturing(self._stream):
                    node.end_event = backend.record(self._stream, node.device)
                    if rt.settings.sync == "immediate" or rt.settings.sync == "group" and node.up is None:
                        self._known = reached(node)
                else:
                    node.status = "captured"
            except Exception as e:
                node.status = "device_error"
                rt.trouble("recording an event", repr(e))
        node.host_end = time.monotonic_ns()
        if node.step is not None:
            node.step.left(node)
        if self._failure is not None:
            node.error, node.message = self._failure
        # The reading thread creates attributes and links from these.
        values = (self.type, self.items, self.item_type, self.flops, self.precision, self.size, self.read, self.written,
                  self.copy, self.host_memory, self.category)
        if not PLAIN.issuperset(map(type, values)):  # a tensor may change until then
            values = rt.converted(values)
        node.declared = values
        if self.attributes:
            node.attributes = rt.value("attributes", dict, self.attributes) or {}
        if self._requests:
            node.links, node.requests, node.linked_items = self._links, self._requests, self._linked_items
            self._links, self._requests, self._linked_items = [], 0, 0
        self._outer = self._stream = None
        up = node.up
        if up is not None:
            top = up.top or up
            with rt.lock:
                inside = not top.submitted
                fits = inside and top.size < MAX_NEST
                if fits:
                    if not up.children:
                        up.children = []
                    up.children.append(node)
                    top.size += 1
            if fits:
                return
            if inside:
                rt.drop(node, "dropped.nest_full")
                return
        rt.submit(node)


def reached(node: Node) -> Optional[float]:
    """Waits until the device has finished a section, and returns how long it took, in s; None: it hangs."""
    deadline = time.monotonic() + HANG_DEADLINE
    while not node.end_event.query():
        if time.monotonic() > deadline:
            return None
        time.sleep(2e-5)
    return float(node.start_event.elapsed_time(node.end_event)) / 1e3


def _over_async(again: Callable[[], Section], f: Callable[..., Any]) -> Callable[..., AsyncGenerator[Any, Any]]:
    """Wraps an asynchronous generator function as Section._over wraps a generator."""
    async def around(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        section, items = again(), f(*args, **kwargs)
        with section:
            section._suspend()
            sent, thrown = None, None
            while True:
                section._resume()
                try:
                    item = await (items.asend(sent) if thrown is None else items.athrow(thrown))
                except StopAsyncIteration:
                    return
                finally:
                    section._suspend()
                try:
                    sent, thrown = (yield item), None
                except GeneratorExit:
                    await items.aclose()
                    raise
                except BaseException as e:
                    sent, thrown = None, e
    return around


def _unfinished(out: Any) -> bool:
    """Reports whether a function returned something whose work ends later."""
    return (inspect.isgenerator(out) or inspect.iscoroutine(out) or inspect.isasyncgen(out)
            or hasattr(out.__class__, "add_done_callback"))


section = Section
