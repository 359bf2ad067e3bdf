# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
import asyncio
import contextlib
import os
import signal
import threading
import time
import types

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import StatusCode

import otelgpu
from otelgpu import _runtime


def spans(exporter):
    assert otelgpu.flush(10)
    return {s.name: s for s in exporter.get_finished_spans()}


def test_a_section_has_the_devices_times_within_its_bound(exporter, gpu):
    stream, sections = gpu.torch.cuda.current_stream(), []
    for i in range(60):
        with otelgpu.section("work %d" % i) as x:
            stream.run(0.0005 + i * 1e-5)
        sections.append(x)
        time.sleep(0.01)
    got = spans(exporter)
    offset = _runtime.wall_offset()
    for i, x in enumerate(sections):
        s = got["work %d" % i]
        start, end = gpu.stamps[threading.get_ident()][2 * i:2 * i + 2]  # device times before rounding
        bound = s.attributes["gpu.timing.error"] * 1e9
        assert s.attributes["gpu.timing.source"] == "cuda_event"
        assert abs(s.attributes["gpu.duration"] * 1e9 - (end - start)) <= 600
        # The wall clock may be slewed relative to the monotonic one between the span and this read: 20 µs.
        assert abs(s.start_time - (gpu.host(start) + offset)) <= bound + 20_000
        assert abs(s.end_time - (gpu.host(end) + offset)) <= bound + 20_000
        assert 0 < bound


def test_queued_work_starts_and_ends_after_the_host(exporter, gpu):
    stream = gpu.torch.cuda.current_stream()
    before = time.monotonic()
    stream.ahead()
    with otelgpu.section("queued"):
        stream.run(0.02)
    took = time.monotonic() - before
    s = spans(exporter)["queued"]
    assert 0.5 - took - 1e-3 < s.attributes["gpu.start.delay"] < 0.5 + 1e-3
    called = (s.end_time - s.start_time) * 1e-9 + s.attributes["gpu.start.delay"] - s.attributes["gpu.end.delay"]
    assert -1e-6 < called < took + 1e-6
    assert s.attributes["gpu.duration"] == pytest.approx(0.02, abs=1e-5)


def test_the_device_is_on_the_scope_and_its_id_on_the_span(exporter, gpu):
    with otelgpu.section("a"):
        pass
    s = spans(exporter)["a"]
    assert s.attributes["hw.id"] == "GPU-3c8e9d6f-1111-2222-3333-444455556666"
    assert s.attributes["hw.name"] == "gpu0"
    assert "hw.model" not in s.attributes
    scope = s.instrumentation_scope
    assert scope.name == "otelgpu"
    assert scope.attributes["hw.model"] == "Simulated H100"
    assert scope.attributes["gpu.pci.bdf"] == "0000:17:00.0"
    assert scope.attributes["hw.vendor"] == "NVIDIA"


def test_sections_hang_below_the_current_span_and_within_one_another(exporter, gpu):
    with exporter.tracer.start_as_current_span("request") as request:
        with otelgpu.section("outer"):
            with otelgpu.section("inner"):
                with otelgpu.section("innermost"):
                    pass
            with exporter.tracer.start_as_current_span("host call") as host:
                with otelgpu.section("below host"):
                    pass
    got = spans(exporter)
    assert got["outer"].parent.span_id == request.get_span_context().span_id
    assert got["inner"].parent.span_id == got["outer"].context.span_id
    assert got["innermost"].parent.span_id == got["inner"].context.span_id
    assert got["below host"].parent.span_id == host.get_span_context().span_id
    assert len({s.context.trace_id for s in got.values()}) == 1


def test_without_a_device_the_hosts_clock_is_named_and_there_is_no_gpu_time(exporter):
    with otelgpu.section("host only", items=3, item_type="token"):
        time.sleep(0.002)
    s = spans(exporter)["host only"]
    assert s.attributes["gpu.timing.source"] == "host"
    assert "gpu.duration" not in s.attributes and "hw.id" not in s.attributes
    assert s.end_time - s.start_time >= 2_000_000
    assert s.attributes["gpu.operation.items"] == 3


