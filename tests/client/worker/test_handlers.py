"""Calls of handlers without a cluster: timeouts, cancellations, and handlers that do not end."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any

import pytest

from ottla.client.records import ConsumerRecord
from ottla.client.worker import handlers
from ottla.client.worker.handlers import CoroutineCalls, HandlerCaller, ThreadCalls, name_of
from ottla.client.worker.worker_record import WorkerRecord


def a_record() -> WorkerRecord:
    return WorkerRecord.of(ConsumerRecord("orders", 0, 5, 0, b"key", b"value"), 1)


async def test_a_handler_that_ignores_its_timeout_is_reported(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handlers, "STUCK_S", 0.05)
    free = asyncio.Event()

    async def stubborn(record: WorkerRecord) -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await free.wait()

    caller = HandlerCaller(CoroutineCalls(stubborn), name_of(stubborn), 0.01)
    calling = asyncio.create_task(caller.call(a_record()))
    with caplog.at_level(logging.ERROR):
        async with asyncio.timeout(5):
            while not any("goes on" in record.getMessage() for record in caplog.records):
                await asyncio.sleep(0.01)
    assert not calling.done(), "its key must not start again"
    free.set()
    await calling


async def test_a_thread_is_told_that_its_attempt_is_cancelled() -> None:
    ends = []

    def waits(record: WorkerRecord) -> None:
        ends.append(record.cancelled.wait(20))

    calls = ThreadCalls(waits)
    with pytest.raises(TimeoutError, match="longer than"):
        await HandlerCaller(calls, "waits", 0.02).call(a_record())
    assert ends == [True]
    calls.close()


@pytest.mark.parametrize("error", [StopIteration(), KeyboardInterrupt(), SystemExit(1), ValueError("x")])
async def test_any_exception_comes_out_of_a_thread(error: BaseException) -> None:
    def fails(record: WorkerRecord) -> None:
        raise error

    calls = ThreadCalls(fails)
    with pytest.raises((type(error), RuntimeError)):
        await HandlerCaller(calls, "fails", None).call(a_record())
    calls.close()


async def test_threads_are_reused_and_end() -> None:
    seen: set[str] = set()

    def note(record: WorkerRecord) -> None:
        seen.add(threading.current_thread().name)

    calls = ThreadCalls(note)
    for _ in range(20):
        await calls.call(a_record())
    assert len(seen) == 1
    calls.close()
    async with asyncio.timeout(5):
        while any(thread.name in seen for thread in threading.enumerate()):
            await asyncio.sleep(0.01)


async def test_a_function_that_returns_a_coroutine_is_awaited() -> None:
    done: list[Any] = []

    async def later(record: WorkerRecord) -> None:
        done.append(record.offset)

    await HandlerCaller(ThreadCalls(lambda record: later(record)), "later", None).call(a_record())
    assert done == [5]
