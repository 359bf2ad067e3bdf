# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
"""Sections and steps as NVTX ranges, for profilers such as Nsight Systems."""

from __future__ import annotations

import functools
import importlib
import sys
from typing import Any, Callable, Optional, Tuple

MAX_NAMES = 4096  # whose attributes are kept


class Ranges:
    """Creates ranges by the package nvtx, in a domain, or else by torch, without one. Without a profiler they cost what
    these packages cost without one."""

    def __init__(self, domain: str = "otelgpu") -> None:
        self._domain = domain
        self._calls: Optional[Tuple[Callable[..., Any], Callable[[Any], Any]]] = None

    def start(self, name: str, category: Optional[str] = None, index: Optional[int] = None) -> Any:
        """Starts the range of a section, or of the step with that index; None: there is none."""
        try:
            if self._calls is None:
                self._calls = self._find()
            return self._calls[0](name, category, index)
        except Exception as e:
            self._fail(e)
            return None

    def end(self, started: Any) -> None:
        """Ends a range."""
        if started is not None and self._calls is not None:
            try:
                self._calls[1](started)
            except Exception as e:
                self._fail(e)

    def _fail(self, e: Exception) -> None:
        """Reports the error, and makes no further ranges."""
        from ._runtime import runtime

        runtime().trouble("NVTX ranges", f"{e} (pip install 'otelgpu[nvtx]')" if isinstance(e, ImportError) else repr(e))
        self._calls = _no_range, _no_range

    def _find(self) -> Tuple[Callable[..., Any], Callable[[Any], Any]]:
        try:
            domain = importlib.import_module("nvtx").get_domain(self._domain)
        except ImportError:
            torch = sys.modules.get("torch")
            if torch is None:
                raise
            ranges = torch.cuda.nvtx

            def start_plain(name: str, category: Optional[str], index: Optional[int]) -> Any:
                return ranges.range_start(name)

            return start_plain, ranges.range_end

        @functools.lru_cache(MAX_NAMES)
        def attributes(name: str, category: Optional[str]) -> Any:
            return domain.get_event_attributes(message=name, category=category)

        def start(name: str, category: Optional[str], index: Optional[int]) -> Any:
            if index is None:
                return domain.start_range(attributes(name, category))
            return domain.start_range(domain.get_event_attributes(message=name, payload=index))

        return start, domain.end_range


def _no_range(*_: Any) -> None:
    return None