def test_work_is_written_as_declared(exporter, gpu):
    with otelgpu.section("gemm", category="prefill", flops=2e12, precision="bf16", items=7, item_type="token") as s:
        s.read, s.written = 100, 50
    with otelgpu.section("h2d", type="copy", copy="host_to_device", host_memory="pinned", size=4096):
        pass
    got = spans(exporter)
    a = got["gemm"].attributes
    assert (a["gpu.flop.count"], a["gpu.flop.precision"]) == (2e12, "bf16")
    assert (a["gpu.io.read.size"], a["gpu.io.write.size"]) == (100, 50)
    assert (a["gpu.operation.type"], a["gpu.operation.category"]) == ("section", "prefill")
    b = got["h2d"].attributes
    assert (b["gpu.operation.type"], b["gpu.copy.direction"], b["gpu.io.size"]) == ("copy", "host_to_device", 4096)
    assert "gpu.io.read.size" not in b and "gpu.flop.count" not in b


def test_a_batch_links_to_its_requests_with_their_shares(exporter, gpu):
    a = exporter.tracer.start_span("request a")
    b = exporter.tracer.start_span("request b")
    with otelgpu.section("decode", links=[(a, 1)], batched=True) as x:
        x.link(trace.set_span_in_context(b), 3)
    s = spans(exporter)["decode"]
    assert [l.context.span_id for l in s.links] == [a.get_span_context().span_id, b.get_span_context().span_id]
    assert [dict(l.attributes) for l in s.links] == [{"gpu.operation.items": 1}, {"gpu.operation.items": 3}]


def test_shares_are_of_all_requests_where_some_have_no_link(exporter, gpu):
    request = exporter.tracer.start_span("request")
    with otelgpu.section("decode", batched=True) as x:
        for _ in range(200):
            x.link(request, 2)
    s = spans(exporter)["decode"]
    assert (s.attributes["gpu.batch.size"], len(s.links)) == (200, 128)
    assert {l.attributes["gpu.batch.share"] for l in s.links} == {1 / 200}


def test_an_unsampled_parent_costs_no_event_unless_a_linked_request_is_sampled(exporter, gpu, fresh):
    dropped = TracerProvider(sampler=ALWAYS_OFF).get_tracer("t").start_span("dropped")
    sampled = exporter.tracer.start_span("sampled")
    with trace.use_span(dropped):
        with otelgpu.section("not seen"):
            pass
        made = gpu.events_made
        with otelgpu.section("not seen either", batched=True, links=[dropped]):
            pass
    assert made == gpu.events_made == 0
    assert otelgpu.stats()["unsampled"] == 2
    with otelgpu.section("seen", batched=True, links=[sampled]):
        pass
    assert set(spans(exporter)) == {"seen"}


def test_elapsed_is_given_back_without_waiting(exporter, gpu):
    stream = gpu.torch.cuda.current_stream()
    stream.ahead()
    with otelgpu.section("a") as x:
        stream.run(0.01)
    assert x.elapsed is None
    otelgpu.flush(5)
    assert x.elapsed == pytest.approx(0.01, abs=1e-5)


def test_an_exception_goes_through_and_is_named(exporter, gpu):
    with pytest.raises(KeyError):
        with otelgpu.section("fails"):
            raise KeyError("x")
    s = spans(exporter)["fails"]
    assert s.attributes["error.type"] == "KeyError"
    assert s.status.status_code == StatusCode.ERROR


def test_as_a_decorator_each_call_is_a_section(exporter, gpu):
    @otelgpu.section("f", category="forward")
    def f(x):
        return x + 1

    @otelgpu.section("g")
    async def g(x):
        await asyncio.sleep(0)
        return x * 2

    assert [f(1), f(2)] == [2, 3]
    assert asyncio.run(g(4)) == 8
    otelgpu.flush(5)
    names = [s.name for s in exporter.get_finished_spans()]
    assert sorted(names) == ["f", "f", "g"]
    assert [s.attributes.get("gpu.operation.occurrence") for s in exporter.get_finished_spans() if s.name == "f"] == [1, None]


def test_tasks_do_not_become_each_others_parents(exporter, gpu):
    async def work(name):
        with otelgpu.section(name):
            await asyncio.sleep(0.002)
            with otelgpu.section(name + " inner"):
                await asyncio.sleep(0.002)

    async def main():
        await asyncio.gather(*(work("t%d" % i) for i in range(8)))

    asyncio.run(main())
    got = spans(exporter)
    assert len(got) == 16
    for i in range(8):
        assert got["t%d" % i].parent is None
        assert got["t%d inner" % i].parent.span_id == got["t%d" % i].context.span_id


