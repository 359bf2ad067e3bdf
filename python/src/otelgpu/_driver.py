# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
"""Events of the CUDA driver, for programs without torch: CuPy, Numba, JAX, CUDA Python, and C libraries.

The library calls the driver that the program has loaded, and never loads it, initializes it, or creates a context.
Calls release the GIL, because a driver call can wait for space in the device's queue."""

from __future__ import annotations

import collections
import ctypes
import os
import sys
import threading
import time
from typing import Any, Callable, Deque, Dict, NamedTuple, Optional, Tuple

from . import _names as n
from ._jax import Jax

LIBRARY = "libcuda.so.1"
FRAMEWORKS = ("cupy", "numba.cuda", "numba_cuda", "jax", "cuda.bindings.driver", "cuda.core", "pycuda.driver", "warp")
AGAIN = 1.0        # s between searches for a driver while no framework is imported
MAX_FREE = 1024    # finished events of a context that are kept for reuse
MAX_STREAMS = 1024 # whose devices are kept

NOT_READY, INVALID_CONTEXT = 600, 201
LOST = (4, 201, 709)  # the context, and with it all its events, is gone
RELAXED, NON_BLOCKING = 2, 1

# Functions and their arguments; a call returns a status. The driver's header maps plain names to _v2 names.
_P, _I, _U = ctypes.c_void_p, ctypes.c_int, ctypes.c_uint
_OUT_P, _OUT_I, _OUT_F = ctypes.POINTER(_P), ctypes.POINTER(_I), ctypes.POINTER(ctypes.c_float)
FUNCTIONS: Dict[str, Tuple[Any, ...]] = {
    "cuCtxGetCurrent": (_OUT_P,), "cuCtxGetDevice": (_OUT_I,), "cuCtxPushCurrent_v2": (_P,), "cuCtxPopCurrent_v2": (_OUT_P,),
    "cuCtxGetStreamPriorityRange": (_OUT_I, _OUT_I),
    "cuDeviceGetCount": (_OUT_I,), "cuDevicePrimaryCtxGetState": (_I, ctypes.POINTER(_U), _OUT_I),
    "cuDevicePrimaryCtxRetain": (_OUT_P, _I), "cuDevicePrimaryCtxRelease_v2": (_I,),
    "cuDeviceGetName": (ctypes.c_char_p, _I, _I), "cuDeviceGetPCIBusId": (ctypes.c_char_p, _I, _I),
    "cuStreamGetCtx": (_P, _OUT_P), "cuStreamIsCapturing": (_P, _OUT_I), "cuStreamCreateWithPriority": (_OUT_P, _U, _I),
    "cuThreadExchangeStreamCaptureMode": (_OUT_I,), "cuEventCreate": (_OUT_P, _U), "cuEventDestroy_v2": (_P,),
    "cuEventRecord": (_P, _P), "cuEventQuery": (_P,),
}
# Functions that older drivers have under the second name.
RENAMED = {"cuEventElapsedTime_v2": ("cuEventElapsedTime", (_OUT_F, _P, _P)),
           "cuDeviceGetUuid_v2": ("cuDeviceGetUuid", (ctypes.c_char_p, _I))}


class DriverError(Exception):
    """A call of the driver failed."""

    def __init__(self, function: str, code: int) -> None:
        super().__init__(f"{function} returned {code}")
        self.code = code


class Stream(NamedTuple):
    """A stream, with the device and the context that it belongs to. jax: XLA's stream of the device, which it does not
    give to programs."""

    handle: int
    device: int
    context: int
    jax: bool = False


