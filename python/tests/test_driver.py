# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
"""Sections timed by the driver's events, against a stub of the driver with known true times."""

import ctypes
import shutil
import sys
import threading
import time
import types

import pytest

import driverstub
import otelgpu
from otelgpu import _device, _driver, _runtime


@pytest.fixture(scope="module", params=["", "-DOLD_DRIVER"])
def library(request, tmp_path_factory):
    return driverstub.build(tmp_path_factory.mktemp("stub"), *filter(None, [request.param]))


@pytest.fixture
def cuda(library, monkeypatch, tmp_path):
    """A fresh copy of the driver, which the program has loaded."""
    path = shutil.copy(library, tmp_path / "libcuda.so.1")
    program = driverstub.Program(path)
    monkeypatch.setattr(_driver, "LIBRARY", str(path))
    monkeypatch.setattr(_driver, "AGAIN", 0)
    for name in ("torch", "cupy", "jax"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield program
    assert program.count("dead_uses") == program.count("dead_destroys") == 0


def spans(exporter):
    assert otelgpu.flush(10)
    return {s.name: s for s in exporter.get_finished_spans()}


def test_a_section_has_the_true_times_within_its_bound(exporter, cuda):
    cuda.set(drift_ppm=40, jitter_ns=500)
    cuda.start()
    stream, offset = cuda.stream(), _runtime.wall_offset()
    for i in range(40):
        with otelgpu.section("work %d" % i, stream=stream):
            cuda.work(stream, 0.001 + i * 1e-5)
        time.sleep(0.005)
    got = spans(exporter)
    for i in range(40):
        s = got["work %d" % i]
        start, end = cuda.at(stream, 2 * i), cuda.at(stream, 2 * i + 1)
        bound = s.attributes["gpu.timing.error"] * 1e9
        assert s.attributes["gpu.timing.source"] == "cuda_event"
        assert abs(s.attributes["gpu.duration"] * 1e9 - (end - start) * (1 + 40e-6)) <= 100  # on the device's clock
        assert abs(s.start_time - start - offset) <= bound + 20_000  # the wall clock may be slewed meanwhile
        assert abs(s.end_time - end - offset) <= bound + 20_000


def test_the_device_is_identified(exporter, cuda):
    cuda.set(devices=2)
    cuda.start(1)
    with otelgpu.section("a"):
        pass
    s = spans(exporter)["a"]
    scope = s.instrumentation_scope.attributes
    assert s.attributes["hw.id"] == "GPU-00112233-4455-6677-8899-aabbccddee01"
    assert (scope["hw.model"], scope["gpu.pci.bdf"], scope["hw.vendor"], scope["gpu.device.ordinal"]) == (
        "NVIDIA Stub GPU", "0000:1b:00.0", "NVIDIA", 1)


def test_the_default_stream_is_used_if_no_framework_has_another(exporter, cuda):
    cuda.start()
    blocking = cuda.stream(blocking=True)  # the default stream waits for it
    cuda.ahead(blocking)
    with otelgpu.section("a"):
        cuda.work(blocking, 0.01)
    assert spans(exporter)["a"].attributes["gpu.duration"] == pytest.approx(0.01, abs=1e-4)


@pytest.mark.parametrize("explicit", [True, False])
def test_a_thread_without_a_context_is_timed(exporter, cuda, explicit):
    cuda.set(record_needs_context=1)
    cuda.start()
    stream = cuda.stream()
    done = []

    def work():
        with otelgpu.section("a", stream=stream if explicit else None):
            if explicit:
                cuda.work(stream, 0.01)
        done.append(cuda.lib.stub_depth())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    s = spans(exporter)["a"]
    assert s.attributes["gpu.timing.source"] == "cuda_event" and "gpu.timing.status" not in s.attributes
    assert done == [0], "no context is left behind"


def test_cuda_is_neither_started_nor_initialized(exporter, cuda):
    with otelgpu.section("before cuInit"):
        pass
    cuda.lib.cuInit(0)
    with otelgpu.section("before a context"):
        pass
    active = ctypes.c_int(7)
    assert cuda.lib.cuDevicePrimaryCtxGetState(0, ctypes.byref(ctypes.c_uint()), ctypes.byref(active)) == 0
    assert active.value == 0
    cuda.start()
    with otelgpu.section("after"):
        pass
    got = spans(exporter)
    assert [got[x].attributes["gpu.timing.source"] for x in ("before cuInit", "before a context", "after")] == [
        "host", "host", "cuda_event"]


def test_the_driver_is_not_loaded(exporter, monkeypatch, library):
    monkeypatch.setattr(_driver, "LIBRARY", str(library))
    monkeypatch.setattr(_driver, "AGAIN", 0)
    with otelgpu.section("a"):
        pass
    assert spans(exporter)["a"].attributes["gpu.timing.source"] == "host"


@pytest.mark.parametrize("mode", [0, 1, 2])
def test_a_capture_stays_valid_and_its_sections_are_marked(exporter, cuda, mode):
    cuda.start()
    captured, other = cuda.stream(), cuda.stream()
    cuda.ahead(other)
    with otelgpu.section("pending", stream=other):
        cuda.work(other, 0.05)
    assert cuda.lib.cuStreamBeginCapture_v2(captured, mode) == 0
    with otelgpu.section("captured", stream=captured):
        pass
    thread = threading.Thread(target=lambda: otelgpu.section("other", stream=other).__enter__().__exit__(None, None, None))
    thread.start()
    thread.join()
    time.sleep(0.15)
    graph = ctypes.c_void_p()
    assert cuda.lib.cuStreamEndCapture(captured, ctypes.byref(graph)) == 0
    got = spans(exporter)
    assert got["captured"].attributes["gpu.timing.status"] == "captured"
    assert got["pending"].attributes["gpu.duration"] == pytest.approx(0.05, abs=1e-4)
    assert "gpu.timing.status" not in got["other"].attributes


def test_the_default_stream_during_a_capture_is_left_alone(exporter, cuda):
    cuda.start()
    captured = cuda.stream(blocking=True)
    assert cuda.lib.cuStreamBeginCapture_v2(captured, 0) == 0
    with otelgpu.section("default"):
        pass
    assert cuda.lib.cuStreamEndCapture(captured, ctypes.byref(ctypes.c_void_p())) == 0
    assert spans(exporter)["default"].attributes["gpu.timing.status"] == "captured"


def test_events_are_used_again(exporter, cuda):
    cuda.start()
    stream = cuda.stream()
    for i in range(20):
        with otelgpu.section("s%d" % i, stream=stream):
            cuda.work(stream, 0.001)
        assert otelgpu.flush(10)
        if i == 10:
            events = cuda.count("live_events")
    for i in range(20):
        true = (cuda.at(stream, 2 * i + 1) - cuda.at(stream, 2 * i)) / 1e9
        assert spans(exporter)["s%d" % i].attributes["gpu.duration"] == pytest.approx(true, abs=1e-6)
    assert cuda.count("live_events") - events <= 9 * 4, "only anchors have new events"


def test_a_failed_stream_is_reported_and_others_go_on(exporter, cuda):
    cuda.start()
    bad, good = cuda.stream(), cuda.stream()
    with otelgpu.section("fails later", stream=bad):
        cuda.work(bad, 0.001)
    cuda.lib.stub_stream_fail(bad, 719)
    with otelgpu.section("fails at once", stream=bad):
        pass
    with otelgpu.section("good", stream=good):
        pass
    got = spans(exporter)
    assert {k: s.attributes.get("gpu.timing.status") for k, s in got.items()} == {
        "fails later": "device_error", "fails at once": "device_error", "good": None}
    assert all("gpu.duration" not in got[k].attributes for k in ("fails later", "fails at once"))


def test_after_a_reset_of_the_device_new_events_are_made(exporter, cuda):
    cuda.start()
    with otelgpu.section("before"):
        pass
    assert otelgpu.flush(10)
    cuda.lib.stub_primary_reset(0)
    cuda.leave()
    with otelgpu.section("gone"):
        pass
    assert otelgpu.flush(10)
    cuda.start()
    for name in ("next", "after"):
        with otelgpu.section(name):
            pass
        assert otelgpu.flush(10)
    got = spans(exporter)
    assert got["after"].attributes["gpu.timing.source"] == "cuda_event"
    assert set(got) == {"before", "gone", "next", "after"}


def test_sections_of_two_devices_in_one(exporter, cuda):
    cuda.set(devices=2)
    cuda.start(0)
    first = cuda.stream()
    cuda.start(1)
    second = cuda.stream()
    cuda.leave()
    with otelgpu.section("both", stream=first):
        with otelgpu.section("inner", stream=second):
            cuda.work(second, 0.002)
        cuda.work(first, 0.001)
    got = spans(exporter)
    assert got["inner"].attributes["gpu.duration"] > 0.0019 and got["both"].attributes["gpu.duration"] > 0.0009
    assert {s.attributes["hw.name"] for s in got.values()} == {"gpu0", "gpu1"}
    for s in got.values():
        assert "gpu.timing.error" in s.attributes and "gpu.timing.status" not in s.attributes


def test_steps_and_phases(exporter, cuda, monkeypatch):
    cuda.start()
    stream = cuda.stream()
    cuda.ahead(stream)
    for step in otelgpu.loop("train", total_steps=3, stream=stream):
        with step.phase("forward", stream=stream):
            cuda.work(stream, 0.004)
        with step.phase("backward", stream=stream):
            cuda.work(stream, 0.008)
    assert otelgpu.flush(10)
    for s in exporter.get_finished_spans():
        if s.name == "train":
            assert s.attributes["gpu.step.phase.duration.forward"] == pytest.approx(0.004, abs=1e-4)
            assert s.attributes["gpu.step.phase.duration.backward"] == pytest.approx(0.008, abs=1e-4)
            assert s.attributes["gpu.step.duration"] >= 0.012


class Handle:
    def __init__(self, value):
        self.value = value


@pytest.mark.parametrize("stream, handle", [
    (0, 0), (4711, 4711), (types.SimpleNamespace(ptr=12), 12), (types.SimpleNamespace(handle=Handle(13)), 13),
    (types.SimpleNamespace(handle=Handle(None)), 0), (types.SimpleNamespace(handle=14), 14),
    (types.SimpleNamespace(cuda_stream=15), 15), (types.SimpleNamespace(__cuda_stream__=lambda: (0, 16)), 16),
    (types.SimpleNamespace(__cuda_stream__=(0, 17)), 17), (ctypes.c_int(18).value, 18)])
def test_streams_of_frameworks(stream, handle):
    assert _driver.stream_handle(stream) == handle


def test_the_current_stream_of_cupy_is_used(exporter, cuda, monkeypatch):
    cuda.start()
    stream = cuda.stream()
    current = types.SimpleNamespace(ptr=0)
    monkeypatch.setitem(sys.modules, "cupy", types.SimpleNamespace(
        cuda=types.SimpleNamespace(get_current_stream=lambda: current)))
    with otelgpu.section("default"):
        pass
    current.ptr = stream
    cuda.ahead(stream)
    with otelgpu.section("own"):
        cuda.work(stream, 0.01)
    got = spans(exporter)
    assert got["own"].attributes["gpu.duration"] == pytest.approx(0.01, abs=1e-4)
    assert got["default"].attributes["gpu.stream.id"] != got["own"].attributes["gpu.stream.id"]


def test_a_stream_of_cupy_in_a_program_with_torch(exporter, gpu):
    other = gpu.torch.cuda.Stream()
    gpu.torch.cuda.ExternalStream = lambda handle: {other.cuda_stream: other}[handle]
    other.ahead()
    with otelgpu.section("cupy", stream=types.SimpleNamespace(ptr=other.cuda_stream)):
        other.run(0.002)
    assert spans(exporter)["cupy"].attributes["gpu.duration"] == pytest.approx(0.002, abs=1e-5)


class FakeJax:
    """JAX on a GPU: computations run in the order of dispatch on a stream that only the fake knows."""

    def __init__(self, cuda, monkeypatch):
        self.cuda, self.stream, self.waited = cuda, cuda.stream(), []
        module = types.ModuleType("jax")
        module.config = types.SimpleNamespace(jax_default_device=None)
        module.local_devices = lambda backend: [types.SimpleNamespace(local_hardware_id=0)]
        module.device_put = lambda x, device: x
        module.numpy = types.SimpleNamespace(zeros=lambda shape, kind: 0)
        module.jit = lambda f: lambda x: self.work(0)
        monkeypatch.setitem(sys.modules, "jax", module)
        monkeypatch.setitem(sys.modules, "jax._src.xla_bridge", types.SimpleNamespace(_backends={"cuda": 1, "cpu": 2}))

    def work(self, seconds):
        self.cuda.work(self.stream, seconds)
        event = ctypes.c_void_p()
        assert self.cuda.lib.cuEventCreate(ctypes.byref(event), 0) == 0
        assert self.cuda.lib.cuEventRecord(event, ctypes.c_void_p(self.stream)) == 0

        def block_until_ready():
            self.waited.append(threading.current_thread().name)
            assert self.cuda.lib.cuEventSynchronize(event) == 0
        return types.SimpleNamespace(block_until_ready=block_until_ready)


def test_sections_of_jax_are_timed_without_waiting(exporter, cuda, monkeypatch):
    cuda.set(polls_need_context=0)
    cuda.start()
    jax = FakeJax(cuda, monkeypatch)
    begin = time.monotonic()
    with otelgpu.section("first"):
        jax.work(0.1)
    with otelgpu.section("second"):
        jax.work(0.2)
    called = time.monotonic() - begin
    got = spans(exporter)
    assert called < 0.3, "the caller did not wait for the work"
    # The thread that waits wakes up late, by any time on a busy machine.
    assert 0 < got["first"].attributes["gpu.duration"] + got["second"].attributes["gpu.duration"] < time.monotonic() - begin
    assert all("gpu.timing.error" not in s.attributes for s in got.values()), "no bound is known"
    assert jax.waited.count("MainThread") == 1, "once, when the mark is compiled"


def test_a_failed_computation_of_jax_is_reported(exporter, cuda, monkeypatch):
    cuda.set(polls_need_context=0)
    cuda.start()
    jax = FakeJax(cuda, monkeypatch)
    with otelgpu.section("warm"):
        pass
    assert otelgpu.flush(10)

    def fail():
        raise RuntimeError("device lost")

    monkeypatch.setattr(jax, "work", lambda s: types.SimpleNamespace(block_until_ready=fail))
    with otelgpu.section("failed"):
        pass
    assert spans(exporter)["failed"].attributes["gpu.timing.status"] == "device_error"
