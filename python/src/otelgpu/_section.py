# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
"""Sections: a timed part of a stream, with any number of launches."""

from __future__ import annotations

import contextvars
import functools
import inspect
import sys
import time
from typing import Any, Callable, Dict, Iterable, List, Optional, Tuple, TypeVar, Union, cast

from opentelemetry import context as otel_context
from opentelemetry import trace

from . import _capture
from ._runtime import MAX_NEST, PLAIN, Node, Runtime, _text, runtime

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


class Section:
    """One section: a with statement, or a decorator. Its attributes may be set until its end.

    items: elements processed. flops: operations, a multiply-add is two. read, written: bytes of device memory; size:
    bytes of a copy, or if the direction is unknown. precision: fp64, fp32, tf32, fp16, bf16, fp8, fp4, int8. type:
    section (default), copy (with copy= its direction: host_to_device, device_to_host, device_to_device,
    peer_to_peer), collective, graph, or host for host work (such as compilation). stream: a
    torch.cuda.Stream; the current one by default. batched=True records the section when any linked request is
    sampled, also below an unsampled span.
    """

    _step: Any = None
    _phase: Optional[str] = None
    _links: List[Tuple[trace.SpanContext, Optional[int]]] = []  # replaced by the first link
    _requests = 0
    _linked_items = 0
    _runtime: Optional[Runtime] = None
    _node: Optional[Node] = None
    _outer: Optional["Section"] = None
    _token: Any = None
    _span: Any = None
    _stream: Any = None
    _pushed = False

    def __init__(self, name: str, *, type: str = "section", category: Optional[str] = None,
                 items: Optional[int] = None, item_type: Optional[str] = None, flops: Optional[float] = None,
                 precision: Optional[str] = None, read: Optional[int] = None, written: Optional[int] = None,
                 size: Optional[int] = None, copy: Optional[str] = None, host_memory: Optional[str] = None,
                 stream: Any = None, batched: bool = False,
                 links: Iterable[Union[Linkable, Tuple[Linkable, int]]] = (),
                 attributes: Optional[Dict[str, Any]] = None) -> None:
        self.name = name
        self.type = type
        self.category = category
        self.items = items
        self.item_type = item_type
        self.flops = flops
        self.precision = precision
        self.read = read
        self.written = written
        self.size = size
        self.copy = copy
        self.host_memory = host_memory
        self.batched = batched
        self.attributes = attributes
        self._given_stream = stream
        self._given_links = links

    @property
    def elapsed(self) -> Optional[float]:
        """GPU time in seconds; None until it is known, and if no device was timed. Never waits."""
        return self._node.elapsed if self._node is not None else None

    def link(self, request: Linkable, items: Optional[int] = None) -> None:
        """Links the section to a request that it serves, with that many of its items. A batch serves many requests."""
        try:
            self._requests += 1
            self._linked_items += items or 0
            if not self._links:
                self._links = []
            if len(self._links) < MAX_LINKS:
                self._links.append((span_context(request), items))
        except Exception as e:
            runtime().trouble("linking a request", repr(e))

    def discard(self) -> None:
        """Discards the open section with all its descendants."""
        node, self._node = self._node, None
        if node is not None and node.step is not None:
            for inner in node.walk():
                inner.step.closed(inner)

    def __enter__(self) -> "Section":
        if compiling():
            return self  # sections would break the graph of a compiled region
        rt = runtime()
        if not rt.enabled:
            return self
        try:
            self._begin(rt)
        except Exception as e:
            self._node = None
            rt.trouble("starting a section", repr(e))
        return self

    def __exit__(self, kind: Any, error: Any, tb: Any) -> None:
        rt = self._runtime
        if rt is None:
            return
        self._runtime = None
        try:
            self._end(rt, kind)
        except Exception as e:
            rt.trouble("ending a section", repr(e))

    def __call__(self, f: _F) -> _F:
        """As a decorator: each call is a separate section."""
        if inspect.iscoroutinefunction(f):
            @functools.wraps(f)
            async def around_async(*args: Any, **kwargs: Any) -> Any:
                with self._again():
                    return await f(*args, **kwargs)
            return cast(_F, around_async)

        @functools.wraps(f)
        def around(*args: Any, **kwargs: Any) -> Any:
            with self._again():
                return f(*args, **kwargs)
        return cast(_F, around)

    def _again(self) -> "Section":
        return Section(self.name, type=self.type, category=self.category, items=self.items, item_type=self.item_type,
                       flops=self.flops, precision=self.precision, read=self.read, written=self.written, size=self.size,
                       copy=self.copy, host_memory=self.host_memory, stream=self._given_stream, batched=self.batched,
                       links=self._given_links, attributes=self.attributes)

    def _begin(self, rt: Runtime) -> None:
        for link in self._given_links:
            request, items = link if isinstance(link, tuple) else (link, None)
            self.link(request, items)
        here = otel_context.get_current()
        span = trace.get_current_span(here)
        parent = span.get_span_context()
        if not self._wanted(parent):
            rt.counts["unsampled"] += 1
            return
        node = Node(_text(self.name))
        node.first = rt.first_time(node.name)
        node.context, node.step, node.phase = here, self._step or current_step.get(), self._phase
        outer = _current.get()
        # A section from the copied context of another thread or task may have ended, or belong to the process before a
        # fork.
        if outer is not None and outer._runtime is rt and outer._node is not None:
            if outer._span is span or not parent.is_valid:
                node.context = None  # child of the section, not of a span of the program
            self._outer = outer
        self._span = span
        if node.step is not None:
            node.step.opened()
        self._runtime, self._node = rt, node
        self._token = _current.set(self)
        backend = rt.backend or rt.device_backend()
        if not rt.not_captured:
            self._pushed = _capture.push_span(parent, self._links)
        if backend is not None and self.type != "host":
            try:
                if backend.capturing():
                    node.status = "captured"
                else:
                    stream, key = backend.stream(self._given_stream)
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

    def _end(self, rt: Runtime, kind: Any) -> None:
        node = self._node
        if self._pushed:
            self._pushed = False
            _capture.pop()
        if self._token is not None:
            try:
                _current.reset(self._token)
            except ValueError:  # ended in a different task or thread
                if _current.get() is self:
                    _current.set(self._outer)
        if node is None:
            return
        if node.start_event is not None:
            try:
                # During a capture, an event would become a node of the graph.
                backend = rt.backend
                if backend is not None and not backend.capturing():
                    node.end_event = backend.record(self._stream, node.device)
                else:
                    node.status = "captured"
            except Exception as e:
                node.status = "device_error"
                rt.trouble("recording an event", repr(e))
        node.host_end = time.monotonic_ns()
        if kind is not None:
            node.error = getattr(kind, "__qualname__", str(kind))
        # The reading thread creates attributes and links from these.
        values = (self.type, self.items, self.item_type, self.flops, self.precision, self.size, self.read, self.written,
                  self.copy, self.host_memory, self.category)
        if not PLAIN.issuperset(map(type, values)):  # a tensor may change until then
            values = rt.converted(values)
        node.declared = values
        if self.attributes:
            node.attributes = dict(self.attributes)
        if self._requests:
            node.links, node.requests, node.linked_items = self._links, self._requests, self._linked_items
            self._links, self._requests, self._linked_items = [], 0, 0
        outer = self._outer
        self._outer = self._span = self._stream = None
        if outer is not None and outer._runtime is rt and outer._node is not None:
            with rt.lock:
                top_node, above = outer._node, outer._outer
                while above is not None and above._node is not None:
                    top_node, above = above._node, above._outer
                fits = top_node.size < MAX_NEST
                if fits:
                    if not outer._node.children:
                        outer._node.children = []
                    outer._node.children.append(node)
                    top_node.size += 1
            if not fits:
                rt.drop(node, "dropped.nest_full")
            return
        if node.context is None:
            node.context = otel_context.get_current()
        rt.submit(node)


section = Section