def test_threads_lose_nothing(exporter, gpu):
    def work(k):
        for i in range(100):
            with otelgpu.section("thread %d" % k):
                with otelgpu.section("in %d" % k):
                    pass

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert otelgpu.flush(20)
    assert len(exporter.get_finished_spans()) == 1600
    assert otelgpu.stats() == {"spans": 1600}


def test_a_forked_child_has_a_state_of_its_own(exporter, gpu):
    with otelgpu.section("before"):
        pass
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            with otelgpu.section("in the child"):
                pass
            ok = otelgpu.flush(5)
            names = sorted(s.name for s in exporter.get_finished_spans() if s.name == "in the child")
            os.write(w, repr((ok, names, otelgpu.stats().get("spans"))).encode())
            code = 0
        finally:
            os._exit(code)
    os.close(w)
    answer = os.read(r, 1000).decode()
    assert os.waitpid(pid, 0)[1] == 0
    assert answer == "(True, ['in the child'], 1)"
    assert set(spans(exporter)) == {"before"}


def test_a_forked_child_leaves_sections_of_its_parent_without_its_locks(exporter, gpu, fresh):
    held, free = threading.Event(), threading.Event()

    def hold(step):
        with fresh.lock, step._lock:  # as the reading thread may at any time
            held.set()
            free.wait()

    pid = None
    for step in otelgpu.loop("train", total_steps=1):
        with step.phase("forward"):
            with otelgpu.section("inner"):
                events, holder = gpu.events_made, threading.Thread(target=hold, args=(step,))
                holder.start()
                held.wait()
                pid = os.fork()
                if pid == 0:
                    signal.alarm(60)  # ends a child that waits for a lock
                else:
                    free.set()
                    holder.join()
        if pid == 0:
            called = gpu.events_made - events
            with step.phase("backward"):
                pass
    if pid == 0:
        os._exit(called)
    assert os.waitpid(pid, 0)[1] == 0
    assert {"inner", "forward", "train"} == set(spans(exporter))


def test_reading_does_not_end_another_threads_capture(exporter, gpu):
    stream = gpu.torch.cuda.current_stream()
    stream.ahead()
    with otelgpu.section("pending"):
        stream.run(0.03)
    gpu.capturing_thread = threading.get_ident()
    with otelgpu.section("captured"):
        pass
    time.sleep(0.1)
    assert not gpu.capture_broken
    gpu.capturing_thread = None
    got = spans(exporter)
    assert got["captured"].attributes["gpu.timing.status"] == "captured"
    assert got["captured"].attributes["gpu.timing.source"] == "host"
    assert got["pending"].attributes["gpu.duration"] == pytest.approx(0.03, abs=1e-5)


def test_a_failing_device_is_told_and_nothing_is_raised(exporter, gpu):
    with otelgpu.section("fails later"):
        gpu.torch.cuda.current_stream().ahead()
    gpu.fail = RuntimeError("CUDA error: an illegal memory access was encountered")
    with otelgpu.section("fails at once"):
        pass
    got = spans(exporter)
    assert got["fails later"].attributes["gpu.timing.status"] == "device_error"
    assert got["fails at once"].attributes["gpu.timing.status"] == "device_error"
    assert "gpu.duration" not in got["fails later"].attributes
    assert otelgpu.stats()["error"] >= 1


def test_a_hang_is_reported_by_the_hosts_clock(exporter, gpu, monkeypatch):
    monkeypatch.setattr(_runtime, "HANG_DEADLINE", 0.05)
    with otelgpu.section("hangs"):
        gpu.torch.cuda.current_stream().run(3600)
    s = spans(exporter)["hangs"]
    assert s.attributes["gpu.timing.status"] == "timeout"
    assert "gpu.duration" not in s.attributes


def test_full_queues_and_nests_drop_and_count(exporter, gpu, monkeypatch):
    monkeypatch.setattr(_runtime, "MAX_PENDING", 2)
    gpu.torch.cuda.current_stream().ahead()
    for i in range(5):
        with otelgpu.section("s%d" % i):
            pass
    assert otelgpu.stats()["dropped.queue_full"] == 3
    assert len(spans(exporter)) == 2
    with otelgpu.section("big"):
        for i in range(_runtime.MAX_NEST + 10):
            with otelgpu.section("leaf"):
                pass
    assert otelgpu.flush(20)
    assert otelgpu.stats()["dropped.nest_full"] == 11
    assert sum(s.name == "leaf" for s in exporter.get_finished_spans()) == _runtime.MAX_NEST - 1


