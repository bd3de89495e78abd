"""Runners of handlers without a cluster: a record leaves nothing behind for the next record of its runner."""

from __future__ import annotations

import asyncio
import time
from contextvars import ContextVar
from typing import Any

import pytest

from ottla.client.records import ConsumerRecord
from ottla.client.rejection import Reject
from ottla.client.worker.commit_metadata import BeyondCommit, encode
from ottla.client.worker.dispatch import TURN_S
from ottla.client.worker.worker_record import WorkerRecord
from tests.client.worker.dispatch_bench import ORDERS, Bench


async def test_a_handler_may_do_more_than_to_end_amid_others_that_end_at_once() -> None:
    starts: list[tuple[int, int]] = []
    tenant: ContextVar[object] = ContextVar("tenant", default=None)
    released = asyncio.Event()

    async def handle(record: WorkerRecord) -> Any:
        assert tenant.get() is None
        starts.append((record.offset, record.attempt))
        match record.offset % 10:
            case 2:
                await asyncio.sleep(0)
            case 3 if record.offset == 13:
                await released.wait()
            case 4:
                record.send("bills", b"%d" % record.offset)
            case 5 if record.attempt == 1:
                raise ConnectionError
            case 6:
                tenant.set(record.offset)
            case 7:
                return "junk"
        return None

    bench = Bench(handle, concurrency=4)
    bench.offer(100, keys=25)
    await bench.until(lambda: len(bench.settlement.settled) == 96)
    assert {offset for offset, _ in starts} == {*range(100)} - {38, 63, 88}, "key 13 waits"
    released.set()
    await bench.until(lambda: len(bench.settlement.settled) == 100)
    assert sorted(bench.settlement.settled) == [*range(100)]
    by_key: dict[int, list[int]] = {key: [] for key in range(25)}
    for offset, _ in starts:
        by_key[offset % 25].append(offset)
    assert all(offsets == sorted(offsets) for offsets in by_key.values())
    assert {offset for offset, attempt in starts if attempt == 2} == {*range(5, 100, 10)}
    bills = [new for new in bench.settlement.sent if new.topic == "bills"]
    assert [int(new.value or b"") for new in bills] == [*range(4, 100, 10)]
    stats = bench.tasks.stats(0)
    assert (stats.held, stats.in_flight, stats.lanes, stats.retried) == (0, 0, 0, 10)
    assert bench.tasks.partitions[ORDERS].watermark == 100


async def test_a_series_ends_with_its_turn_and_with_the_worker() -> None:
    stopped_at = 0

    async def handle(record: WorkerRecord) -> None:
        nonlocal stopped_at
        if record.offset == 10:
            asyncio.get_running_loop().call_soon(bench.dispatch.stop_starting)
        stopped_at = record.offset
        time.sleep(TURN_S / 4)  # noqa: ASYNC251 - it takes time

    bench = Bench(handle, concurrency=64)
    bench.offer(1_000)
    await bench.until(lambda: stopped_at >= 10)
    for _ in range(10):
        await asyncio.sleep(0)
    assert stopped_at < 30
    assert bench.settlement.settled == [*range(stopped_at + 1)]
    assert bench.tasks.stats(0).held == 1_000 - stopped_at - 1


async def test_context_variables_of_a_handler_end_with_its_record() -> None:
    tenant: ContextVar[object] = ContextVar("tenant", default=None)
    seen: list[object] = []

    class Incomparable:
        def __eq__(self, other: object) -> bool:
            raise ArithmeticError

        __hash__ = object.__hash__

    async def handle(record: WorkerRecord) -> None:
        seen.append(tenant.get())
        tenant.set(Incomparable() if record.offset % 2 else record.offset)

    bench = Bench(handle)
    bench.offer(50)
    await bench.until(lambda: len(seen) == 50)
    assert set(seen) == {None}


async def test_few_runners_work_on_many_records() -> None:
    runners: set[asyncio.Task[object] | None] = set()

    async def handle(record: WorkerRecord) -> None:
        runners.add(asyncio.current_task())
        await asyncio.sleep(0)

    bench = Bench(handle, concurrency=4)
    bench.offer(1_000)
    await bench.until(lambda: len(bench.settlement.settled) == 1_000)
    assert len(runners) == 4


async def test_other_work_gets_turns_beside_handlers_that_wait_for_nothing() -> None:
    async def handle(record: WorkerRecord) -> None:
        sum(range(2_000))

    bench, turns = Bench(handle, concurrency=64), 0
    bench.offer(5_000)
    while len(bench.settlement.settled) < 5_000:
        turns += 1
        await asyncio.sleep(0)
    assert turns > 10


async def test_handlers_that_block_the_loop_take_turns_with_its_other_work() -> None:
    """Signals and heartbeats wait for one record, and not for as many as may be in handlers."""
    passes_before: list[int] = []
    passes = 0

    async def handle(_: WorkerRecord) -> None:
        passes_before.append(passes)
        time.sleep(2 * TURN_S)  # noqa: ASYNC251 - the mistake that is tested

    bench = Bench(handle, concurrency=64)
    bench.offer(64)
    while len(passes_before) < 64:
        passes += 1
        await asyncio.sleep(0)
    assert len(set(passes_before)) == 64


