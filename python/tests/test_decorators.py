# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
"""Decorated functions whose work ends after their call, tasks, and failures."""
import asyncio
import concurrent.futures
import inspect
import time

import pytest
from opentelemetry.trace import StatusCode

import otelgpu
from otelgpu import _runtime

PART = 0.01


def spans(exporter):
    assert otelgpu.flush(10)
    return exporter.get_finished_spans()


def seconds(s):
    return (s.end_time - s.start_time) / 1e9


@otelgpu.section("items")
def items(n=3, fail=None):
    got = []
    for i in range(n):
        time.sleep(PART)
        if i == fail:
            raise ValueError("no more")
        got.append((yield i))
    return got


@otelgpu.section("async items")
async def async_items(n=3, fail=None):
    for i in range(n):
        await asyncio.sleep(PART)
        if i == fail:
            raise ValueError("no more")
        yield i


async def collect(source):
    return [x async for x in source]


def test_a_generator_is_one_section_until_it_is_exhausted(exporter):
    assert inspect.isgeneratorfunction(items)
    assert list(items()) == [0, 1, 2]
    s, = spans(exporter)
    assert seconds(s) >= 3 * PART and s.status.status_code == StatusCode.UNSET


def test_an_async_generator_is_one_section_until_it_is_exhausted(exporter):
    assert inspect.isasyncgenfunction(async_items)
    assert asyncio.run(collect(async_items())) == [0, 1, 2]
    s, = spans(exporter)
    assert seconds(s) >= 3 * PART and s.status.status_code == StatusCode.UNSET


def test_a_generator_keeps_its_protocol(exporter):
    def outer():
        return (yield from items())

    g = outer()
    assert next(g) == 0
    assert g.send("a") == 1 and g.send("b") == 2
    with pytest.raises(StopIteration) as stop:
        g.send("c")
    assert stop.value.value == ["a", "b", "c"]

    @otelgpu.section("catches")
    def catches():
        try:
            yield 1
        except KeyError as e:
            yield str(e)

    g = catches()
    next(g)
    assert g.throw(KeyError("x")) == "'x'"
    g.close()
    assert [s.status.status_code for s in spans(exporter)] == [StatusCode.UNSET] * 2


def test_a_closed_stream_is_no_failure(exporter):
    ended = []

    @otelgpu.section("stream")
    def stream():
        try:
            yield 1
            yield 2
        finally:
            ended.append("sync")

    @otelgpu.section("async stream")
    async def async_stream():
        try:
            yield 1
            yield 2
        finally:
            ended.append("async")

    def plain():
        with otelgpu.section("with"):
            yield 1

    async def leave():
        source = async_stream()
        async for _ in source:
            break
        await source.aclose()

    for g in (stream(), plain()):
        next(g)
        g.close()
    asyncio.run(leave())
    got = spans(exporter)
    assert {s.name: s.status.status_code for s in got} == dict.fromkeys(["stream", "with", "async stream"], StatusCode.UNSET)
    assert all("error.type" not in s.attributes for s in got) and ended == ["sync", "async"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, asyncio.CancelledError])
def test_leaving_the_program_is_no_failure(exporter, error):
    with pytest.raises(error):
        with otelgpu.section("a"):
            raise error
    s, = spans(exporter)
    assert s.status.status_code == StatusCode.UNSET


def test_a_generator_that_raises_fails(exporter):
    with pytest.raises(ValueError):
        list(items(fail=1))
    with pytest.raises(ValueError):
        asyncio.run(collect(async_items(fail=1)))
    for s in spans(exporter):
        assert (s.status.status_code, s.status.description) == (StatusCode.ERROR, "ValueError: no more")
        assert s.attributes["error.type"] == "ValueError"


def test_a_suspended_generator_is_not_the_parent_of_its_consumer(exporter):
    @otelgpu.section("produces")
    def produces():
        for i in range(2):
            with otelgpu.section("inside"):
                pass
            yield i

    for _ in produces():
        with otelgpu.section("consumes"):
            pass
    got = {s.name: s for s in spans(exporter)}
    assert got["consumes"].parent is None
    assert got["inside"].parent.span_id == got["produces"].context.span_id


