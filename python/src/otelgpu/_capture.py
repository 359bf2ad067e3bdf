# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
"""Sets the current span for the kernels that libotelgpu_capture.so records, if that library is loaded into the
process."""

from __future__ import annotations

import ctypes
import os
from typing import Any, Optional, Sequence, Tuple

from opentelemetry import trace

_library: Any = None
_looked = False


def _find() -> Any:
    """Returns the shim if the driver's injection loaded it. This never loads it: a second copy would have its own
    ring."""
    global _library, _looked
    if _looked:
        return _library
    path = os.environ.get("CUDA_INJECTION64_PATH", "")
    if not path or not hasattr(os, "RTLD_NOLOAD"):
        _looked = True
        return None
    try:
        # Calls keep the GIL: they are short, and to take it again can last milliseconds.
        lib = ctypes.PyDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
        lib.otelgpu_push.argtypes, lib.otelgpu_push.restype = [ctypes.c_char_p], None
        lib.otelgpu_pop.argtypes, lib.otelgpu_pop.restype = [], None
        lib.otelgpu_push_batch.argtypes = [ctypes.c_char_p, ctypes.POINTER(ctypes.c_char_p), ctypes.c_size_t]
        lib.otelgpu_push_batch.restype = None
        _library, _looked = lib, True
    except (OSError, AttributeError):
        # Not loaded yet (the driver loads it when CUDA starts), or the library of another tool.
        _library = None
    return _library


def push(traceparent: Optional[str], requests: Sequence[str] = ()) -> bool:
    """Associates kernels that this thread launches until pop() with a W3C traceparent; None: with no span. requests
    are traceparents of the requests of the batch, at most 128, to which each kernel links. Returns False if the
    capture library is not loaded."""
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
    """Reports whether the driver loads a library when CUDA starts."""
    return bool(os.environ.get("CUDA_INJECTION64_PATH"))


def push_span(sc: trace.SpanContext, links: Sequence[Tuple[trace.SpanContext, Any]] = ()) -> bool:
    """Calls push() with a span context and the requests that it serves; does nothing if none is valid and sampled."""
    if not (_library or wanted()):
        return False
    requests = [traceparent(x) for x, _ in links if x.is_valid and x.trace_flags.sampled]
    parent = traceparent(sc) if sc.is_valid and sc.trace_flags.sampled else None
    return push(parent, requests) if parent or requests else False


def traceparent(sc: trace.SpanContext) -> str:
    return "00-%032x-%016x-%02x" % (sc.trace_id, sc.span_id, sc.trace_flags)
