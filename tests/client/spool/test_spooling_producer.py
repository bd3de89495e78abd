"""A producer with a spool behaves like other producers: from start to stop, on one event loop, with deliveries as
futures, and with the same metrics.
"""

from __future__ import annotations

import asyncio
import gc
import os
import re
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any
from weakref import ref

import pytest

import ottla.sync
from ottla import LeftInSpool, Producer, RecordDelivery, RecordMetadata, SpoolUnusable
from ottla.client.failures import ClientClosed
from ottla.client.spool import spool as spool_module
from tests.client.spool.spool_cluster import spool_cluster

NOWHERE = "127.0.0.1:1"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the five seconds for a producer that cannot deliver."""
    monkeypatch.setattr(spool_module, "STOP_S", 0.1)


def spooling(path: Path, **options: Any) -> Producer:
    return Producer(bootstrap_servers=NOWHERE, spool_dir=path, **options)


def uses(producer: Producer) -> list[Callable[[], Awaitable[Any]]]:
    return [
        lambda: producer.send("t", b""),
        lambda: producer.send_and_wait("t", b""),
        producer.flush,
        producer.sync,
        lambda: producer.partitions_for("t"),
    ]


def is_empty(path: Path) -> bool:
    return not any(path.iterdir())


async def test_before_the_start_and_after_the_stop(tmp_path: Path) -> None:
    producer = spooling(tmp_path)
    for use in uses(producer):
        with pytest.raises(RuntimeError, match="the producer was not started"):
            await use()
    assert is_empty(tmp_path)
    await producer.start()
    with pytest.raises(RuntimeError, match="the producer was started before"):
        await producer.start()
    await producer.send("t", b"it goes on as before")
    await producer.stop()
    await producer.stop()
    for use in uses(producer):
        with pytest.raises(ClientClosed, match="the producer was stopped"):
            await use()
    with pytest.raises(ClientClosed, match="make another one"):
        await producer.start()
    assert producer.spooled.records == 1


async def test_on_another_event_loop(tmp_path: Path) -> None:
    async with spooling(tmp_path) as producer:
        for use in [*uses(producer), producer.stop]:

            async def elsewhere(use: Callable[[], Awaitable[Any]] = use) -> None:
                await use()

            with pytest.raises(RuntimeError, match="the producer was started on another event loop"):
                await asyncio.to_thread(asyncio.run, elsewhere())
        assert producer.spooled.records == 0


async def test_a_start_that_failed_or_was_cancelled_leaves_the_folder_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with spooling(tmp_path):
        refused = spooling(tmp_path)
        with pytest.raises(SpoolUnusable, match="another producer"):
            await refused.start()
        with pytest.raises(ClientClosed, match="make another one"):
            await refused.start()
    opening, go_on = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()
    given_up = spooling(tmp_path)
    assert given_up._spool is not None
    opened = given_up._spool._open

    def slow() -> Any:
        loop.call_soon_threadsafe(opening.set)
        assert go_on.wait(20)
        return opened()

    monkeypatch.setattr(given_up._spool, "_open", slow)
    starting = asyncio.create_task(given_up.start())
    await opening.wait()
    starting.cancel()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await starting
    async with spooling(tmp_path) as producer:
        await producer.send("t", b"0")


async def test_who_waits_for_delivery_or_room_is_told_of_the_stop(tmp_path: Path) -> None:
    small = {"max_request_size": 1_000, "batch_size": 500, "spool_bytes_max": 4_000}
    producer = spooling(tmp_path, **small)
    await producer.start()
    full = asyncio.create_task(fill(producer))
    flush = asyncio.create_task(producer.flush())
    async with asyncio.timeout(25):
        while producer.spooled.records < 4:
            await asyncio.sleep(0.001)
        await producer.stop()
        for waiting in (full, flush):
            with pytest.raises(ClientClosed, match=re.escape(str(tmp_path))):
                await waiting


async def test_a_disk_that_fails_at_the_stop_keeps_nobody_waiting(tmp_path: Path) -> None:
    folder, moved = tmp_path / "spool", tmp_path / "moved"
    producer = spooling(folder)
    await producer.start()
    waiting = await producer.send("t", b"0")
    folder.rename(moved)
    with pytest.raises(SpoolUnusable, match="cannot be made durable"):
        await producer.stop()
    async with asyncio.timeout(20):
        with pytest.raises(LeftInSpool):
            await waiting
    assert not any(file.startswith(str(moved)) for file in open_files())
    async with spooling(moved) as following:
        assert following.spooled.records == 1


def open_files() -> list[str]:
    """Return the open files of this process."""
    return [os.readlink(path) for path in Path("/proc/self/fd").iterdir() if path.exists()]


async def test_the_child_of_a_fork_does_not_keep_the_folder(tmp_path: Path) -> None:
    async with spooling(tmp_path) as producer:
        await producer.send("t", b"0")
        end_child = forked()
        with pytest.raises(SpoolUnusable, match="is used by another producer"):
            await spooling(tmp_path).start()
    try:
        async with spooling(tmp_path) as following:
            assert following.spooled.records == 1
    finally:
        end_child()


def forked() -> Callable[[], None]:
    """Fork an idle child of this process, and return a function that ends it."""
    until, end = os.pipe()
    child = os.fork()
    if not child:
        os.close(end)
        os.read(until, 1)
        os._exit(0)

    def end_it() -> None:
        os.close(end)
        os.close(until)
        os.waitpid(child, 0)

    return end_it


async def fill(producer: Producer) -> None:
    while True:
        await producer.send("t", b"x" * 500)


async def test_futures_are_deliveries(tmp_path: Path) -> None:
    async with spool_cluster(partitions=2) as cluster:
        producer = Producer(bootstrap_servers=cluster.bootstrap, spool_dir=tmp_path)
        async with producer, asyncio.timeout(20):
            first = await producer.send("t", b"0", partition=1, timestamp_ms=7)
            assert isinstance(first, RecordDelivery)
            calls: list[RecordDelivery] = []
            first.add_done_callback(calls.append)
            with pytest.raises(asyncio.InvalidStateError):
                first.result()
            assert await asyncio.gather(first) == [RecordMetadata("t", 1, 0, 7)]
            assert calls == [first]
            others = [await producer.send("t", b"%d" % number) for number in range(1, 4)]
            done, _ = await asyncio.wait(others)
            assert done == set(others)
            assert {future.result().topic for future in done} == {"t"}


def test_blocking_futures_are_settled_whoever_keeps_them(tmp_path: Path) -> None:
    calls: list[Future[RecordMetadata]] = []
    with ottla.sync.Producer(bootstrap_servers=NOWHERE, spool_dir=tmp_path) as producer:
        held = producer.send("t", b"0")
        dropped = ref(producer.send("t", b"1"))
        producer.send("t", b"2").add_done_callback(calls.append)
        gc.collect()
        assert dropped() is None
    for future in (held, *calls):
        with pytest.raises(LeftInSpool):
            future.result(60)
    assert len(calls) == 1


async def test_nothing_is_counted_or_warned_of_that_was_not_delivered(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with spooling(tmp_path, audit_topic="audit") as producer:
        await producer.send("t", b"0")
    assert "stay there for the next producer" in caplog.text
    assert "audit" not in caplog.text
