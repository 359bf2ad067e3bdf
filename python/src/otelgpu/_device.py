# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
"""Events of the device: through torch.cuda, which is HIP in ROCm builds of torch, or through the CUDA driver."""

from __future__ import annotations

import collections
import ctypes
import os
import re
import sys
from typing import Any, Callable, Deque, Dict, Optional, Tuple, Union

from . import _names as n
from ._driver import DriverBackend, find_driver, stream_handle

MAX_STREAMS = 256  # whose objects are kept
MAX_FREE = 1024    # finished events of a device that are kept for reuse

RESOLUTION_NS = 1000
"""Resolution of a CUDA event: about 0.5 µs according to the driver's documentation, doubled."""


class TorchBackend:
    """Timing by torch.cuda.Event. Created only if torch is already imported and has a device, so that otelgpu never
    loads torch or starts CUDA."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.hip = bool(getattr(getattr(torch, "version", None), "hip", None))
        self.source = "hip_event" if self.hip else "cuda_event"
        self._identity: Dict[int, Dict[str, Any]] = {}
        self._sides: Dict[int, Any] = {}
        self._streams: Dict[Any, Tuple[Any, Tuple[int, Any]]] = {}
        self._free: Dict[int, Deque[Any]] = {}
        # The C functions and the class behind torch.cuda, if torch has them: half of the price of each call is Python.
        c = getattr(torch, "_C", None)
        self._event: Callable[..., Any] = getattr(c, "_CudaEventBase", None) or torch.cuda.Event
        self._device_now: Optional[Callable[[], int]] = getattr(c, "_cuda_getDevice", None)
        self._stream_now: Optional[Callable[[int], Any]] = getattr(c, "_cuda_getCurrentStream", None)
        self._capturing: Callable[[], bool] = (
            getattr(c, "_cuda_isCurrentStreamCapturing", None) or torch.cuda.is_current_stream_capturing)

    def stream(self, given: Any = None) -> Tuple[Any, Tuple[int, Any]]:
        """Returns the stream to record on, the given one or the current stream of the current device, and what
        identifies it: device and handle, because torch may create a new stream object in each call."""
        if given is not None and not hasattr(given, "cuda_stream"):  # of another framework
            given = self.torch.cuda.ExternalStream(stream_handle(given))
        if given is not None or self._stream_now is None or self._device_now is None:
            return self._identified(given if given is not None else self.torch.cuda.current_stream())
        now = self._stream_now(self._device_now())
        known = self._streams.get(now)
        if known is None:
            if len(self._streams) >= MAX_STREAMS:
                self._streams = {}
            known = self._streams[now] = self._identified(self.torch.cuda.current_stream())
        return known

    def capturing(self, stream: Any = None) -> bool:
        """Reports whether the current stream captures a graph."""
        return self._capturing()

    @staticmethod
    def _identified(stream: Any) -> Tuple[Any, Tuple[int, Any]]:
        return stream, (stream.device.index or 0, stream.cuda_stream)

    def record(self, stream: Any, device: Optional[int] = None) -> Any:
        """Records an event. With the stream's device, one that recycle() returned may be used."""
        free = self._free.get(device) if device is not None else None
        try:
            event = free.pop() if free else self._event(enable_timing=True)
        except IndexError:  # another thread took the last one
            event = self._event(enable_timing=True)
        event.record(stream)
        return event

    def recycle(self, device: int, *events: Any) -> None:
        """Takes finished events that are no longer read. Only streams of their device may record them again."""
        free = self._free.get(device)
        if free is None:
            free = self._free[device] = collections.deque(maxlen=MAX_FREE)
        free.extend(events)

    def anchor_event(self, device: int) -> Any:
        """Records and returns an event on a separate idle stream. The caller synchronizes with it."""
        side = self._sides.get(device)
        if side is None:
            side = self._sides[device] = self.torch.cuda.Stream(device=device)
        return self.record(side)

    def relax_capture_mode(self) -> None:
        """Lets the calling thread query events while another thread captures a graph. Otherwise the query would end
        the other thread's capture (cuThreadExchangeStreamCaptureMode, relaxed = 2)."""
        library, name = ("libcuda.so.1", "cuThreadExchangeStreamCaptureMode")
        if self.hip:
            library, name = ("libamdhip64.so", "hipThreadExchangeStreamCaptureMode")
        mode = ctypes.c_int(2)
        getattr(ctypes.CDLL(library), name)(ctypes.byref(mode))

    def close(self, timeout: float) -> None:
        """Ends the threads of the backend, of which there are none."""

    def identity(self, device: int) -> Dict[str, Any]:
        """Returns the attributes of the device; those unknown to torch are omitted."""
        out = self._identity.get(device)
        if out is None:
            out = self._identity[device] = self._identify(device)
        return out

    def _identify(self, device: int) -> Dict[str, Any]:
        out: Dict[str, Any] = {n.DEVICE_ORDINAL: device, n.HW_NAME: "gpu%d" % device,
                               n.HW_VENDOR: "AMD" if self.hip else "NVIDIA"}
        props = self.torch.cuda.get_device_properties(device)
        out[n.HW_MODEL] = str(props.name)
        uuid = self._uuid(device, props)
        if uuid:
            out[n.HW_ID] = uuid
        parts = [getattr(props, a, None) for a in ("pci_domain_id", "pci_bus_id", "pci_device_id")]
        if all(isinstance(p, int) for p in parts):
            out[n.PCI_BDF] = "%04x:%02x:%02x.0" % tuple(int(p) for p in parts if p is not None)
        return out

    def _uuid(self, device: int, props: Any) -> Optional[str]:
        # CUDA_VISIBLE_DEVICES names a MIG instance as all other tools do.
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
        if device < len(visible) and visible[device].strip().startswith("MIG-"):
            return visible[device].strip()
        given = getattr(props, "uuid", None)
        if given is not None:
            return _uuid_text(str(given), self.hip)
        return None if self.hip else _cuda_uuid(device)


def _uuid_text(text: str, hip: bool) -> Optional[str]:
    bare = text[4:] if text.startswith("GPU-") else text
    digits = bare.replace("-", "")
    if not re.fullmatch("[0-9a-fA-F]{16,32}", digits) or not digits.strip("0"):
        return None
    if hip and len(digits) == 32:
        # ROCm's 16 bytes are the characters of the id that its tools print.
        chars = bytes.fromhex(digits)
        if re.fullmatch(b"[0-9a-fA-F]{16}", chars):
            return "GPU-" + chars.decode()
    return "GPU-" + bare


def _cuda_uuid(device: int) -> Optional[str]:
    """Queries the driver, for torch before 2.5, whose properties lack the value."""
    try:
        lib = ctypes.CDLL("libcuda.so.1")
        handle, raw = ctypes.c_int(), ctypes.create_string_buffer(16)
        if lib.cuDeviceGet(ctypes.byref(handle), device) or lib.cuDeviceGetUuid(raw, handle):
            return None
        h = raw.raw.hex()
        return "GPU-%s-%s-%s-%s-%s" % (h[:8], h[8:12], h[12:16], h[16:20], h[20:])
    except (OSError, AttributeError):
        return None


Backend = Union[TorchBackend, DriverBackend]


def find_backend() -> Optional[Backend]:
    """Returns the backend of this process, or None while only the host's clock is available. This neither imports a
    framework nor starts CUDA: until the program uses a device, there is no device work to time. torch.cuda.is_available() would initialize the driver, after which a
    forked process cannot use CUDA."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is not None and cuda.is_initialized():
        return TorchBackend(sys.modules["torch"])
    return find_driver()
