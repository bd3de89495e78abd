"""A shard of share states over a log in memory: answers, moves to another broker, snapshots, and removed records."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from ottla.dataplane.share.state.records import StateSnapshot, StateUpdate, read_records
from ottla.dataplane.share.state.settings import StateLimits
from ottla.dataplane.share.state.shard import Outcome, StateShard
from ottla.dataplane.share.state.stored_state import (
    NO_STATE,
    Change,
    Delete,
    Initialize,
    Read,
    StoredShareState,
    Summarize,
    Write,
)
from ottla.dataplane.share.states import DurableState, StateBatch
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.find_coordinator import SharePartition
from tests.dataplane.share.state.logs import StateMemoryLog

TOPIC = b"t" * 16
KEY, OTHER = SharePartition("g", TOPIC, 0), SharePartition("g", TOPIC, 1)
LIMITS = StateLimits(updates_per_snapshot=3, write_timeout_s=60.0, idle_records_max=10)


class Topics:
    """The partitions that exist."""

    def __init__(self) -> None:
        self.removed: set[bytes] = set()

    def __call__(self, topic_id: bytes, partition: int) -> bool:
        return topic_id not in self.removed and partition < 50


async def new_shard(
    log: StateMemoryLog | None = None, topics: Topics | None = None, limits: StateLimits = LIMITS
) -> tuple[StateShard, StateMemoryLog]:
    log = log or StateMemoryLog()
    shard = StateShard(log, limits, lambda: 1_000, topics or Topics())
    await shard.load()
    return shard, log


async def made(shard: StateShard, *changes: tuple[SharePartition, Change]) -> list[Outcome]:
    async with asyncio.timeout(60):
        return list(await asyncio.gather(*shard.perform(changes)))


def acked(offset: int) -> StateBatch:
    return StateBatch(offset, offset, DurableState.ACKNOWLEDGED)


def write(offset: int, *, leader: int = 1, state: int = 0, start: int = -1) -> Write:
    return Write(state, leader, start, -1, (acked(offset),))


def codes(outcomes: Sequence[Outcome]) -> list[ErrorCode]:
    return [outcome.code if isinstance(outcome, KafkaError) else ErrorCode.NONE for outcome in outcomes]


async def test_a_state_is_answered_only_below_the_high_watermark() -> None:
    shard, log = await new_shard()
    log.automatic = False
    (outcome,) = shard.perform([(KEY, Initialize(0, 10))])
    await asyncio.sleep(0)
    assert not outcome.done()
    log.settle()
    assert await outcome == StoredShareState(0, 0, 10, 0)


async def test_a_reader_waits_for_the_writes_before_it() -> None:
    shard, log = await new_shard()
    await made(shard, (KEY, Initialize(0, 0)), (KEY, Read(1)))
    log.automatic = False
    write_outcome, summary = shard.perform([(KEY, write(4)), (KEY, Summarize())])
    assert not write_outcome.done()
    assert not summary.done()
    log.settle()
    assert (await summary) == StoredShareState(0, 1, 0, 0, (acked(4),))


async def test_changes_of_one_request_follow_each_other() -> None:
    shard, _ = await new_shard()
    outcomes = await made(
        shard, (KEY, write(1)), (KEY, Initialize(1, 5)), (KEY, Read(3)), (KEY, write(6, leader=2, state=1)),
        (KEY, write(6, leader=3)), (KEY, write(6, leader=3, state=1)), (OTHER, Read(1)),
    )  # fmt: skip
    assert codes(outcomes) == [
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.FENCED_STATE_EPOCH,
        ErrorCode.NONE,
        ErrorCode.INVALID_REQUEST,
    ]


async def test_another_broker_goes_on_with_the_states_of_the_log() -> None:
    shard, log = await new_shard()
    await made(shard, (KEY, Initialize(0, 0)), (OTHER, Initialize(4, -1)), (KEY, Read(1)))
    for offset in range(7):
        await made(shard, (KEY, write(2 * offset)))
    await made(shard, (KEY, write(20, start=3)))
    successor, _ = await new_shard(log)
    assert successor.states == shard.states
    assert successor.states[KEY].batches[0] == acked(4)
    assert codes(await made(successor, (KEY, write(5, leader=0)))) == [ErrorCode.FENCED_LEADER_EPOCH]


async def test_a_snapshot_follows_after_so_many_updates() -> None:
    shard, log = await new_shard()
    await made(shard, (KEY, Initialize(0, 0)), (KEY, Read(1)))
    for offset in range(8):
        await made(shard, (KEY, write(offset)))
    records = [record for batch in log.batches for _, record in read_records(memoryview(batch))]
    kinds = "".join("S" if isinstance(record, StateSnapshot) else "u" for record in records)
    assert kinds == "SuuuSuuuSu"
    epochs = [record.epoch for record in records if isinstance(record, StateSnapshot | StateUpdate)]
    assert epochs == [0, 0, 0, 0, 1, 1, 1, 1, 2, 2]


async def test_a_refused_write_changes_nothing() -> None:
    shard, log = await new_shard()
    await made(shard, (KEY, Initialize(0, 0)), (KEY, Read(1)))
    before = shard.states
    log.refusing = True
    assert (
        codes(await made(shard, (KEY, write(4)), (OTHER, Initialize(0, 0))))
        == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 2
    )
    assert shard.states == before
    log.refusing = False
    assert codes(await made(shard, (KEY, write(4)))) == [ErrorCode.NONE]


async def test_a_write_that_is_not_replicated_in_time_gets_an_error() -> None:
    shard, log = await new_shard(limits=replace(LIMITS, write_timeout_s=0.01))
    log.automatic = False
    assert codes(await made(shard, (KEY, Initialize(0, 0)))) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]


@pytest.mark.parametrize("closes_first", [True, False])
async def test_waiting_requests_are_redirected_when_another_broker_leads(closes_first: bool) -> None:
    shard, log = await new_shard()
    log.automatic = False
    (outcome,) = shard.perform([(KEY, Initialize(0, 0))])
    if closes_first:
        shard.close()
    else:
        log.settle(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert codes([await outcome]) == [ErrorCode.NOT_COORDINATOR]


async def test_a_deleted_state_is_gone_for_the_next_leader_too() -> None:
    shard, log = await new_shard()
    assert await made(shard, (KEY, Delete()), (KEY, Summarize())) == [NO_STATE, NO_STATE]
    await made(shard, (KEY, Initialize(0, 0)), (OTHER, Initialize(0, 1)), (KEY, Delete()))
    successor, _ = await new_shard(log)
    assert list(successor.states) == [OTHER]
    assert codes(await made(successor, (KEY, Read(0)))) == [ErrorCode.INVALID_REQUEST]


async def test_states_of_removed_topics_are_deleted_even_if_the_log_refuses_at_first() -> None:
    topics = Topics()
    shard, log = await new_shard(topics=topics)
    await made(shard, (KEY, Initialize(0, 0)))
    topics.removed.add(TOPIC)
    assert codes(await made(shard, (KEY, Read(0)))) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    log.refusing = True
    shard.forget_removed()
    log.refusing = False
    shard.prune()
    successor, _ = await new_shard(log)
    assert not successor.states


async def test_records_before_all_snapshots_are_removed() -> None:
    shard, log = await new_shard()
    await made(shard, (OTHER, Initialize(0, 7)))
    await made(shard, (KEY, Initialize(0, 0)), (KEY, Read(1)))
    offset = 0
    for _ in range(30):
        for _ in range(10):
            await made(shard, (KEY, write(offset, start=offset)))
            offset += 1
        shard.prune()
        assert log.end_offset - log.start_offset <= 40, "a log that grows: an idle state holds it back"
    successor, _ = await new_shard(log)
    assert successor.states == shard.states
    assert successor.states[OTHER] == StoredShareState(0, 0, 7, 0)


async def test_a_log_that_cannot_be_replicated_is_not_trimmed() -> None:
    shard, log = await new_shard()
    await made(shard, (KEY, Initialize(0, 0)), (KEY, Initialize(1, 0)))
    log.automatic = False
    shard.prune()
    assert log.start_offset == 0
    log.settle()
    assert log.start_offset == 1


async def test_many_large_states_fit_into_batches() -> None:
    shard, log = await new_shard(limits=replace(LIMITS, updates_per_snapshot=0))
    batches = tuple(acked(2 * offset) for offset in range(4_000))
    keys = [SharePartition("g", TOPIC, partition) for partition in range(20)]
    await made(shard, *((key, Initialize(0, 0)) for key in keys), *((key, Read(1)) for key in keys))
    outcomes = await made(shard, *((key, Write(0, 1, 0, -1, batches)) for key in keys))
    assert codes(outcomes) == [ErrorCode.NONE] * 20
    assert max(map(len, log.batches)) < 700_000
