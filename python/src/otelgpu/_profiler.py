# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
"""Writes PyTorch profiler windows into the folder that the Collector's kineto receiver reads."""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import socket
import tempfile
import time
from typing import Any, Callable, Optional

from opentelemetry import trace

from ._capture import traceparent
from ._runtime import runtime


def trace_handler(folder: str, worker_name: Optional[str] = None, *, compress: bool = True) -> Callable[[Any], None]:
    """An on_trace_ready for torch.profiler.profile: writes each window into the folder as
    <worker>.<nanoseconds>.pt.trace.json.gz, with the traceparent of the span that is current when the window ends, so that
    its kernels are children of that span. The file appears under its final name once it is complete.

    A window that cannot be written is counted and logged; the program continues.
    """
    worker = re.sub(r"[^A-Za-z0-9._-]", "_", worker_name or "%s_%d" % (socket.gethostname(), os.getpid()))

    def handler(prof: Any) -> None:
        try:
            _write(prof, folder, worker, compress)
        except Exception as e:
            runtime().trouble("cannot write the profiler's window into %r" % folder, repr(e))

    return handler


def _write(prof: Any, folder: str, worker: str, compress: bool) -> None:
    os.makedirs(folder, exist_ok=True)
    sc = trace.get_current_span().get_span_context()
    # A hidden folder on the same file system: the receiver's patterns do not match it, and the rename is atomic.
    work = tempfile.mkdtemp(prefix=".otelgpu-", dir=folder)
    try:
        raw = os.path.join(work, "window.json")
        prof.export_chrome_trace(raw)
        ready = os.path.join(work, "ready")
        with open(raw, "rb") as source, (gzip.open if compress else open)(ready, "wb") as out:
            _copy_with_parent(source, out, traceparent(sc) if sc.is_valid else None)
        name = "%s.%d.pt.trace.json%s" % (worker, time.time_ns(), ".gz" if compress else "")
        os.chmod(ready, 0o644)
        os.replace(ready, os.path.join(folder, name))
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _copy_with_parent(source: Any, out: Any, parent: Optional[str]) -> None:
    """Copies a Chrome trace and inserts "traceparent" before its fields. The profiler's own add_metadata accepts
    values only while a window is recorded, and discards them with it."""
    head = source.read(4096)
    brace = re.match(rb"\s*\{", head)
    if parent is not None and brace is not None:
        out.write(head[:brace.end()])
        rest = head[brace.end():]
        out.write(b'"traceparent": ' + json.dumps(parent).encode())
        out.write(b"" if re.match(rb"\s*\}", rest) else b",")
        out.write(rest)
    else:
        out.write(head)
    shutil.copyfileobj(source, out, 1 << 20)
