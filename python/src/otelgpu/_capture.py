# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
"""The current span for the kernels that libotelgpu_capture.so records, where that library is loaded into the process."""

from __future__ import annotations

import ctypes
import os
from typing import Any, Optional, Sequence, Tuple

from opentelemetry import trace

_library: Any = None
_looked = False


def _find() -> Any:
    """The shim, if the driver's injection loaded it. It is never loaded here: a second copy would have a ring of its own."""
    global _library, _looked
    if _looked:
        return _library
    path = os.environ.get("CUDA_INJECTION64_PATH", "")
    if not path or not hasattr(os, "RTLD_NOLOAD"):
        _looked = True
        return None
    try:
        lib = ctypes.CDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
        lib.otelgpu_push.argtypes, lib.otelgpu_push.restype = [ctypes.c_char_p], None
        lib.otelgpu_pop.argtypes, lib.otelgpu_pop.restype = [], None
        lib.otelgpu_push_batch.argtypes = [ctypes.c_char_p, ctypes.POINTER(ctypes.c_char_p), ctypes.c_size_t]
        lib.otelgpu_push_batch.restype = None
        _library, _looked = lib, True
    except (OSError, AttributeError):
        # Not loaded yet: the driver does it when CUDA starts. Or another tool's library, which stays unknown.
        _library = None
    return _library


def push(traceparent: Optional[str], requests: Sequence[str] = ()) -> bool:
    """Says that kernels launched by this thread from now on belong to that W3C traceparent, until pop(); None: to no span.
    requests are the traceparents of the requests that the kernels serve together: each kernel links to them, at most 128. False
    where the capture library is not loaded."""
    try:
        lib = _find()
        if lib is None:
            return False
        parent = traceparent.encode("ascii") if traceparent else None
        if requests:
            texts = (ctypes.c_char_p * len(requests))(*(r.encode("ascii") for r in requests))
            lib.otelgpu_push_batch(parent, texts, len(requests))
        else:
            lib.otelgpu_push(parent)
        return True
    except Exception:
        return False


def pop() -> None:
    """Ends the newest push() of this thread."""
    try:
        lib: Optional[Any] = _library
        if lib is not None:
            lib.otelgpu_pop()
    except Exception:
        pass


def wanted() -> bool:
    """Whether the driver loads a library when CUDA starts."""
    return bool(os.environ.get("CUDA_INJECTION64_PATH"))


def push_span(sc: trace.SpanContext, links: Sequence[Tuple[trace.SpanContext, Any]] = ()) -> bool:
    """push() of a span context and of the requests that it serves; nothing if none is valid and sampled."""
    if not (_library or wanted()):
        return False
    requests = [traceparent(x) for x, _ in links if x.is_valid and x.trace_flags.sampled]
    parent = traceparent(sc) if sc.is_valid and sc.trace_flags.sampled else None
    return push(parent, requests) if parent or requests else False


def traceparent(sc: trace.SpanContext) -> str:
    return "00-%032x-%016x-%02x" % (sc.trace_id, sc.span_id, sc.trace_flags)
