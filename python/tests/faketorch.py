# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
"""A fake of torch.cuda's streams and events with known true times, as strict as the real one.

The device's clock runs at another rate than the host's and started at another time. Work is queued on streams and takes
device time; an event gets the device's time, to half a microsecond, when its stream reaches it. elapsed_time returns
float32 milliseconds and rejects events that are not recorded, not finished or without timing. As in CUDA, event
queries from a thread that has not relaxed its capture mode end a graph capture."""

import collections
import struct
import threading
import time
import types


class Device:
    def __init__(self, drift=50e-6, offset=1e12):
        self.drift, self.offset = drift, offset
        self.lock = threading.Lock()
        self.capture_broken = False
        self.capturing_thread = None
        self.relaxed = set()
        self.fail = None
        self.events_made = 0
        self.stamps = collections.defaultdict(list)  # by recording thread, in ns of the device

    def now(self):
        """Returns the device time in ns."""
        return self.at(time.monotonic_ns())

    def at(self, host_ns):
        return host_ns * (1 + self.drift) + self.offset

    def host(self, device_ns):
        """Returns the true monotonic host time of a device time."""
        return (device_ns - self.offset) / (1 + self.drift)

    def unsafe_call(self):
        if self.fail is not None:
            raise self.fail
        me = threading.get_ident()
        if self.capturing_thread is not None and me not in self.relaxed:
            self.capture_broken = True
            raise RuntimeError("CUDA error: operation not permitted when stream is capturing")


def float32(x):
    return struct.unpack("f", struct.pack("f", x))[0]


def make(device, index=0, uuid="3c8e9d6f-1111-2222-3333-444455556666", initialized=True):
    """Returns a fake torch module whose cuda uses the given device."""
    handles = iter(range(1, 1 << 30))

    class Stream:
        def __init__(self, device=None):
            self.device = types.SimpleNamespace(index=index)
            self.cuda_stream = next(handles)
            self.tail = 0.0

        def ahead(self):
            """Keeps the device busy while a test queues work, so that the work's times are exact even if the test
            loses its CPU in between."""
            self.run(0.5)

        def run(self, seconds):
            """Queues work of that device time; returns its true device times."""
            with gpu.lock:
                start = max(self.tail, gpu.now())
                self.tail = start + seconds * 1e9
                return start, self.tail

    class Event:
        def __init__(self, enable_timing=False):
            self.timing, self.stamp = enable_timing, None
            gpu.events_made += 1

        def record(self, stream=None):
            if gpu.fail is not None:
                raise gpu.fail
            stream = stream or current.stream
            if gpu.capturing_thread == threading.get_ident() and stream is current.stream:
                self.stamp = float("inf")  # a node of the graph, which never runs on its own
                return
            with gpu.lock:
                self.stamp = max(stream.tail, gpu.now())
                gpu.stamps[threading.get_ident()].append(self.stamp)

        def query(self):
            gpu.unsafe_call()
            return self.stamp is not None and gpu.now() >= self.stamp

        def synchronize(self):
            gpu.unsafe_call()
            while not gpu.now() >= self.stamp:
                time.sleep(0.00001)

        def elapsed_time(self, end):
            gpu.unsafe_call()
            for e in (self, end):
                if not e.timing or e.stamp is None:
                    raise ValueError("both events should be recorded with timing enabled")
                if gpu.now() < e.stamp:
                    raise RuntimeError("CUDA error: device not ready")
            return float32((half_us(end.stamp) - half_us(self.stamp)) / 1e6)

    def half_us(ns):
        return round(ns / 500) * 500

    gpu = device
    default = Stream()

    class _Current(threading.local):
        stream = default

    current = _Current()
    cuda = types.SimpleNamespace(
        Stream=Stream, Event=Event,
        is_available=lambda: True, is_initialized=lambda: initialized,
        current_stream=lambda: current.stream,
        is_current_stream_capturing=lambda: gpu.capturing_thread == threading.get_ident(),
        get_device_properties=lambda i: types.SimpleNamespace(
            name="Simulated H100", uuid=uuid, pci_domain_id=0, pci_bus_id=0x17, pci_device_id=0))
    return types.SimpleNamespace(cuda=cuda, version=types.SimpleNamespace(hip=None), current=current)
