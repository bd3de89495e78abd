"""A request for several partitions with one damaged file: other partitions are answered as usual, and the damaged
replica goes offline so that another replica leads.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from ottla.dataplane.handlers.list_offsets import ListOffsetsHandlers
from ottla.dataplane.log import LogConfig, LogSlice, PartitionLog
from ottla.dataplane.security.authorization.access import EVERYTHING
from ottla.dataplane.security.peer_session import PeerSession
from ottla.dataplane.security.principal import ANONYMOUS
from ottla.dataplane.server.handler import ClientRequest
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from tests.dataplane.fetching.consumers import OTHER_ID, OWN_ID, Consumer, Shelf, offsets, parts_of, wanted
from tests.dataplane.server.conftest import until

ID = b"t" * 16
BATCHES = 5
DAMAGED, SOUND = 0, 1


async def shelf_of(directory: Path) -> Shelf:
    """Return a broker with two partitions, each with a closed segment; the other broker is in sync with both."""
    shelf = Shelf(directory)
    shelf.create("t", ID, 2)
    for index in (DAMAGED, SOUND):
        log = shelf.replica("t", index).log
        log.config = LogConfig(index_interval_bytes=1)
        for _ in range(BATCHES):
            shelf.append("t", index)
        log.roll(1)
        shelf.append("t", index)
        shelf.tell(shelf.state(ID, index, epoch=1, isr=[OWN_ID, OTHER_ID]))
        shelf.replica("t", index).fetched_by(OTHER_ID, OTHER_ID, BATCHES + 1)
    return shelf


def empty(log: PartitionLog, suffix: str) -> None:
    path = log.directory / f"{0:020d}.{suffix}"
    assert path.stat().st_size
    path.write_bytes(b"")


def is_offline(shelf: Shelf, index: int) -> bool:
    return (ID, index) in shelf.replicas.offline


async def listed(shelf: Shelf, timestamp: int) -> dict[int, tuple[int, int]]:
    parts = [ListOffsetsPartition(partition_index=index, timestamp=timestamp) for index in (DAMAGED, SOUND)]
    message = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=parts)])
    request = cast(
        ClientRequest,
        SimpleNamespace(access=EVERYTHING, session=PeerSession(ANONYMOUS, "::1", "L"), api_version=7),
    )
    response = await ListOffsetsHandlers(shelf.replicas).list_offsets(request, message)
    return {
        partition.partition_index: (partition.error_code, partition.offset)
        for partition in response.topics[0].partitions
    }


async def test_a_fetch_that_meets_a_cut_index_still_reads_the_other_partition(tmp_path: Path) -> None:
    shelf = await shelf_of(tmp_path)
    empty(shelf.replica("t", DAMAGED).log, "index")
    found = parts_of(Consumer(shelf).fetch([wanted(ID, (DAMAGED, 2), (SOUND, 2))]))
    assert found[ID, DAMAGED].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert offsets(found[ID, SOUND])[0] == 2
    await until(lambda: is_offline(shelf, DAMAGED))
    assert not is_offline(shelf, SOUND)
    await shelf.close()


async def test_a_look_up_by_time_that_meets_a_cut_index_still_answers_for_the_other(tmp_path: Path) -> None:
    shelf = await shelf_of(tmp_path)
    empty(shelf.replica("t", DAMAGED).log, "timeindex")
    found = await listed(shelf, 1)
    assert found == {DAMAGED: (ErrorCode.KAFKA_STORAGE_ERROR, -1), SOUND: (0, 0)}
    assert is_offline(shelf, DAMAGED)
    assert not is_offline(shelf, SOUND)
    await shelf.close()


async def test_a_fault_of_ours_in_one_partition_is_told_for_that_one_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    shelf = await shelf_of(tmp_path)
    damaged, read = shelf.replica("t", DAMAGED).log, PartitionLog.read

    def faulty(log: PartitionLog, *arguments: int, **named: bool) -> LogSlice:
        if log is damaged:
            raise RuntimeError("planted")
        return read(log, *arguments, **named)

    monkeypatch.setattr(PartitionLog, "read", faulty)
    found = parts_of(Consumer(shelf).fetch([wanted(ID, (DAMAGED, 2), (SOUND, 2))]))
    assert found[ID, DAMAGED].error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert offsets(found[ID, SOUND])[0] == 2
    assert "planted" in caplog.text
    monkeypatch.undo()
    await shelf.close()
