# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
"""A CSV row for each step, in the format of gpuspan/stepcsv in Go and of the Collector's step_csv exporter."""

from __future__ import annotations

import csv
import io
import os
import threading
from typing import Any, Dict, Iterable, List, Optional, Union

from . import _names as n
from ._job import job
from ._runtime import runtime

_NAMED = {"data": "t_data_ms", "forward": "t_fwd_ms", "backward": "t_bwd_ms", "optimizer": "t_opt_ms", "comm": "t_comm_ms"}


def step_csv(path: Union[str, "os.PathLike[str]"], phases: Iterable[str] = (), *, loop: Optional[str] = None,
             rank: Optional[int] = 0) -> None:
    """Appends a row for each recorded step to a file, as it ends:

        step,epoch,t_data_ms,t_fwd_ms,t_bwd_ms,t_opt_ms,t_comm_ms,t_overlap_ms,t_misc_ms,t_step_ms,ips_step,t_<phase>_ms...

    phases are further ones that get a column, in this order; the time of others is in t_misc_ms. t_step = sum of the
    phases - t_overlap + t_misc. Phases that a step did not have and unknown values are empty. loop selects the loop of that
    name. Only the given rank of a job writes; with None every rank does, each to its own path.

    A file with the same columns is continued, without an incomplete last line. A file that cannot be written, or with
    other columns, is logged and not changed."""
    try:
        if rank is not None and job().get(n.JOB_RANK, rank) != rank:
            return
        file = StepFile(path, list(phases), loop)
        runtime().step_files.append(file)
    except Exception as e:
        runtime().trouble("the CSV of steps", str(e) if isinstance(e, (OSError, ValueError)) else repr(e))


class StepFile:
    def __init__(self, path: Union[str, "os.PathLike[str]"], phases: List[str], loop: Optional[str]) -> None:
        self._loop, self._lock = loop, threading.Lock()
        self._columns: Dict[str, int] = {}
        header = ["step", "epoch"]
        for phase, column in _NAMED.items():
            self._columns[phase] = len(header)
            header.append(column)
        self._after = len(header)
        header += ["t_overlap_ms", "t_misc_ms", "t_step_ms", "ips_step"]
        for phase in phases:
            if phase not in self._columns:
                column = f"t_{phase}_ms"
                if not phase or column in header or set(phase) & set(',"\r\n'):
                    raise ValueError(f"phase {phase!r} cannot have a separate column")
                self._columns[phase] = len(header)
                header.append(column)
        self._width = len(header)
        folder: str = os.path.dirname(os.fspath(path))
        if folder:
            os.makedirs(folder, exist_ok=True)
        first = _line(header).encode()
        self._file = open(path, "ab+", buffering=0)
        self._file.seek(0)
        begin = self._file.readline()
        if not begin:
            self._file.write(first)
        elif begin.replace(b"\r\n", b"\n") != first:
            self._file.close()
            raise ValueError(f"{os.fspath(path)!r} has other columns (use another file, or declare the same phases)")
        else:
            self._repair()

    def _repair(self) -> None:
        """Removes an incomplete last line, as after a crash."""
        end = self._file.seek(0, os.SEEK_END)
        at, tail = end, b""
        while at > 0 and b"\n" not in tail:
            size = min(4096, at)
            at -= size
            self._file.seek(at)
            tail = self._file.read(size) + tail
        self._file.truncate(at + tail.rfind(b"\n") + 1)
        self._file.seek(0, os.SEEK_END)

    def write(self, name: str, seconds: Optional[float], values: Dict[str, Any]) -> None:
        """Writes a step with the attributes of its span."""
        if self._loop not in (None, name):
            return
        row = [""] * self._width
        row[0] = str(values[n.STEP_INDEX])
        if n.STEP_EPOCH in values:
            row[1] = str(values[n.STEP_EPOCH])
        undeclared = 0.0
        for key, value in values.items():
            if key.startswith(n.STEP_PHASE_DURATION):
                at = self._columns.get(key[len(n.STEP_PHASE_DURATION):])
                if at is None:
                    undeclared += value
                else:
                    row[at] = _milliseconds(value)
        if n.STEP_OTHER_DURATION in values:
            row[self._after] = _milliseconds(values[n.STEP_OVERLAP_DURATION])
            row[self._after + 1] = _milliseconds(values[n.STEP_OTHER_DURATION] + undeclared)
        if seconds is not None:
            row[self._after + 2] = _milliseconds(seconds)
            items = values.get(n.STEP_ITEMS)
            if items and seconds > 0:
                row[self._after + 3] = f"{items / seconds:.3f}"
        with self._lock:
            self._file.write(_line(row).encode())


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.6f}"


def _line(row: List[str]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerow(row)
    return out.getvalue()
