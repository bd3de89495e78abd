"""Writes of a shard that the log refuses, or that are too large for one batch."""

from __future__ import annotations

from collections.abc import Callable

from ottla.dataplane.groups.dependencies import GroupDependencies
from ottla.dataplane.groups.offsets import CommittedOffset
from ottla.dataplane.groups.shard import Shard
from ottla.dataplane.groups.writes import ShardWrites
from ottla.protocol.errors import ErrorCode
from ottla.protocol.records.record_batch import walk_batches

from .test_consumer_group import Topics, join
from .test_consumer_shard import new_shard as new_consumer_shard
from .test_consumer_shard import told
from .test_shard import LIMITS, Clock, MemoryLog, commit, new_shard

BATCH_BYTES_MAX = 1_048_588


class BoundedLog(MemoryLog):
    """A log that takes batches up to the default of max.message.bytes."""

    def append(self, batch: bytearray, done: Callable[[ErrorCode], None]) -> None:
        if len(batch) > BATCH_BYTES_MAX:
            done(ErrorCode.MESSAGE_TOO_LARGE)
        else:
            super().append(batch, done)


def _delete_in_vain(shard: Shard, log: MemoryLog) -> None:
    """Delete a group while the log refuses writes."""
    log.refusing = True
    outcomes: list[ErrorCode] = []
    shard.delete_group("g", outcomes.append)
    assert outcomes == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    log.refusing = False


async def test_a_group_whose_deletion_was_refused_is_deleted_in_the_log_too() -> None:
    shard, log = await new_shard()
    commit(shard, 5)
    _delete_in_vain(shard, log)
    shard.expire()
    successor, _ = await new_shard(log)
    assert successor.offsets.get("g", ("t", 0)) is shard.offsets.get("g", ("t", 0)) is None


async def test_what_is_owed_does_not_undo_what_comes_after_it() -> None:
    shard, log = await new_shard()
    commit(shard, 5)
    log.refusing = True
    shard.forget(lambda partition, _: partition[0] == "t")
    log.refusing = False
    commit(shard, 6)
    successor, _ = await new_shard(log)
    found = successor.offsets.get("g", ("t", 0))
    assert found is not None
    assert found.offset == 6


async def test_what_is_owed_takes_along_what_was_on_its_way_when_it_was_refused() -> None:
    """The commit lies before the tombstone in the log: a reader of the log does not find it."""
    shard, log = await new_shard()
    commit(shard, 5)
    log.automatic = False
    on_its_way = commit(shard, 6)
    _delete_in_vain(shard, log)
    log.settle()
    assert on_its_way == [ErrorCode.NONE]
    shard.expire()
    log.settle()
    successor, _ = await new_shard(log)
    assert successor.offsets.get("g", ("t", 0)) is None
    assert shard.offsets.get("g", ("t", 0)) is None
    assert not shard.groups
    shard.check()


async def test_records_for_many_batches_are_told_of_once_when_the_last_is_committed() -> None:
    log = BoundedLog()
    writes = ShardWrites(log, lambda: 0, 5.0)
    outcomes: list[ErrorCode] = []
    shown: list[int] = []
    log.automatic = False
    records = [(b"%d" % n, bytes(100_000)) for n in range(30)]
    writes.write(records, outcomes.append, lambda _position: shown.append(1))
    assert len(log.batches) > 1
    first, *others = log.waiting
    first(ErrorCode.NONE)
    assert (outcomes, shown) == ([], [])
    for done in others:
        done(ErrorCode.NONE)
    assert (outcomes, shown) == ([ErrorCode.NONE], [1])


async def test_a_failure_of_any_batch_is_the_outcome() -> None:
    log = BoundedLog()
    writes = ShardWrites(log, lambda: 0, 5.0)
    outcomes: list[ErrorCode] = []
    log.automatic = False
    writes.write([(b"%d" % n, bytes(100_000)) for n in range(30)], outcomes.append)
    log.settle(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert outcomes == [ErrorCode.NOT_COORDINATOR]


async def test_a_group_of_ten_thousand_topics_moves_on() -> None:
    topics = Topics()
    names = [f"{n:0120d}" for n in range(10_000)]
    for name in names:
        topics.create(name, 1)
    log = BoundedLog()
    shard, _ = await new_consumer_shard(topics, log)
    for number in range(3):
        told(shard, join(f"m{number}", regex="0.*"))
    many = {(name, 0): CommittedOffset(1, -1, "", 0) for name in names}
    outcomes: list[ErrorCode] = []
    shard.commit("other", "", None, -1, many, outcomes.append)
    shard.delete_group("other", outcomes.append)
    assert outcomes == [ErrorCode.NONE, ErrorCode.NONE]
    shard.close()


async def test_what_is_written_after_the_wall_clock_has_jumped_has_a_timestamp_that_the_log_takes() -> None:
    """The log compares it with the wall clock; members expire by a clock that does not jump."""
    log, steady, wall = MemoryLog(), Clock(), Clock()
    shard = Shard(log, LIMITS, steady, dependencies=GroupDependencies(wall_ms=wall))
    await shard.load()
    for jump_ms in (0, -10_000_000, 20_000_000):
        wall.now_ms += jump_ms
        assert commit(shard, 5) == [ErrorCode.NONE]
        ((_, header),) = walk_batches(memoryview(log.batches[-1]))
        assert header.max_timestamp == wall.now_ms