def test_odd_names_and_values_reach_the_exporter(exporter, gpu):
    with otelgpu.section("bad \udcff name" + "x" * 10_000, items=2.0, attributes={"k": 1}):
        pass
    with otelgpu.section("refused", items="many"):
        pass
    otelgpu.flush(5)
    s, refused = exporter.get_finished_spans()
    assert refused.name == "refused" and "gpu.operation.items" not in refused.attributes
    s.name.encode()
    assert len(s.name) == 256
    assert s.attributes["gpu.operation.items"] == 2
    assert otelgpu.stats()["error"] == 1


def test_words_that_nobody_knows_are_named_once(exporter, gpu, caplog):
    for _ in range(3):
        with otelgpu.section("a", flops=1e9, precision="BF16"):
            pass
    with otelgpu.section("b", type="kopy"):
        pass
    with otelgpu.section("c", type="copy", copy="h2d", host_memory="pined"):
        pass
    with otelgpu.section("d", type="copy", copy="host_to_device", host_memory="pinned"):
        pass
    otelgpu.flush(5)
    said = [r.getMessage() for r in caplog.records]
    assert len(said) == 4 and otelgpu.stats()["error"] == 6
    assert "gpu.flop.precision: 'BF16' is not one of bf16, fp16, fp32," in said[0]
    assert "gpu.operation.type: 'kopy' is not one of collective, copy," in said[1]
    assert "gpu.copy.direction: 'h2d' is not one of" in said[2] and "'pined' is not one of managed" in said[3]


def test_off_by_the_environment(exporter, gpu, monkeypatch):
    monkeypatch.setenv("OTELGPU_ENABLED", "false")
    monkeypatch.setattr(_runtime, "_runtime", _runtime.Runtime())
    with otelgpu.section("a") as x:
        x.items = 1
    assert [st.index for st in otelgpu.loop("l", total_steps=2)] == [1, 2]
    assert otelgpu.stats() == {} and gpu.events_made == 0


def test_an_exploding_sdk_costs_its_span_only(gpu, monkeypatch):
    class Bad:
        def get_tracer(self, *a, **k):
            raise RuntimeError("no tracer today")

    monkeypatch.setattr(trace, "get_tracer_provider", lambda: Bad())
    with otelgpu.section("a"):
        pass
    for step in otelgpu.loop("l", total_steps=2):
        with step.phase("p"):
            pass
    assert otelgpu.flush(5)
    assert otelgpu.stats()["error"] >= 1


def test_a_value_of_the_wrong_kind_costs_its_attribute_only(exporter, gpu, fresh, caplog):
    for step in otelgpu.loop("train", total_steps=2):
        with step.phase("forward", items="many", flops=1e9) as x:
            x.written = object()
            with otelgpu.section("inner"):
                gpu.torch.cuda.current_stream().run(0.001)
    assert otelgpu.flush(5)
    spans = [s for s in exporter.get_finished_spans() if s.name == "forward"]
    assert len(spans) == 2 and all(s.attributes["gpu.flop.count"] == 1e9 for s in spans)
    assert all("gpu.operation.items" not in s.attributes and "gpu.io.write.size" not in s.attributes for s in spans)
    assert sum(s.name == "train" for s in exporter.get_finished_spans()) == 2
    assert fresh.counts["error"] == 4 and len(caplog.records) == 2


def test_a_section_and_a_step_across_a_jump_of_the_devices_clock_have_host_times(exporter, gpu, fresh):
    with otelgpu.section("before"):
        pass
    for step in otelgpu.loop("train", total_steps=1):
        with step.phase("forward"):
            gpu.torch.cuda.current_stream().run(0.001)
        assert otelgpu.flush(5)
        with otelgpu.section("across"):
            gpu.offset += 600e9
        with step.phase("backward"):
            gpu.torch.cuda.current_stream().run(0.001)
    got = spans(exporter)
    assert got["before"].attributes["gpu.duration"] < 600
    for name in ("across", "train"):
        a = got[name].attributes
        assert a["gpu.timing.status"] == "clock_jump" and a["gpu.timing.source"] == "host" and "gpu.duration" not in a
        assert got[name].end_time - got[name].start_time < 600e9
    assert not any(k.startswith("gpu.step.phase") for k in got["train"].attributes)
    assert got["backward"].attributes["gpu.duration"] < 600 and fresh.counts["error"] == 2


