"""Offsets committed in a transaction: permitted clients, the time from which they count, and effects meanwhile."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest

from ottla.dataplane.coordinated_log.batches import BatchWriter
from ottla.dataplane.groups.commit_checks import Committer
from ottla.dataplane.groups.coordinator import GroupCoordinator
from ottla.dataplane.groups.dependencies import GroupDependencies
from ottla.dataplane.groups.offsets import CommittedOffset
from ottla.dataplane.groups.shard import Shard
from ottla.dataplane.handlers.group_offsets import ASK_AGAIN, GroupOffsetHandlers
from ottla.dataplane.security.authorization.access import EVERYTHING
from ottla.dataplane.server.handler import ClientRequest
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.offsets import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from ottla.protocol.records.record_batch import NO_SEQUENCE, walk_batches
from ottla.protocol.wire.schema import ZERO_UUID

from .test_consumer_group import Topics, beat
from .test_consumer_group import join as join_consumer
from .test_consumer_shard import new_shard as new_consumer_shard
from .test_consumer_shard import told
from .test_shard import LIMITS, Clock, MemoryLog, commit, join, sync
from .transactional_log import TransactionalLog

WRITER = BatchWriter(7, 3)
WEEK_MS = 7 * 24 * 3_600_000
T0 = ("t", 0)


async def new_shard(
    log: TransactionalLog | None = None, commit_timeout_ms: int = 5_000
) -> tuple[Shard, TransactionalLog]:
    log = log or TransactionalLog()
    shard = Shard(log, replace(LIMITS, commit_timeout_ms=commit_timeout_ms), Clock())
    await shard.load()
    return shard, log


def commit_in(
    shard: Shard,
    offset: int,
    who: Committer | None = None,
    topic: str = "t",
    topic_id: bytes = ZERO_UUID,
    writer: BatchWriter = WRITER,
    *,
    knows_epochs: bool = True,
) -> list[ErrorCode]:
    outcomes: list[ErrorCode] = []
    offsets = {(topic, 0): CommittedOffset(offset, -1, "", 0, topic_id)}
    who = who or Committer()
    shard.commit_in_transaction("g", who, writer, offsets, outcomes.append, knows_epochs=knows_epochs)
    return outcomes


def end(
    shard: Shard, log: TransactionalLog, *, committed: bool, producer_id: int = WRITER.producer_id
) -> None:
    """Write the marker, and make it count."""
    end = log.append_marker(producer_id, committed=committed)
    log.advance()
    shard.transaction_ended(producer_id, end, committed=committed)


def seen(shard: Shard, partition: tuple[str, int] = T0) -> int | None:
    found = shard.offsets.get("g", partition)
    return None if found is None else found.offset


async def test_it_is_one_transactional_batch_without_a_sequence_appended_before_the_call_returns() -> None:
    shard, log = await new_shard()
    outcomes: list[ErrorCode] = []
    offsets = {("t", index): CommittedOffset(5, -1, "x", 0) for index in range(3)}
    shard.commit_in_transaction("g", Committer(), WRITER, offsets, outcomes.append)
    ((_, header),) = walk_batches(memoryview(b"".join(log.batches)))
    assert (header.producer_id, header.producer_epoch) == WRITER
    assert (header.base_sequence, header.is_transactional, header.is_control) == (NO_SEQUENCE, True, False)
    assert header.record_count == 3
    assert outcomes == []
    log.advance()
    assert outcomes == [ErrorCode.NONE]


@pytest.mark.parametrize("committed", [True, False])
async def test_offsets_count_once_their_marker_does(*, committed: bool) -> None:
    shard, log = await new_shard()
    commit(shard, 4)
    log.advance()
    commit_in(shard, 5)
    assert shard.offsets.pending.has("g", T0), "the offset may count before any client knows"
    log.advance()
    assert (seen(shard), shard.offsets.pending.has("g", T0)) == (4, True)
    end(shard, log, committed=committed)
    assert (seen(shard), shard.offsets.pending.has("g", T0)) == (5 if committed else 4, False)


async def test_what_was_refused_is_not_pending_and_leaves_what_was_before() -> None:
    shard, log = await new_shard()
    commit_in(shard, 5)
    log.advance()
    log.refusing = True
    assert commit_in(shard, 6) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    log.refusing = False
    end(shard, log, committed=True)
    assert seen(shard) == 5


async def test_what_nobody_could_be_told_of_is_pending_all_the_same() -> None:
    """The client's transaction may be gone, and its marker decides about the log's content."""
    shard, log = await new_shard(commit_timeout_ms=10)
    outcomes = commit_in(shard, 5)
    async with asyncio.timeout(60):
        while not outcomes:
            await asyncio.sleep(0.005)
    assert outcomes == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert shard.offsets.pending.has("g", T0)
    end(shard, log, committed=True)
    assert seen(shard) == 5
    assert "g" in shard.groups
    shard.check()


async def test_the_later_in_the_log_wins_whoever_ends_first() -> None:
    shard, log = await new_shard()
    commit_in(shard, 5)
    commit_in(shard, 6, writer=BatchWriter(8, 0))
    end(shard, log, committed=True, producer_id=8)
    end(shard, log, committed=True)
    assert seen(shard) == 6
    commit_in(shard, 7)
    commit(shard, 8)
    end(shard, log, committed=True)
    assert seen(shard) == 8
    assert seen((await new_shard(log))[0]) == 8


async def test_an_end_that_is_told_late_or_twice_does_not_end_the_next_transaction() -> None:
    shard, log = await new_shard()
    commit_in(shard, 5)
    marker = log.append_marker(7, committed=True)
    commit_in(shard, 6)
    log.advance()
    for _ in range(2):
        shard.transaction_ended(7, marker, committed=True)
    assert shard.offsets.pending.has("g", T0)


async def test_tombstones_that_are_owed_do_not_come_behind_a_transaction() -> None:
    shard, log = await new_shard()
    commit(shard, 5)
    log.advance()
    log.refusing = True
    shard.forget(lambda partition, _: partition[0] == "t")
    assert commit_in(shard, 6) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    log.refusing = False
    commit_in(shard, 7)
    end(shard, log, committed=True)
    assert seen(shard) == seen((await new_shard(log))[0]) == 7


# ---------------------------------------------------------------- permissions


async def test_who_claims_no_membership_may_commit_whatever_the_group_does() -> None:
    shard, _ = await new_shard(log := TransactionalLog())
    join(shard)
    assert commit_in(shard, 5) == []
    log.advance()
    topics = Topics(a=1)
    consumers, _ = await new_consumer_shard(topics)
    told(consumers, join_consumer("m", "a"))
    assert commit_in(consumers, 5) == [ErrorCode.NONE]
    shard.close()
    consumers.close()


async def test_members_of_a_classic_group_must_be_up_to_date() -> None:
    shard = Shard(MemoryLog(), LIMITS, Clock())
    await shard.load()
    member = join(shard)
    id_ = member.member_id
    # While a rebalance is completed too: its member may have consumed before.
    for _ in range(2):
        assert commit_in(shard, 5, Committer(id_, None, 1)) == [ErrorCode.NONE]
        assert commit_in(shard, 5, Committer(id_, None, 2)) == [ErrorCode.ILLEGAL_GENERATION]
        assert commit_in(shard, 5, Committer(id_, None, -1)) == [ErrorCode.ILLEGAL_GENERATION]
        assert commit_in(shard, 5, Committer("other", None, 1)) == [ErrorCode.UNKNOWN_MEMBER_ID]
        assert commit_in(shard, 5, Committer("", None, 1)) == [ErrorCode.UNKNOWN_MEMBER_ID]
        assert commit_in(shard, 5, Committer("", "instance", -1)) == [ErrorCode.UNKNOWN_MEMBER_ID]
        sync(shard, member, b"")
    group = shard.groups["g"]
    group.static_members["instance"] = id_  # type: ignore[union-attr]
    assert commit_in(shard, 5, Committer("other", "instance", 1)) == [ErrorCode.FENCED_INSTANCE_ID]
    del group.static_members["instance"]  # type: ignore[union-attr]
    shard.leave("g", id_, None)
    assert commit_in(shard, 5, Committer("gone", None, -1)) == [ErrorCode.NONE]
    shard.close()


async def test_members_of_a_consumer_group_must_be_up_to_date() -> None:
    topics = Topics(a=1, b=1)
    shard, _ = await new_consumer_shard(topics)
    first = told(shard, join_consumer("m", "a"))
    assert first.assigned is not None
    told(shard, beat(first, first.assigned, topics=("a", "b")))

    def outcome(who: Committer, topic: str = "b", *, knows_epochs: bool = True) -> ErrorCode:
        (code,) = commit_in(shard, 5, who, topic, topics.catalog.ids[topic], knows_epochs=knows_epochs)
        return code

    assert outcome(Committer("m", None, 2)) is ErrorCode.NONE
    assert outcome(Committer("m", None, 1), "a") is ErrorCode.NONE, "it has held that one ever since"
    assert outcome(Committer("m", None, 1)) is ErrorCode.STALE_MEMBER_EPOCH
    assert outcome(Committer("m", None, 1), knows_epochs=False) is ErrorCode.ILLEGAL_GENERATION
    assert outcome(Committer("n", None, 2)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert outcome(Committer("", None, 2)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert outcome(Committer("n", None, -1)) is ErrorCode.UNKNOWN_MEMBER_ID
    shard.close()


async def test_a_group_that_is_not_there_has_no_generation() -> None:
    shard, log = await new_shard()
    who = Committer("m", None, 1)
    assert commit_in(shard, 5, who) == [ErrorCode.GROUP_ID_NOT_FOUND]
    assert commit_in(shard, 5, who, knows_epochs=False) == [ErrorCode.ILLEGAL_GENERATION]
    assert not shard.groups
    assert not log.batches
    commit_in(shard, 5, Committer("m", None, -1))
    log.advance()
    assert "g" in shard.groups


# ---------------------------------------------------------------- effects on other operations


async def test_nothing_expires_that_a_transaction_may_yet_change() -> None:
    clock, log = Clock(), TransactionalLog()
    shard = Shard(log, LIMITS, clock)
    await shard.load()
    commit(shard, 4)
    commit(shard, 4, "other")
    commit_in(shard, 5)
    log.advance()
    clock.now_ms += WEEK_MS
    shard.expire()
    log.advance()
    assert list(shard.offsets.of_group("g")) == [T0]
    end(shard, log, committed=False)
    shard.expire()
    log.advance()
    assert not shard.groups


async def test_a_group_with_nothing_but_pending_offsets_stays_until_they_are_dropped() -> None:
    shard, log = await new_shard()
    commit_in(shard, 5)
    log.advance()
    for each in (shard, (await new_shard(log))[0]):
        each.expire()
        assert "g" in each.groups
        each.check()
    end(shard, log, committed=False)
    shard.expire()
    assert not shard.groups


async def test_a_deleted_group_has_nothing_pending_though_its_transaction_commits() -> None:
    shard, log = await new_shard()
    commit_in(shard, 5)
    log.advance()
    outcomes: list[ErrorCode] = []
    commit_in(shard, 6, topic="on its way")
    shard.delete_group("g", outcomes.append)
    log.advance()
    assert outcomes == [ErrorCode.NONE]
    end(shard, log, committed=True)
    for each in (shard, (await new_shard(log))[0]):
        assert not each.groups
        assert not list(each.offsets.groups())
        each.check()


async def test_what_is_pending_for_a_deleted_topic_goes_and_for_its_successor_stays() -> None:
    old, new = b"o" * 16, b"n" * 16
    shard, log = await new_shard()
    commit_in(shard, 5, topic="deleted")
    commit_in(shard, 5, topic="again", topic_id=old)
    end(shard, log, committed=True)
    commit_in(shard, 6, topic="again", topic_id=new)
    commit_in(shard, 6, topic="deleted")
    log.advance()
    shard.forget(lambda partition, committed: partition[0] == "deleted" or not committed.is_of(new))
    end(shard, log, committed=True)
    for each in (shard, (await new_shard(log))[0]):
        assert (seen(each, ("again", 0)), seen(each, ("deleted", 0))) == (6, None)


async def test_markers_that_count_while_the_shard_is_read_are_not_missed() -> None:
    log = TransactionalLog()
    shard, _ = await new_shard(log)
    commit_in(shard, 5)
    log.advance()
    shard.close()
    coordinator = GroupCoordinator(LIMITS, Clock(), lambda: 1, lambda: {"t"}, GroupDependencies())
    coordinator.elected(0, log)
    await asyncio.sleep(0)
    assert coordinator.loading
    log.end(coordinator, WRITER.producer_id, committed=True)
    log.advance()
    async with asyncio.timeout(60):
        while coordinator.loading:
            await asyncio.sleep(0)
    assert seen(coordinator.shard_for("g")) == 5
    coordinator.transaction_ended(1, WRITER.producer_id, log.end_offset, committed=True)
    coordinator.close()


async def test_all_offsets_of_a_group_are_fetched_stable_or_not() -> None:
    log, topics = TransactionalLog(), Topics(t=1, u=1)
    coordinator = GroupCoordinator(LIMITS, Clock(), lambda: 1, lambda: topics.image.topics)
    coordinator.elected(0, log)
    async with asyncio.timeout(60):
        while coordinator.loading:
            await asyncio.sleep(0)
    shard = coordinator.shard_for("g")
    commit(shard, 4)
    commit(shard, 4, "u")
    commit_in(shard, 5)
    log.advance()
    handlers = GroupOffsetHandlers(coordinator, lambda: topics.image, Clock(), 4096)

    async def fetched(*, stable: bool) -> dict[str, tuple[int, int]]:
        asked = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id="g", topics=None)], require_stable=stable
        )
        answer = await handlers.offset_fetch(
            cast(ClientRequest, SimpleNamespace(access=EVERYTHING, api_version=9)), asked
        )
        rows = {topic.name: topic.partitions[0] for topic in answer.groups[0].topics}
        return {name: (row.error_code, row.committed_offset) for name, row in rows.items()}

    assert await fetched(stable=False) == {"t": (0, 4), "u": (0, 4)}
    assert await fetched(stable=True) == {"t": (ErrorCode.UNSTABLE_OFFSET_COMMIT, ASK_AGAIN), "u": (0, 4)}
    coordinator.close()


@pytest.mark.parametrize("stable", [True, False])
@pytest.mark.parametrize("version", range(1, 11))
async def test_clients_that_know_of_unstable_offsets_ask_again_after_the_group_has_moved(
    version: int, *, stable: bool
) -> None:
    topics = Topics(t=1)
    coordinator = GroupCoordinator(LIMITS, Clock(), lambda: 1, lambda: topics.image.topics)
    handlers = GroupOffsetHandlers(coordinator, lambda: topics.image, Clock(), 4096)
    topic_id = topics.image.topics["t"].id
    asked = OffsetFetchRequest(require_stable=stable and version >= 7)
    if version < 8:
        asked.group_id = "g"
        asked.topics = [OffsetFetchRequestTopic(name="t", partition_indexes=[0])]
    else:
        some = OffsetFetchRequestTopics(name="t", topic_id=topic_id, partition_indexes=[0])
        asked.groups = [OffsetFetchRequestGroup(group_id="g", topics=[some])]
    answer = await handlers.offset_fetch(
        cast(ClientRequest, SimpleNamespace(access=EVERYTHING, api_version=version)), asked
    )
    of_group = answer if version < 8 else answer.groups[0]
    assert of_group.error_code == ErrorCode.NOT_COORDINATOR
    rows = [(row.error_code, row.committed_offset) for topic in of_group.topics for row in topic.partitions]
    if version >= 9 or asked.require_stable:
        assert rows == [(ErrorCode.UNSTABLE_OFFSET_COMMIT, ASK_AGAIN)]
    else:
        assert rows == ([(ErrorCode.NOT_COORDINATOR, -1)] if version < 8 else [])
    coordinator.close()