class Event:
    """A CUDA event, with the methods of torch.cuda.Event that are used here."""

    __slots__ = ("_driver", "_handle", "context", "_era", "late", "_waits", "_failure")

    def __init__(self, driver: "DriverBackend", handle: int, context: int) -> None:
        self._driver, self._handle, self.context, self._era = driver, handle, context, driver.era
        self.late = False  # by an unknown time
        self._waits = False  # for JAX, before it is recorded
        self._failure: Optional[Exception] = None

    def _call(self, function: str, *arguments: Any) -> int:
        code = self._driver.code(function, *arguments, context=self.context)
        if code not in (0, NOT_READY) or code and function != "cuEventQuery":
            raise self._driver.failed(function, code, self._era)
        return code

    def record(self, stream: int) -> None:
        self._call("cuEventRecord", self._handle, stream)

    def record_after(self, jax: Jax, device: int, stream: int) -> None:
        """Records the event when JAX has finished all work so far."""
        self._waits = self.late = True

        def reached(failure: Optional[Exception]) -> None:
            try:
                if failure is None:
                    self.record(stream)
                self._failure = failure
            except Exception as e:
                self._failure = e
            self._waits = False

        jax.reach(device, reached)

    def query(self) -> bool:
        if self._failure is not None:
            raise self._failure
        return not self._waits and self._call("cuEventQuery", self._handle) == 0

    def elapsed_time(self, end: "Event") -> float:
        """Returns the time from this event to another one in ms."""
        ms = ctypes.c_float()
        self._call("cuEventElapsedTime_v2", ctypes.byref(ms), self._handle, end._handle)
        return ms.value

    def __del__(self) -> None:
        try:
            if self._era == self._driver.era and not sys.is_finalizing():
                self._driver.functions["cuEventDestroy_v2"](self._handle)
        except Exception:
            pass


