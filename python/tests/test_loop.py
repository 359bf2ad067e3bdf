# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
import sys
import threading
import time

import pytest
from opentelemetry import trace
from opentelemetry.trace import StatusCode

import otelgpu
from otelgpu import _loop, _runtime
from otelgpu._loop import union


def done(exporter):
    assert otelgpu.flush(10)
    return exporter.get_finished_spans()


def test_steps_have_the_devices_length_from_boundary_to_boundary(exporter, gpu):
    stream = gpu.torch.cuda.current_stream()
    stream.ahead()
    for step in otelgpu.loop("train", item_type="image", total_steps=3):
        with step.phase("forward"):
            stream.run(0.010)
        with step.phase("backward"):
            stream.run(0.020)
        step.items, step.epoch, step.model_flops, step.devices = 32, 1, 1e12, 8
    got = [s for s in done(exporter) if s.name == "train"]
    assert [s.attributes["gpu.step.index"] for s in got] == [1, 2, 3]
    for s in got:
        a = s.attributes
        assert a["gpu.operation.type"] == "step"
        assert a["gpu.step.duration"] >= 0.030
        assert a["gpu.step.phase.duration.forward"] == pytest.approx(0.010, abs=1e-4)
        assert a["gpu.step.phase.duration.backward"] == pytest.approx(0.020, abs=1e-4)
        total = a["gpu.step.phase.duration.forward"] + a["gpu.step.phase.duration.backward"]
        assert a["gpu.step.duration"] == pytest.approx(
            total - a["gpu.step.overlap.duration"] + a["gpu.step.other.duration"], abs=1e-9)
        assert (a["gpu.step.items"], a["gpu.step.item.type"], a["gpu.step.epoch"]) == (32, "image", 1)
        assert (a["gpu.step.model.flop.count"], a["gpu.step.device.count"]) == (1e12, 8)
        assert s.instrumentation_scope.attributes["hw.model"] == "Simulated H100"
    phases = [s for s in done(exporter) if s.name == "forward"]
    assert [p.parent.span_id for p in phases] == [s.context.span_id for s in got]


def test_over_an_iterable_the_wait_for_items_is_the_data_phase(exporter, gpu):
    def loader():
        for i in range(3):
            time.sleep(0.01)
            yield i

    seen = []
    for step, item in otelgpu.loop("train", loader()):
        seen.append((step.index, item))
    assert seen == [(1, 0), (2, 1), (3, 2)]
    got = done(exporter)
    steps = [s for s in got if s.name == "train"]
    assert len(steps) == 3 and sum(s.name == "data" for s in got) == 3
    assert all(s.attributes["gpu.step.phase.duration.data"] >= 0.01 for s in steps)


def test_the_step_is_the_current_span_and_is_left_at_a_break(exporter, gpu):
    with exporter.tracer.start_as_current_span("job") as job:
        for step in otelgpu.loop("train"):
            inside = trace.get_current_span().get_span_context().span_id
            if step.index == 2:
                break
        assert trace.get_current_span() is job
    got = [s for s in done(exporter) if s.name == "train"]
    assert [s.parent.span_id for s in got] == [job.get_span_context().span_id] * 2
    assert got[1].context.span_id == inside


def test_an_exception_in_the_body_leaves_the_context_as_it_was(exporter, gpu):
    with pytest.raises(ValueError):
        for step in otelgpu.loop("train"):
            raise ValueError
    assert not trace.get_current_span().get_span_context().is_valid
    assert [s.name for s in done(exporter)] == ["train"]


def test_what_the_schedule_leaves_out_turns_all_the_same(exporter, gpu):
    seen = [st.index for st in otelgpu.loop("train", total_steps=20,
                                            schedule=otelgpu.Schedule(skip_first=5, every=5, warmup=1, active=2))]
    assert seen == list(range(1, 21))
    assert [s.attributes["gpu.step.index"] for s in done(exporter)] == [9, 10, 14, 15, 19, 20]


@pytest.mark.parametrize("schedule, want", [
    (otelgpu.Schedule(), list(range(1, 13))),
    (otelgpu.Schedule(skip_first=10), [11, 12]),
    (otelgpu.Schedule(wait=1, warmup=1, active=2, repeat=2), [3, 4, 7, 8]),
    (otelgpu.Schedule(every=4), [4, 8, 12]),
    (otelgpu.Schedule(skip_first=-3, wait=-1, active=1), list(range(1, 13))),
])
def test_schedule(schedule, want):
    assert [i for i in range(1, 13) if schedule.records(i)] == want