def test_functions_that_return_unfinished_work(exporter):
    @otelgpu.section("generator")
    def generator():
        return (x for x in [time.sleep(PART)] * 2)

    @otelgpu.section("coroutine")
    def coroutine():
        return asyncio.sleep(PART, 7)

    @otelgpu.section("async generator")
    def async_generator():
        return async_items.__wrapped__()

    @otelgpu.section("task")
    def task():
        return asyncio.ensure_future(asyncio.sleep(PART, 8))

    async def main():
        return [await coroutine(), await task(), await collect(async_generator())]

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        @otelgpu.section("future")
        def future():
            return pool.submit(time.sleep, PART)

        @otelgpu.section("failed future")
        def failed():
            return pool.submit(int, "x")

        assert future().result() is None
        with pytest.raises(ValueError):
            failed().result()
    assert list(generator()) == [None, None]
    assert asyncio.run(main()) == [7, 8, [0, 1, 2]]
    got = {s.name: s for s in spans(exporter)}
    assert set(got) == {"generator", "coroutine", "async generator", "task", "future", "failed future"}
    for name, s in got.items():
        assert seconds(s) >= PART * 0.9 or name in ("generator", "failed future"), name
        assert s.attributes["gpu.operation.occurrence"] == 1
        assert (s.status.status_code == StatusCode.ERROR) == (name == "failed future")


def test_a_section_after_a_future_is_not_below_it(exporter):
    waiting = concurrent.futures.Future()

    @otelgpu.section("future")
    def future():
        return waiting

    future()
    with otelgpu.section("after"):
        pass
    waiting.set_result(1)
    assert {s.name: s.parent for s in spans(exporter)} == {"future": None, "after": None}


def test_a_task_that_outlives_its_section_stays_below_it(exporter):
    async def child(release):
        await release.wait()
        with otelgpu.section("child"):
            with otelgpu.section("grandchild"):
                pass

    async def main(outer):
        release = asyncio.Event()
        with outer:
            with otelgpu.section("parent"):
                task = asyncio.create_task(child(release))
                await asyncio.sleep(0)
            if outer is not section:
                release.set()
                await task
        release.set()
        await task

    section = otelgpu.section("outermost")
    for outer in (section, otelgpu.section("outermost")):
        asyncio.run(main(outer))
        got = {s.name: s for s in spans(exporter)}
        assert got["child"].parent.span_id == got["parent"].context.span_id
        assert got["grandchild"].parent.span_id == got["child"].context.span_id
        assert got["outermost"].parent is None
        assert len({s.context.trace_id for s in got.values()}) == 1
        exporter.clear()


def test_a_task_below_a_dropped_section_stays_below_the_span_of_the_program(exporter, monkeypatch):
    async def child(release):
        await release.wait()
        with otelgpu.section("child"):
            pass

    async def main():
        release = asyncio.Event()
        with exporter.tracer.start_as_current_span("request"):
            with monkeypatch.context() as full:
                full.setattr(_runtime, "MAX_PENDING", 0)
                with otelgpu.section("parent"):
                    task = asyncio.create_task(child(release))
                    await asyncio.sleep(0)
        release.set()
        await task

    asyncio.run(main())
    got = {s.name: s for s in spans(exporter)}
    assert set(got) == {"request", "child"} and otelgpu.stats()["dropped.queue_full"] == 1
    assert got["child"].parent.span_id == got["request"].context.span_id


def test_one_object_used_within_itself_is_two_sections(exporter):
    s = otelgpu.section("twice", items=3)
    with s as outer:
        with s as inner:
            inner.items = 4
        assert outer is s and inner is not s
    got = spans(exporter)
    assert sorted(x.attributes["gpu.operation.items"] for x in got) == [3, 4]
    inner, = (x for x in got if x.parent is not None)
    assert inner.parent.span_id in {x.context.span_id for x in got}


def test_a_section_can_fail(exporter):
    with otelgpu.section("text") as x:
        x.fail("kernel returned 700")
    with otelgpu.section("error") as x:
        x.fail(RuntimeError("out of memory"))
    with otelgpu.section("fine"):
        pass
    got = {s.name: (s.status.status_code, s.status.description, s.attributes.get("error.type")) for s in spans(exporter)}
    assert got == {"text": (StatusCode.ERROR, "kernel returned 700", "_OTHER"),
                   "error": (StatusCode.ERROR, "RuntimeError: out of memory", "RuntimeError"),
                   "fine": (StatusCode.UNSET, None, None)}