async def test_waiting_handlers_start_in_few_passes_of_the_loop() -> None:
    released, started = asyncio.Event(), 0

    async def handle(_: WorkerRecord) -> None:
        nonlocal started
        started += 1
        await released.wait()

    bench = Bench(handle, concurrency=64)
    bench.offer(100)
    for _ in range(10):
        await asyncio.sleep(0)
    assert started == 64
    released.set()
    await bench.until(lambda: len(bench.settlement.settled) == 100)


async def test_a_cancelled_record_harms_no_other_record() -> None:
    """One handler ends when it is cancelled, one goes on all the same, and one cancels its own task."""
    started: list[int] = []

    async def handle(record: WorkerRecord) -> None:
        started.append(record.offset)
        try:
            async with asyncio.timeout(0.001):
                await asyncio.sleep(60)
        except TimeoutError:
            pass
        if record.offset == 0:
            await asyncio.sleep(60)
        elif record.offset == 1:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                return
        elif record.offset == 2:
            this = asyncio.current_task()
            assert this is not None
            this.cancel()

    bench = Bench(handle)
    bench.offer(6)
    for offset in range(2):
        await bench.until(lambda offset=offset: offset in started)
        for _ in range(3):
            await asyncio.sleep(0.002)
        bench.dispatch.cancel(bench.tasks.running())
        await bench.until(lambda offset=offset: offset + 1 in started)
    await bench.until(lambda: len(bench.settlement.settled) == 5)
    assert started == [0, 1, 2, 3, 4, 5]
    assert bench.settlement.settled == [1, 2, 3, 4, 5], "the cancelled record is not finished"


async def test_a_record_that_is_cancelled_before_its_handler_begins_frees_its_place() -> None:
    started: list[int] = []

    async def handle(record: WorkerRecord) -> None:
        started.append(record.offset)

    bench = Bench(handle)
    bench.offer(3)
    bench.dispatch.cancel(bench.tasks.running())
    await bench.until(lambda: bench.settlement.settled == [1, 2])
    assert started == [1, 2]
    assert bench.tasks.in_flight == 0


async def test_a_timeout_ends_an_attempt_and_not_its_runner() -> None:
    runners: list[asyncio.Task[object] | None] = []

    async def handle(record: WorkerRecord) -> None:
        runners.append(asyncio.current_task())
        if record.offset == 0:
            await asyncio.sleep(60)

    bench = Bench(handle, timeout_s=0.02)
    bench.offer(4)
    await bench.until(lambda: bench.settlement.settled == [1, 2, 3])
    assert len(set(runners)) == 1
    assert bench.tasks.stats(0).failed == 1


async def test_a_handler_that_cancels_its_own_task_has_failed() -> None:
    attempts: list[int] = []

    async def handle(record: WorkerRecord) -> None:
        attempts.append(record.attempt)
        if record.attempt == 1:
            this = asyncio.current_task()
            assert this is not None
            this.cancel()
            await asyncio.sleep(60)

    bench = Bench(handle)
    bench.offer(1)
    await bench.until(lambda: bench.settlement.settled == [0])
    assert attempts == [1, 2]


@pytest.mark.parametrize("error", [SystemExit(7), Reject("it is the last")], ids=["exit", "no letters"])
async def test_no_record_of_a_key_starts_after_a_record_at_which_the_worker_stops(
    error: BaseException,
) -> None:
    started: list[int] = []

    async def handle(record: WorkerRecord) -> None:
        started.append(record.offset)
        if record.offset == 0:
            raise error

    bench = Bench(handle)
    bench.offer(6, keys=2)
    async with asyncio.timeout(20):
        while len(bench.settlement.settled) < 3:
            await asyncio.sleep(0)
    for _ in range(10):
        await asyncio.sleep(0)
    assert bench.errors == [error]
    assert started == [0, 1, 3, 5]
    assert (bench.tasks.in_flight, bench.tasks.running()) == (0, [])


async def test_a_read_of_finished_records_is_news() -> None:
    """Records that an earlier worker has finished move the offset to commit, and no handler ends after them."""

    async def handle(record: WorkerRecord) -> None:
        raise AssertionError("the records are finished")

    bench = Bench(handle)
    state = bench.tasks.partitions[ORDERS]
    text = encode(BeyondCommit(state.topic_id, 0, [(0, -1)], [(1, 3)]))
    assert state.resume(0, text, 3) is None
    waiting = asyncio.create_task(bench.dispatch.news.wait())
    await asyncio.sleep(0)
    bench.dispatch.offer({ORDERS: [ConsumerRecord(*ORDERS, offset, 0, b"", b"") for offset in (1, 2)]})
    async with asyncio.timeout(5):
        await waiting
    assert bench.tasks.is_dirty
