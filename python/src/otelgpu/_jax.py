# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
"""Marks in the order of JAX's work.

XLA runs the computations of a device in the order of their dispatch, on streams that it does not give to programs. A
computation of one number, dispatched at the start and at the end of a section, is reached when all earlier work has
finished. A thread waits for its result and then records an event, so that the program does not wait. (DLPack can make a
stream wait for the result, but the host waits, too, with JAX 0.11 on a GPU.) An event is late by the time that a thread
takes to wake up, tens of microseconds, for which no bound is known."""

from __future__ import annotations

import importlib
import queue
import sys
import threading
from typing import Any, Callable, Dict, Optional

MAX_MARKS = 4096  # that wait for the device


def _module() -> Any:
    return importlib.import_module("jax")


def _add_one(x: Any) -> Any:
    return x + 1


class Jax:
    """JAX's default device."""

    def __init__(self) -> None:
        self._next: Any = None
        self._numbers: Dict[int, Any] = {}
        self._lock = threading.Lock()
        self._marks: "queue.Queue[Any]" = queue.Queue(MAX_MARKS)
        self._thread: Optional[threading.Thread] = None

    @staticmethod
    def used() -> bool:
        """Reports whether the program runs JAX on a GPU. This never starts one of JAX's platforms."""
        bridge = sys.modules.get("jax._src.xla_bridge")
        started: Any = getattr(bridge, "_backends", None) or ()
        return any(name in ("cuda", "gpu") for name in started)

    @staticmethod
    def _device() -> Any:
        jax = _module()
        chosen = jax.config.jax_default_device
        if chosen is None or isinstance(chosen, str):
            return jax.local_devices(backend="gpu")[0]
        return chosen

    def ordinal(self) -> int:
        """Returns the number of JAX's default device."""
        return int(getattr(self._device(), "local_hardware_id", None) or 0)

    def reach(self, device: int, then: Callable[[Optional[Exception]], None]) -> None:
        """Calls a function on another thread when the device has finished all work that JAX has dispatched so far. Raises
        queue.Full if too many marks wait."""
        number = self._numbers.get(device)
        if number is None:
            with self._lock:
                jax = _module()
                if self._next is None:
                    self._next = jax.jit(_add_one)
                number = self._numbers[device] = jax.device_put(jax.numpy.zeros((), "int32"), self._device())
                self._next(number).block_until_ready()  # compiled outside of the section's time
        self._marks.put_nowait((self._next(number), then))
        if self._thread is None:
            with self._lock:
                if self._thread is None:
                    self._thread = threading.Thread(target=self._wait, name="otelgpu-jax", daemon=True)
                    self._thread.start()

    def _wait(self) -> None:
        while True:
            mark = self._marks.get()
            if mark is None:
                return
            result, then = mark
            try:
                result.block_until_ready()
            except Exception as e:
                then(e)
                continue
            then(None)

    def close(self, timeout: float) -> None:
        """Ends the thread after the marks before."""
        if self._thread is not None:
            try:
                self._marks.put(None, timeout=timeout)
            except queue.Full:
                pass
            self._thread.join(timeout)
