# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
"""The current span for the kernels that libotelgpu_capture.so records, where that library is loaded into the process."""

from __future__ import annotations

import ctypes
import os
from typing import Any, Optional

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
        _library, _looked = lib, True
    except (OSError, AttributeError):
        # Not loaded yet: the driver does it when CUDA starts. Or another tool's library, which stays unknown.
        _library = None
    return _library


def push(traceparent: str) -> bool:
    """Says that kernels launched by this thread from now on belong to that W3C traceparent, until pop(). False where
    the capture library is not loaded."""
    try:
        lib = _find()
        if lib is None:
            return False
        lib.otelgpu_push(traceparent.encode("ascii"))
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


def push_span(sc: trace.SpanContext) -> bool:
    """push() of a span context; nothing for one that is not valid or not sampled."""
    if not (_library or os.environ.get("CUDA_INJECTION64_PATH")) or not sc.is_valid or not sc.trace_flags.sampled:
        return False
    return push(traceparent(sc))


def traceparent(sc: trace.SpanContext) -> str:
    return "00-%032x-%016x-%02x" % (sc.trace_id, sc.span_id, sc.trace_flags)