def test_time_measured_elsewhere_fills_what_no_phase_covers(exporter, gpu):
    stream = gpu.torch.cuda.current_stream()
    stream.ahead()
    for step in otelgpu.loop("train", total_steps=1):
        with step.phase("forward"):
            stream.run(0.010)
        step.add_phase("comm", 3600)
    a = [s for s in done(exporter) if s.name == "train"][0].attributes
    assert a["gpu.step.phase.duration.comm"] == pytest.approx(a["gpu.step.duration"], abs=1e-9)
    assert a["gpu.step.overlap.duration"] == pytest.approx(0.010, abs=1e-4)
    assert a["gpu.step.other.duration"] == pytest.approx(0, abs=1e-9)


def test_the_last_step_gives_its_time_without_waiting(exporter, gpu):
    times = []
    for step in otelgpu.loop("train", total_steps=4):
        gpu.torch.cuda.current_stream().run(0.004)
        time.sleep(0.02)
        otelgpu.flush(1)
        times.append(step.previous.elapsed if step.previous else None)
        assert step.previous is None or step.previous.previous is None
    assert times[0] is None
    assert all(t is not None and t >= 0.004 for t in times[1:])


def test_without_a_device_steps_have_host_times(exporter):
    for step in otelgpu.loop("serve", total_steps=2):
        with step.phase("a"):
            time.sleep(0.003)
    a = [s for s in done(exporter) if s.name == "serve"][0].attributes
    assert "gpu.step.duration" not in a and "gpu.duration" not in a
    assert a["gpu.timing.source"] == "host"
    assert a["gpu.step.host.duration"] >= a["gpu.step.phase.duration.a"] >= 0.003


def test_union_of_intervals():
    assert union([]) == 0
    assert union([(0, 2), (1, 3), (5, 6), (5.5, 5.7), (9, 8)]) == 4


def test_a_step_does_not_end_before_it_starts_if_the_clock_is_set_back(exporter, monkeypatch):
    offset = _runtime.wall_offset()
    monkeypatch.setattr(_runtime, "wall_offset", lambda: offset - 3600 * 10**9)
    for _ in otelgpu.loop("train", total_steps=2):
        pass
    assert otelgpu.flush(10)
    steps = exporter.get_finished_spans()
    assert len(steps) == 2 and all(s.end_time == s.start_time for s in steps)


@pytest.mark.parametrize("batch, warned", [
    (([0] * 256, [1] * 256), True), ([[0] * 256, [1] * 256], True), (([0] * 256, [1]), False), (([0] * 2, [1] * 2), False),
    ([[0], [1, 2], [3]], False), (["ab", "cd"], False), ((1, 2), False), ({"x": 1}, False)])
def test_items_that_count_the_parts_of_a_batch_are_named_once(exporter, gpu, caplog, batch, warned):
    for step, item in otelgpu.loop("train", [batch] * 3):
        step.items = len(item)
    done(exporter)
    said = [r.getMessage() for r in caplog.records if "step.items" in r.getMessage()]
    assert len(said) == warned, said
    if warned:
        assert "step.items is 2, which is the number of parts of the batch, whose first part has 256 items" in said[0]


def test_a_step_states_the_precision_of_its_model_flops(exporter, gpu, caplog):
    for step in otelgpu.loop("train", total_steps=4):
        step.model_flops, step.precision = 1e12, {1: "bf16", 2: "BF16"}.get(step.index)
    got = [s.attributes.get("gpu.flop.precision") for s in done(exporter) if s.name == "train"]
    assert got == ["bf16", "BF16", None, None]
    said = [r.getMessage() for r in caplog.records]
    assert len(said) == 2 and "'BF16' is not one of bf16, fp16, fp32," in said[0] and "set step.precision" in said[1]


def last(exporter, name="train"):
    return [s for s in done(exporter) if s.name == name][-1]


def leave(how):
    for step in otelgpu.loop("train", total_steps=2):
        if step.index == 2:
            if how == "raise":
                raise MemoryError("out of memory")
            if how == "call":
                int("x")
            if how == "break":
                break
            if how == "return":
                return


@pytest.mark.parametrize("how", ["raise", "call"])
def test_a_step_whose_body_raises_fails(exporter, how):
    with pytest.raises((MemoryError, ValueError)) as raised:
        leave(how)
    s = last(exporter)
    assert s.status.status_code == StatusCode.ERROR
    # Before Python 3.12 the type is not known while the loop is left.
    assert s.attributes["error.type"] == (raised.type.__name__ if sys.version_info >= (3, 12) else "_OTHER")


@pytest.mark.parametrize("how", ["break", "return", ""])
def test_a_step_that_is_left_otherwise_does_not_fail(exporter, how):
    leave(how)
    assert last(exporter).status.status_code == StatusCode.UNSET


def test_a_closed_loop_does_not_fail(exporter):
    steps = otelgpu.loop("train")
    for step in steps:
        try:
            raise KeyError
        except KeyError as e:
            kept = e
        steps.close()
    assert last(exporter).status.status_code == StatusCode.UNSET and kept is not None