def test_numbers_that_cannot_be_true_cost_their_attribute_only(exporter, gpu, fresh, caplog):
    with otelgpu.section("copy", type="copy", items=-5, flops=float("nan"), read=2**70, size=1000, copy="host_to_device"):
        gpu.torch.cuda.current_stream().run(0.001)
    for step in otelgpu.loop("train", total_steps=1):
        with step.phase("forward"):
            gpu.torch.cuda.current_stream().run(0.001)
        step.add_phase("comm", float("inf"))
        step.items, step.epoch, step.model_flops, step.devices = "many", "first", 10**400, -1
        step.precision = "bf16"
    assert otelgpu.flush(5)
    copy, forward, train = exporter.get_finished_spans()
    assert {"gpu.duration", "gpu.io.size"} <= set(copy.attributes)
    assert not {"gpu.operation.items", "gpu.flop.count", "gpu.io.read.size"} & set(copy.attributes)
    assert train.name == "train" and {"gpu.step.duration", "gpu.step.phase.duration.forward"} <= set(train.attributes)
    assert not any(k in train.attributes for k in (
        "gpu.step.items", "gpu.step.epoch", "gpu.step.model.flop.count", "gpu.step.device.count",
        "gpu.step.phase.duration.comm"))
    assert fresh.counts["error"] == len(caplog.records) == 8
    assert otelgpu.report()["copy"].all.to_device == 1000 and otelgpu.report()["copy"].all.read is None


def test_wrong_links_and_attributes_cost_only_themselves(exporter, gpu, fresh):
    request = exporter.tracer.start_span("request")
    with otelgpu.section("batch", links=[(request, float("nan")), (request, 3), "nothing"]):
        pass
    with otelgpu.section("no links", links=5, attributes="text"):
        pass
    assert otelgpu.flush(5) and fresh.counts["error"] == 4
    batch, other = exporter.get_finished_spans()
    assert [dict(link.attributes) for link in batch.links] == [{}, {"gpu.operation.items": 3, "gpu.batch.share": 1.0}]
    assert other.name == "no links" and not other.links


def test_a_step_on_a_device_that_fails_has_host_times(exporter, gpu):
    for step in otelgpu.loop("train", total_steps=3):
        if step.index == 1:  # fails at the end of the first step, and at the start of the last one
            gpu.fail = RuntimeError("CUDA error: unspecified launch failure")
    gpu.fail = None
    assert otelgpu.flush(5)
    steps = exporter.get_finished_spans()
    assert [s.attributes["gpu.step.index"] for s in steps] == [1, 2, 3]
    assert all(s.attributes["gpu.timing.status"] == "device_error" and "gpu.duration" not in s.attributes for s in steps)


def test_sections_that_overlap_without_nesting_leave_no_parent_behind(exporter, gpu):
    a, b, c = (otelgpu.section(name) for name in "abc")
    a.__enter__()
    b.__enter__()
    a.__exit__(None, None, None)
    c.__enter__()
    b.__exit__(None, None, None)
    c.__exit__(None, None, None)
    with otelgpu.section("later"):
        pass
    got = spans(exporter)
    assert got["b"].parent.span_id == got["a"].context.span_id
    assert got["c"].parent.span_id == got["b"].context.span_id
    assert got["a"].parent is None and got["later"].parent is None


def test_sections_within_host_work_have_the_times_of_the_device(exporter, gpu):
    with otelgpu.section("compile", type="host"):
        with otelgpu.section("kernel"):
            gpu.torch.cuda.current_stream().run(0.002)
    assert otelgpu.flush(5)
    kernel, outer = exporter.get_finished_spans()
    assert kernel.attributes["gpu.duration"] >= 0.002
    assert kernel.parent.span_id == outer.context.span_id and "gpu.duration" not in outer.attributes
    assert otelgpu.report().devices == ["Simulated H100"]


def test_a_nest_can_be_deeper_than_the_stack_of_python(exporter, gpu):
    with contextlib.ExitStack() as stack:
        for _ in range(_runtime.MAX_NEST):
            stack.enter_context(otelgpu.section("deep"))
    assert otelgpu.flush(20)
    spans = exporter.get_finished_spans()
    assert len(spans) == len(otelgpu.report().operations) == _runtime.MAX_NEST
    assert all(inner.parent.span_id == outer.context.span_id for inner, outer in zip(spans, spans[1:]))


