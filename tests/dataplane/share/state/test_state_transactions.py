"""States of share-partitions that change in transactions: they count once the marker is below the high watermark."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ottla.dataplane.coordinated_log.transactional_producer import TransactionalProducer
from ottla.dataplane.share.state.settings import StateLimits
from ottla.dataplane.share.state.shard import Outcome, StateShard
from ottla.dataplane.share.state.stored_state import (
    Delete,
    Initialize,
    PendingState,
    Read,
    StoredShareState,
    Write,
)
from ottla.dataplane.share.states import DurableState, StateBatch
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.find_coordinator import SharePartition
from tests.dataplane.share.state.logs import StateMemoryLog
from tests.dataplane.share.state.state_cluster import StateCluster

TOPIC = b"t" * 16
KEY, OTHER = SharePartition("g", TOPIC, 0), SharePartition("g", TOPIC, 1)
LIMITS = StateLimits(updates_per_snapshot=2, write_timeout_s=60.0, idle_records_max=4)
WRITER = TransactionalProducer("letters", 7, 3)


def archived(first: int, last: int | None = None) -> StateBatch:
    return StateBatch(first, first if last is None else last, DurableState.ARCHIVED)


def write(
    *batches: StateBatch, writer: TransactionalProducer | None = WRITER, leader: int = 1, start: int = -1
) -> Write:
    return Write(0, leader, start, -1, batches, writer)


async def shard_of(log: StateMemoryLog) -> StateShard:
    shard = StateShard(log, LIMITS, lambda: 1_000, lambda _topic_id, _partition: True)
    await shard.load()
    return shard


async def begun() -> tuple[StateShard, StateMemoryLog]:
    """Return a shard with the state of `KEY` from offset 10 on, which the leader of epoch 1 has read."""
    log = StateMemoryLog()
    shard = await shard_of(log)
    await asyncio.gather(*shard.perform([(KEY, Initialize(0, 10)), (KEY, Read(1))]))
    return shard, log


def write_in(shard: StateShard, change: Write, key: SharePartition = KEY) -> asyncio.Future[Outcome]:
    outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
    assert change.writer is not None
    shard.write_in_transaction(key, change, change.writer, outcome)
    return outcome


def end(shard: StateShard, log: StateMemoryLog, *, committed: bool, producer_id: int = 7) -> None:
    shard.transaction_ended(
        producer_id, log.append_marker(producer_id, committed=committed), committed=committed
    )


async def read(shard: StateShard, leader: int) -> Outcome:
    return await shard.perform([(KEY, Read(leader))])[0]


def code(outcome: Outcome) -> ErrorCode:
    return outcome.code if isinstance(outcome, KafkaError) else ErrorCode.NONE


async def test_a_change_counts_once_its_transaction_commits() -> None:
    shard, log = await begun()
    await write_in(shard, write(archived(12, 14)))
    assert shard.states[KEY].batches == ()
    end(shard, log, committed=True)
    assert shard.states[KEY].batches == (archived(12, 14),)
    assert (await shard_of(log)).states == shard.states


async def test_an_aborted_change_leaves_no_trace() -> None:
    shard, log = await begun()
    await write_in(shard, write(archived(12, 14)))
    end(shard, log, committed=False)
    assert shard.states[KEY].batches == ()
    assert (await shard_of(log)).states == shard.states
    assert code(await read(shard, 2)) is ErrorCode.NONE


async def test_a_new_leader_reads_the_changes_that_may_still_count() -> None:
    shard, log = await begun()
    await write_in(shard, write(archived(12)))
    pending = (PendingState(7, 3, (archived(12),)),)
    assert await read(shard, 2) == StoredShareState(0, 2, 10, 0, (), pending)
    with pytest.raises(KafkaError) as refused:
        write_in(shard, write(archived(13)))
    assert refused.value.code is ErrorCode.FENCED_LEADER_EPOCH, "the former leader is fenced at once"
    moved = await shard_of(log)
    assert await read(moved, 2) == StoredShareState(0, 2, 10, 0, (), pending), "so says the next coordinator"
    end(moved, log, committed=True)
    assert await read(moved, 2) == StoredShareState(0, 2, 10, 0, (archived(12),))


async def test_a_marker_of_the_time_of_the_replay_counts_afterwards() -> None:
    shard, log = await begun()
    await write_in(shard, write(archived(12)))
    moved = StateShard(log, LIMITS, lambda: 1_000, lambda _topic_id, _partition: True)
    loading = asyncio.create_task(moved.load())
    await asyncio.sleep(0)
    log.batches = list(log.batches)
    position = log.append_marker(7, committed=True)
    moved.transaction_ended(7, position, committed=True)
    await loading
    assert moved.states[KEY].batches == (archived(12),)


async def test_no_snapshot_takes_the_place_of_a_change_whose_marker_is_on_its_way() -> None:
    shard, log = await begun()
    await write_in(shard, write(archived(12)))
    marker = log.append_marker(7, committed=True)
    for offset in range(20, 26):
        await shard.perform([(KEY, write(archived(offset), writer=None))])[0]
        shard.prune()
    shard.transaction_ended(7, marker, committed=True)
    for offset in range(30, 36):
        await shard.perform([(KEY, write(archived(offset), writer=None))])[0]
        shard.prune()
    assert archived(12) in shard.states[KEY].batches
    assert (await shard_of(log)).states == shard.states
    assert log.start_offset > 0, "snapshots are written again"


@pytest.mark.parametrize("replacing", [Initialize(0, 10), Initialize(1, 0), Delete()])
async def test_a_replaced_state_has_no_changes_of_the_state_before(replacing: Any) -> None:
    shard, log = await begun()
    await write_in(shard, write(archived(12)))
    await asyncio.gather(*shard.perform([(KEY, replacing), (KEY, Initialize(2, 10))]))
    end(shard, log, committed=True)
    assert shard.states[KEY].batches == ()
    assert (await shard_of(log)).states == shard.states


@pytest.mark.parametrize(
    "change",
    [
        write(archived(12), start=12),
        write(archived(12), writer=TransactionalProducer("", 7, 3)),
        write(archived(12), writer=TransactionalProducer("x", -1, 3)),
        write(archived(12), writer=TransactionalProducer("x", 7, -1)),
        write(StateBatch(5, 4, DurableState.ARCHIVED)),
    ],
)
async def test_a_malformed_change_is_refused(change: Write) -> None:
    shard, log = await begun()
    batches = len(log.batches)
    with pytest.raises(KafkaError) as refused:
        write_in(shard, change)
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    assert len(log.batches) == batches


@pytest.mark.parametrize("coordinator", [1, 2])
async def test_a_change_in_a_transaction_reaches_its_coordinator(coordinator: int) -> None:
    cluster = StateCluster(level=2)
    try:
        persister = cluster.brokers[1].persister
        await persister.initialize(*KEY, state_epoch=0, start_offset=10)
        cluster.lead(coordinator)
        await persister.read(*KEY, leader_epoch=1)
        await persister.write_in_transaction(
            *KEY, state_epoch=0, leader_epoch=1, batches=[archived(12)], writer=WRITER
        )
        assert cluster.gate.admitted == [(0, WRITER)]
        early = await persister.read(*KEY, leader_epoch=2)
        assert (early.batches, early.pending) == ((), (PendingState(7, 3, (archived(12),)),))
        states = cluster.brokers[coordinator].states
        states.transaction_ended(0, 7, cluster.log.append_marker(7, committed=True), committed=True)
        assert (await persister.read(*KEY, leader_epoch=2)).batches == (archived(12),)
        cluster.gate.refusals.append(KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH, "fenced"))
        with pytest.raises(KafkaError) as fenced:
            await persister.write_in_transaction(
                *KEY, state_epoch=0, leader_epoch=2, batches=[archived(13)], writer=WRITER
            )
        assert fenced.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    finally:
        cluster.close()


PRODUCERS, OFFSETS = st.integers(1, 3), st.integers(10, 24)


class Transactions(RuleBasedStateMachine):
    """Changes in and outside of transactions, snapshots, late markers and failovers, against one entry per offset."""

    @initialize()
    def begin(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.shard, self.log = self.loop.run_until_complete(begun())
        self.finished: set[int] = set()
        self.pending: dict[int, set[int]] = {}
        # Markers in the log that are not yet below the high watermark, with the changes that they commit.
        self.markers: list[tuple[int, int, bool, set[int]]] = []

    @rule(offset=OFFSETS)
    def write(self, offset: int) -> None:
        async def perform() -> None:
            await self.shard.perform([(KEY, write(archived(offset), writer=None))])[0]

        self.loop.run_until_complete(perform())
        self.finished.add(offset)

    @rule(producer=PRODUCERS, offset=OFFSETS)
    def write_in_transaction(self, producer: int, offset: int) -> None:
        async def perform() -> None:
            await write_in(
                self.shard, write(archived(offset), writer=TransactionalProducer("x", producer, 0))
            )

        self.loop.run_until_complete(perform())
        self.pending.setdefault(producer, set()).add(offset)

    @rule(producer=PRODUCERS, committed=st.booleans())
    def decide(self, producer: int, committed: bool) -> None:
        marker = self.log.append_marker(producer, committed=committed)
        changes = self.pending.pop(producer, set())
        self.markers.append((producer, marker, committed, changes if committed else set()))

    @rule()
    def advance(self) -> None:
        """Move the high watermark to the log end."""
        for producer, marker, committed, changes in self.markers:
            self.shard.transaction_ended(producer, marker, committed=committed)
            self.finished |= changes
        self.markers.clear()

    @rule()
    def prune(self) -> None:
        async def prune() -> None:
            self.shard.prune()

        self.loop.run_until_complete(prune())

    @rule()
    def fail_over(self) -> None:
        """Replay the log, of which everything is committed then."""
        self.shard.close()
        self.shard = self.loop.run_until_complete(shard_of(self.log))
        markers, self.markers = self.markers, []
        for producer, marker, committed, changes in markers:
            self.finished |= changes
            self.shard.transaction_ended(producer, marker, committed=committed)

    @invariant()
    def same(self) -> None:
        batches = self.shard.states[KEY].batches
        offsets = {offset for batch in batches for offset in range(batch.first, batch.last + 1)}
        assert offsets == self.finished

    def teardown(self) -> None:
        if hasattr(self, "loop"):
            self.shard.close()
            self.loop.close()


TestTransactions = Transactions.TestCase
TestTransactions.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