def test_a_step_can_fail(exporter):
    for step in otelgpu.loop("train", total_steps=2):
        if step.index == 1:
            step.fail("loss is NaN")
    got = done(exporter)
    assert [(s.status.status_code, s.status.description) for s in got] == [
        (StatusCode.ERROR, "loss is NaN"), (StatusCode.UNSET, None)]


def test_a_failed_iterable_fails_its_step(exporter):
    def loader():
        yield 1
        raise OSError("no file")

    with pytest.raises(OSError):
        for _ in otelgpu.loop("train", loader()):
            pass
    assert last(exporter).attributes["error.type"] == "OSError"


def test_arguments_of_a_phase_are_checked_in_each_step(exporter):
    for step in otelgpu.loop("train", total_steps=2, schedule=otelgpu.Schedule(every=2)):
        with pytest.raises(TypeError):
            step.phase("forward", itms=2)


PHASES = ("gpu.step.phase.duration.", "gpu.step.overlap.duration", "gpu.step.other.duration", "gpu.step.covered.duration",
          "gpu.step.untimed.count")


def parts(s):
    return {k.removeprefix(PHASES[0]): v for k, v in s.attributes.items() if k.startswith(PHASES)}


def test_a_phase_that_lost_a_section_is_unknown(exporter, gpu, monkeypatch):
    stream = gpu.torch.cuda.current_stream()
    stream.ahead()
    monkeypatch.setattr(_runtime, "MAX_PENDING", 1)
    for step in otelgpu.loop("train", total_steps=1):
        with step.phase("forward"):
            stream.run(0.010)
        with step.phase("backward"):  # has no place
            stream.run(0.020)
    s = last(exporter)
    got = parts(s)
    assert set(got) == {"forward", "gpu.step.untimed.count"} and got["gpu.step.untimed.count"] == 1
    assert got["forward"] == pytest.approx(0.010, abs=1e-4)
    assert otelgpu.stats()["dropped.queue_full"] == 1


def test_a_phase_without_device_time_in_a_step_of_the_device_is_unknown(exporter, gpu):
    for step in otelgpu.loop("train", total_steps=1):
        with step.phase("forward"):
            gpu.capturing_thread = threading.get_ident()
            with step.phase("captured"):
                pass
            gpu.capturing_thread = None
        with otelgpu.section("compile", type="host"):
            pass
    got = parts(last(exporter))
    assert set(got) == {"forward", "gpu.step.untimed.count"} and got["gpu.step.untimed.count"] == 1


def test_a_phase_on_another_device_is_unknown(exporter, gpu):
    other = gpu.torch.cuda.Stream()
    other.device.index = 1
    for step in otelgpu.loop("train", total_steps=1):
        with step.phase("forward"):
            pass
        with step.phase("transfer", stream=other):
            pass
    assert set(parts(last(exporter))) == {"forward", "gpu.step.untimed.count"}


def test_more_intervals_than_are_kept_make_a_phase_unknown(exporter, gpu, monkeypatch):
    monkeypatch.setattr(_loop, "MAX_INTERVALS", 3)
    for step in otelgpu.loop("train", total_steps=1):
        for _ in range(4):
            with step.phase("forward"):
                pass
    assert set(parts(last(exporter))) == {"gpu.step.untimed.count"}


def test_a_phase_ends_with_its_step(exporter, gpu, caplog):
    stream = gpu.torch.cuda.current_stream()
    stream.ahead()
    begin = time.monotonic()
    for step in otelgpu.loop("train", total_steps=2):
        phase = step.phase("forward")
        phase.__enter__()
        stream.run(0.010)
        if step.index == 2:
            phase.__exit__(None, None, None)
    steps = [s for s in done(exporter) if s.name == "train"]
    assert time.monotonic() - begin < _runtime.STEP_DEADLINE / 4
    for s in steps:
        assert parts(s)["forward"] == pytest.approx(0.010, abs=1e-4)
        assert "gpu.step.untimed.count" not in s.attributes
    assert otelgpu.stats()["unended"] == 1 and "'forward' was still open" in caplog.text


def test_a_section_that_outlives_its_step_is_marked_and_not_waited_for(exporter, gpu):
    open_one = otelgpu.section("prefetch")
    for step in otelgpu.loop("train", total_steps=1):
        open_one.__enter__()
    s = last(exporter)
    assert s.attributes["gpu.step.untimed.count"] == 1 and "gpu.step.covered.duration" not in s.attributes
    open_one.__exit__(None, None, None)
    assert last(exporter, "prefetch").parent.span_id == s.context.span_id


def test_a_task_that_outlives_its_step_does_not_delay_it(exporter, gpu):
    import contextvars
    for step in otelgpu.loop("train", total_steps=1):
        later = contextvars.copy_context()
    section = otelgpu.section("late")
    later.run(section.__enter__)
    assert "gpu.step.untimed.count" not in last(exporter).attributes
    later.run(section.__exit__, None, None, None)
    assert last(exporter, "late")