def test_a_span_that_the_sdk_refuses_costs_no_other(exporter, gpu, monkeypatch):
    describe = _runtime.Runtime.describe

    def refuse(self, node):
        return 1 / 0 if node.name == "refused" else describe(self, node)

    monkeypatch.setattr(_runtime.Runtime, "describe", refuse)
    with otelgpu.section("outer"):
        with otelgpu.section("refused"):
            with otelgpu.section("inner"):
                pass
    assert otelgpu.flush(5)
    inner, outer = exporter.get_finished_spans()
    assert inner.name == "inner" and inner.parent.span_id == outer.context.span_id
    assert otelgpu.stats()["dropped.error"] == 1 and otelgpu.stats()["spans"] == 2


def test_the_driver_is_not_initialized_by_a_question(exporter, gpu, monkeypatch):
    def available():
        raise AssertionError("torch.cuda.is_available() calls cuInit, after which a fork cannot use CUDA")

    monkeypatch.setattr(gpu.torch.cuda, "is_available", available)
    with otelgpu.section("work"):
        gpu.torch.cuda.current_stream().run(0.001)
    assert otelgpu.flush(5)
    assert "gpu.duration" in exporter.get_finished_spans()[0].attributes


def test_a_section_used_twice_keeps_the_values_of_each_use(exporter, gpu):
    x, more = otelgpu.section("use"), {"run": 1}
    for i in (1, 2):
        with x:
            x.items, more["run"] = i, i
            x.attributes = more
            gpu.torch.cuda.current_stream().run(0.001)
    assert otelgpu.flush(5)
    spans = [s for s in exporter.get_finished_spans() if s.name == "use"]
    assert sorted((s.attributes["gpu.operation.items"], s.attributes["run"]) for s in spans) == [(1, 1), (2, 2)]


def test_default_streams_of_two_devices_are_two_streams(exporter, gpu):
    """Their handle is the same, 0."""
    other = gpu.torch.cuda.Stream()
    other.device.index, other.cuda_stream = 1, 0
    gpu.torch.cuda.current_stream().cuda_stream = 0
    for step in otelgpu.loop("train", total_steps=1):
        with otelgpu.section("first"):
            pass
        with otelgpu.section("second", stream=other):
            pass
    got = spans(exporter)
    assert [got[x].attributes["hw.name"] for x in ("first", "second")] == ["gpu0", "gpu1"]
    assert got["first"].attributes["gpu.stream.id"] == got["train"].attributes["gpu.stream.id"]
    assert got["first"].attributes["gpu.stream.id"] != got["second"].attributes["gpu.stream.id"]


def test_events_are_used_again_after_they_were_read(exporter, gpu):
    stream = gpu.torch.cuda.current_stream()
    for i in range(5):
        with otelgpu.section("s%d" % i):
            stream.run(0.001 * (i + 1))
        assert otelgpu.flush(10)
        if i == 0:
            made, anchors = gpu.events_made, len(gpu.stamps[otelgpu._runtime.runtime().thread.ident])
    more = len(gpu.stamps[otelgpu._runtime.runtime().thread.ident]) - anchors
    assert gpu.events_made - made == more, "only anchors have new events"
    got, stamps = spans(exporter), gpu.stamps[threading.get_ident()]
    for i in range(5):
        assert abs(got["s%d" % i].attributes["gpu.duration"] * 1e9 - (stamps[2 * i + 1] - stamps[2 * i])) <= 600


def test_the_functions_behind_torch_cuda_are_used_if_there_are_any(exporter, gpu):
    cuda, calls = gpu.torch.cuda, []

    class Event(cuda.Event):
        pass

    def current(device):
        calls.append(device)
        return cuda.current_stream().cuda_stream, 0, 1

    gpu.torch._C = types.SimpleNamespace(
        _CudaEventBase=Event, _cuda_getDevice=lambda: 0, _cuda_getCurrentStream=current,
        _cuda_isCurrentStreamCapturing=cuda.is_current_stream_capturing)
    other = cuda.Stream()
    for stream in (cuda.current_stream(), other, other):
        gpu.torch.current.stream = stream
        with otelgpu.section("a"):
            stream.run(0.001)
    assert otelgpu.flush(10)
    got = exporter.get_finished_spans()
    assert [s.attributes["gpu.stream.id"] for s in got] == [1, 2, 2] and calls == [0, 0, 0]
    assert all(s.attributes["gpu.duration"] >= 0.001 - 1e-6 for s in got)