class DriverBackend:
    """Timing by the driver's events."""

    hip = False
    source = "cuda_event"

    def __init__(self, library: Any) -> None:
        self.functions: Dict[str, Callable[..., int]] = {}
        for name, arguments in FUNCTIONS.items():
            self.functions[name] = _function(library, name, arguments)
        for name, (older, arguments) in RENAMED.items():
            self.functions[name] = _function(library, name if hasattr(library, name) else older, arguments)
        self.era = 0  # events of earlier ones are gone with their context
        self._contexts: Dict[int, int] = {}  # by device: where anchors are recorded
        self._devices: Dict[int, int] = {}   # by context
        self._streams: Dict[int, Stream] = {}
        self._free: Dict[int, Deque[Event]] = {}
        self._sides: Dict[int, Stream] = {}
        self._identity: Dict[int, Dict[str, Any]] = {}
        self._jax = Jax()

    # -- calls ---------------------------------------------------------------------------------------------------------

    def code(self, function: str, *arguments: Any, context: int = 0) -> int:
        """Calls a function; if the thread lacks a context that it needs, with that one."""
        code = self.functions[function](*arguments)
        if code == INVALID_CONTEXT and context and not self.functions["cuCtxPushCurrent_v2"](context):
            try:
                code = self.functions[function](*arguments)
            finally:
                self.functions["cuCtxPopCurrent_v2"](ctypes.byref(_P()))
        return code

    def call(self, function: str, *arguments: Any, context: int = 0) -> None:
        code = self.code(function, *arguments, context=context)
        if code:
            raise self.failed(function, code)

    def failed(self, function: str, code: int, era: Optional[int] = None) -> DriverError:
        if code in LOST and era in (None, self.era):  # forget what is gone
            self.era += 1
            self._contexts, self._devices, self._streams, self._free, self._sides = {}, {}, {}, {}, {}
        return DriverError(function, code)

    def current(self) -> int:
        """Returns the context of the calling thread, or of a device that is in use; 0 if there is none."""
        out = _P()
        if self.functions["cuCtxGetCurrent"](ctypes.byref(out)):
            return 0  # not initialized, or a forked process
        if out.value:
            return out.value
        for context in self._contexts.values():
            return context
        count, flags, active = _I(), _U(), _I()
        self.call("cuDeviceGetCount", ctypes.byref(count))
        for device in range(count.value):
            self.call("cuDevicePrimaryCtxGetState", device, ctypes.byref(flags), ctypes.byref(active))
            if active.value:  # so that this does not create one
                self.call("cuDevicePrimaryCtxRetain", ctypes.byref(out), device)
                self.call("cuDevicePrimaryCtxRelease_v2", device)
                return out.value or 0
        return 0

    def _device(self, context: int) -> int:
        device = self._devices.get(context)
        if device is None:
            number, popped = _I(), _P()
            self.call("cuCtxPushCurrent_v2", context)
            try:
                self.call("cuCtxGetDevice", ctypes.byref(number))
            finally:
                self.functions["cuCtxPopCurrent_v2"](ctypes.byref(popped))
            device = self._devices[context] = number.value
            self._contexts.setdefault(device, context)
        return device

    # -- as TorchBackend -----------------------------------------------------------------------------------------------

    def stream(self, given: Any = None) -> Tuple[Stream, Tuple[int, Any]]:
        """Returns the stream to record on: the given one, or the current one of the framework that the program uses."""
        handle = _current_handle() if given is None else None if given == "jax" else stream_handle(given)
        if handle is None:  # XLA's
            context = self._jax_context()
            stream = Stream(0, self._device(context), context, True)
            return stream, (stream.device, "jax")
        if handle in (0, 1, 2):  # the default streams of the calling thread's context
            context = self.current()
            stream = Stream(0 if handle == 1 else handle, self._device(context), context)
            return stream, (stream.device, handle if handle != 2 else (2, threading.get_ident()))
        known = self._streams.get(handle)
        if known is None:
            out = _P()
            if self.capturing(Stream(handle, 0, self.current())):  # the next call would invalidate the capture
                context = self.current()
                return Stream(handle, self._device(context), context), (self._device(context), handle)
            self.call("cuStreamGetCtx", handle, ctypes.byref(out))
            if len(self._streams) >= MAX_STREAMS:
                self._streams = {}
            context = out.value or 0
            known = self._streams[handle] = Stream(handle, self._device(context), context)
        return known, (known.device, handle)

    def _jax_context(self) -> int:
        device = self._jax.ordinal()
        context = self._contexts.get(device)
        if context is None:
            out = _P()
            self.call("cuDevicePrimaryCtxRetain", ctypes.byref(out), device)
            self.call("cuDevicePrimaryCtxRelease_v2", device)
            context = out.value or 0
        return context

    def capturing(self, stream: Stream) -> bool:
        """Reports whether work on the stream becomes part of a graph, or would invalidate the capture of one."""
        if stream.jax:
            return False
        state = _I()
        code = self.code("cuStreamIsCapturing", stream.handle, ctypes.byref(state), context=stream.context)
        if code >= 900:  # another stream captures, which the default stream would wait for
            return True
        if code:
            raise self.failed("cuStreamIsCapturing", code)
        return state.value != 0

    def record(self, stream: Stream, device: Optional[int] = None) -> Event:
        """Records an event, one that recycle() returned if there is any."""
        free = self._free.get(stream.context)
        try:
            event = free.pop() if free else self._new(stream.context)
        except IndexError:  # another thread took the last one
            event = self._new(stream.context)
        event.late = False
        if stream.jax:
            event.record_after(self._jax, stream.device, self._side(stream.device, stream.context).handle)
        else:
            event.record(stream.handle)
        return event

    def _new(self, context: int) -> Event:
        # Creating an event would invalidate another thread's capture.
        mode, popped, out = _I(RELAXED), _P(), _P()
        self.call("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))
        try:
            self.call("cuCtxPushCurrent_v2", context)
            try:
                self.call("cuEventCreate", ctypes.byref(out), 0)
            finally:
                self.functions["cuCtxPopCurrent_v2"](ctypes.byref(popped))
        finally:
            self.functions["cuThreadExchangeStreamCaptureMode"](ctypes.byref(mode))
        return Event(self, out.value or 0, context)

    def recycle(self, device: int, *events: Event) -> None:
        """Takes finished events that are no longer read."""
        for event in events:
            if event._era == self.era:
                free = self._free.get(event.context)
                if free is None:
                    free = self._free[event.context] = collections.deque(maxlen=MAX_FREE)
                free.append(event)

    def anchor_event(self, device: int) -> Event:
        """Records and returns an event on a separate idle stream."""
        return self.record(self._side(device, self._contexts[device], anchors=True))

    def _side(self, device: int, context: int, anchors: bool = False) -> Stream:
        key = device if anchors else ~device
        side = self._sides.get(key)
        if side is None:
            out, popped, least, greatest, mode = _P(), _P(), _I(), _I(), _I(RELAXED)
            self.call("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))
            try:
                self.call("cuCtxPushCurrent_v2", context)
                try:
                    self.call("cuCtxGetStreamPriorityRange", ctypes.byref(least), ctypes.byref(greatest))
                    self.call("cuStreamCreateWithPriority", ctypes.byref(out), NON_BLOCKING, greatest.value)
                finally:
                    self.functions["cuCtxPopCurrent_v2"](ctypes.byref(popped))
            finally:
                self.functions["cuThreadExchangeStreamCaptureMode"](ctypes.byref(mode))
            side = self._sides[key] = Stream(out.value or 0, device, context)
        return side

    def relax_capture_mode(self) -> None:
        """Lets the calling thread query events while another thread captures a graph."""
        self.call("cuThreadExchangeStreamCaptureMode", ctypes.byref(_I(RELAXED)))

    def close(self, timeout: float) -> None:
        """Ends the threads of the backend."""
        self._jax.close(timeout)

    def identity(self, device: int) -> Dict[str, Any]:
        """Returns the attributes of the device; attributes that the driver does not state are omitted."""
        out = self._identity.get(device)
        if out is None:
            out = self._identity[device] = self._identify(device)
        return out

    def _identify(self, device: int) -> Dict[str, Any]:
        out: Dict[str, Any] = {n.DEVICE_ORDINAL: device, n.HW_NAME: "gpu%d" % device, n.HW_VENDOR: "NVIDIA"}
        name, bus, raw = (ctypes.create_string_buffer(size) for size in (256, 32, 16))
        mig = False
        if not self.functions["cuDeviceGetName"](name, 256, device):
            out[n.HW_MODEL] = name.value.decode("utf-8", "replace")
            mig = " MIG " in out[n.HW_MODEL]
        if not self.functions["cuDeviceGetPCIBusId"](bus, 32, device):
            out[n.PCI_BDF] = bus.value.decode("ascii", "replace").lower()
        if not self.functions["cuDeviceGetUuid_v2"](raw, device):
            h = raw.raw.hex()
            out[n.HW_ID] = "-".join(["MIG" if mig else "GPU", h[:8], h[8:12], h[12:16], h[16:20], h[20:]])
        return out


def _function(library: Any, name: str, arguments: Tuple[Any, ...]) -> Callable[..., int]:
    f: Any = getattr(library, name)
    f.argtypes, f.restype = arguments, ctypes.c_int
    return f  # type: ignore[no-any-return]


def stream_handle(stream: Any) -> int:
    """Returns the handle of a stream of torch, CuPy, Numba, cuda.core, cuda.bindings or PyCUDA, or of a number."""
    if isinstance(stream, int):
        return stream
    protocol: Any = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:
        pair: Any = protocol() if callable(protocol) else protocol
        return int(pair[1])
    for name in ("cuda_stream", "ptr", "handle"):
        value = getattr(stream, name, None)
        if value is not None:
            value = getattr(value, "value", value)  # Numba's is a ctypes pointer, None for the default stream
            return 0 if value is None else int(value)
    return int(stream)  # cuda.bindings


def _current_handle() -> Optional[int]:
    """Returns the current stream of the framework that the program uses; None for JAX, which has none."""
    modules = sys.modules
    cuda = getattr(modules.get("torch"), "cuda", None)
    if cuda is not None and cuda.is_initialized():
        return int(cuda.current_stream().cuda_stream)
    cupy = modules.get("cupy")
    if cupy is not None:
        return int(cupy.cuda.get_current_stream().ptr)
    if "numba.cuda" in modules or "numba_cuda" in modules:
        return 2 if os.environ.get("NUMBA_CUDA_PER_THREAD_DEFAULT_STREAM", "0") not in ("", "0") else 0
    return None if Jax.used() else 0


_searched = 0.0


def find_driver() -> Optional[DriverBackend]:
    """Returns a backend if the process has loaded the driver and has a context."""
    global _searched
    if not hasattr(os, "RTLD_NOLOAD"):
        return None
    if not any(name in sys.modules for name in FRAMEWORKS):
        now = time.monotonic()
        if now - _searched < AGAIN:
            return None
        _searched = now
    try:
        library = ctypes.CDLL(LIBRARY, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    except OSError:
        return None
    backend = DriverBackend(library)
    return backend if backend.current() else None
