"""Lookups by time that have to go over many batches: records of a clock that was ahead stood before them."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.dataplane.handlers.list_offsets import MAX_TIMESTAMP, ListOffsetsHandlers
from ottla.dataplane.log import timestamps
from ottla.dataplane.log.segments import batch_walk
from ottla.dataplane.security.authorization.access import EVERYTHING
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.records.record import encode_batch
from ottla.protocol.records.record_batch import parse_header
from tests.dataplane.fetching.consumers import Shelf

BATCHES = 3_000


async def asked(shelf: Shelf, timestamp: int) -> tuple[int, int]:
    part = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    message = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[part])])
    session = SimpleNamespace(is_broker=lambda _id: False)
    request: Any = SimpleNamespace(access=EVERYTHING, api_version=7, session=session)
    response = await ListOffsetsHandlers(shelf.replicas).list_offsets(cast(Any, request), message)
    (answer,) = response.topics[0].partitions
    assert answer.error_code == 0
    return answer.offset, answer.timestamp


def write(shelf: Shelf, *times: int) -> None:
    for time_ms in times:
        batch = memoryview(bytearray(encode_batch([(None, b"v", time_ms)])))
        shelf.replica("t").append(batch, required_acks=1, max_timestamp=time_ms)


def on_loop(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Return a function that tells how many headers the event loop's thread has read."""
    read = [0]

    def noted(*args: Any) -> Any:
        read[0] += threading.current_thread() is threading.main_thread()
        return parse_header(*args)

    monkeypatch.setattr(batch_walk, "parse_header", noted)
    return lambda: read[0]


@pytest.mark.parametrize("timestamp", [2_000 + BATCHES, MAX_TIMESTAMP])
async def test_the_event_loop_goes_over_few_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, timestamp: int
) -> None:
    """The first record was of a clock that is ahead, and has been deleted: the index leads to the log start."""
    monkeypatch.setattr(timestamps, "HEADERS_SHORT", 100, raising=False)
    shelf = Shelf(tmp_path)
    shelf.create("t", b"t" * 16, 1)
    try:
        write(shelf, 1 << 40, *range(1_000, 1_000 + BATCHES))
        shelf.replica("t").log.advance_log_start_offset(1)
        read = on_loop(monkeypatch)
        found = await asked(shelf, timestamp)
        assert found == ((BATCHES, 999 + BATCHES) if timestamp == MAX_TIMESTAMP else (-1, -1))
        assert read() < 1_000
    finally:
        await shelf.close()


@pytest.mark.parametrize("seed", range(6))
async def test_what_threads_have_found_is_what_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(timestamps, "HEADERS_SHORT", 3, raising=False)
    chance = random.Random(seed)
    print(f"seed {seed}")
    shelf = Shelf(tmp_path)
    shelf.create("t", b"t" * 16, 1)
    try:
        times = [1_000 + chance.randrange(200) for _ in range(60)]
        write(shelf, *times)
        for start in (0, 20, 50):
            shelf.replica("t").log.advance_log_start_offset(start)
            left = list(enumerate(times))[start:]
            for timestamp in (1_000, *(chance.randrange(990, 1_210) for _ in range(8))):
                expected = next(((offset, stamp) for offset, stamp in left if stamp >= timestamp), (-1, -1))
                assert await asked(shelf, timestamp) == expected
            assert await asked(shelf, MAX_TIMESTAMP) == max(left, key=lambda pair: (pair[1], -pair[0]))
    finally:
        await shelf.close()
