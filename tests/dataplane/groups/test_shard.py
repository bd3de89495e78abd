"""A shard of groups over a log in memory: the times of visibility, state that survives a move, and recipients of
answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

import pytest

from ottla.dataplane.coordinated_log.key_hash import partition_for
from ottla.dataplane.groups.classic.membership import JoinReply, JoinRequest, SyncReply
from ottla.dataplane.groups.classic.states import GroupState
from ottla.dataplane.groups.coordinator import GroupCoordinator
from ottla.dataplane.groups.limits import GroupLimits
from ottla.dataplane.groups.offsets import CommittedOffset
from ottla.dataplane.groups.shard import Shard
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.record import ControlRecord, ControlType, encode_control_batch
from ottla.protocol.records.record_batch import parse_header, patch_offset_and_epoch
from tests.counted_calls import counted_calls

LIMITS = GroupLimits(initial_rebalance_delay_ms=0)


class MemoryLog:
    """An offsets partition whose high watermark the test moves."""

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.waiting: list[Callable[[ErrorCode], None]] = []
        self.automatic = True
        self.refusing = False

    def append(self, batch: bytearray, done: Callable[[ErrorCode], None]) -> None:
        try:
            end = self.append_transactional(batch)
        except KafkaError as error:
            done(error.code)
            return
        self.on_high_watermark(end, done)

    @property
    def end_offset(self) -> int:
        return parse_header(self.batches[-1]).next_offset if self.batches else 0

    def append_transactional(self, batch: bytearray) -> int:
        if self.refusing:
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
        patch_offset_and_epoch(memoryview(batch), 0, self.end_offset, 0)
        self.batches.append(bytes(batch))
        return self.end_offset

    def append_marker(self, producer_id: int, *, committed: bool) -> int:
        """Append a marker, and return the next offset."""
        kind = ControlType.COMMIT if committed else ControlType.ABORT
        batch = bytearray(
            encode_control_batch(
                ControlRecord(kind, 0, 0), timestamp_ms=0, producer_id=producer_id, producer_epoch=0
            )
        )
        patch_offset_and_epoch(batch, 0, self.end_offset, 0)
        self.batches.append(bytes(batch))
        return self.end_offset

    def on_high_watermark(self, offset: int, done: Callable[[ErrorCode], None]) -> None:
        if self.automatic:
            done(ErrorCode.NONE)
        else:
            self.waiting.append(done)

    def settle(self, error: ErrorCode = ErrorCode.NONE) -> None:
        waiting, self.waiting = self.waiting, []
        for done in waiting:
            done(error)

    async def read_all(self) -> AsyncIterator[memoryview]:
        for batch in self.batches:
            yield memoryview(batch)
            await asyncio.sleep(0)


class Clock:
    """Milliseconds that the test advances; the loop's timers run in real time, so deadlines are checked by hand."""

    now_ms = 1_000_000

    def __call__(self) -> int:
        return self.now_ms


async def new_shard(log: MemoryLog | None = None, commit_timeout_ms: int = 5_000) -> tuple[Shard, MemoryLog]:
    log = log or MemoryLog()
    shard = Shard(log, replace(LIMITS, commit_timeout_ms=commit_timeout_ms), Clock())
    await shard.load()
    return shard, log


def join(shard: Shard, member_id: str = "") -> JoinReply:
    replies: list[JoinReply] = []
    request = JoinRequest(
        member_id, None, "c", "/127.0.0.1", 10_000, 30_000, "consumer", (("range", b"meta"),)
    )
    shard.join("g", request, replies.append)
    (reply,) = replies
    return reply


def sync(shard: Shard, member: JoinReply, assignment: bytes) -> list[SyncReply]:
    replies: list[SyncReply] = []
    plan = {member.member_id: assignment}
    shard.sync("g", member.member_id, None, member.generation, plan, None, None, replies.append)
    return replies


def commit(shard: Shard, offset: int, topic: str = "t", **who: object) -> list[ErrorCode]:
    outcomes: list[ErrorCode] = []
    member_id, generation = str(who.get("member_id", "")), int(str(who.get("generation", -1)))
    committed = {(topic, 0): CommittedOffset(offset, -1, "", 0)}
    shard.commit("g", member_id, None, generation, committed, outcomes.append)
    return outcomes


async def test_an_offset_is_answered_and_visible_only_below_the_high_watermark() -> None:
    shard, log = await new_shard()
    log.automatic = False
    outcomes = commit(shard, 7)
    assert outcomes == []
    assert shard.offsets.get("g", ("t", 0)) is None
    log.settle()
    assert outcomes == [ErrorCode.NONE]
    found = shard.offsets.get("g", ("t", 0))
    assert found is not None
    assert found.offset == 7


async def test_a_commit_that_times_out_is_answered_once_and_shows_when_it_commits_after_all() -> None:
    shard, log = await new_shard(commit_timeout_ms=10)
    log.automatic = False
    outcomes = commit(shard, 7)
    async with asyncio.timeout(60):
        while not outcomes:
            await asyncio.sleep(0.005)
    assert outcomes == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    log.settle()
    assert outcomes == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert shard.offsets.get("g", ("t", 0)) is not None


@pytest.mark.parametrize(
    ("log_error", "client_error"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
    ],
)
async def test_failed_writes_tell_clients_what_to_do(log_error: ErrorCode, client_error: ErrorCode) -> None:
    shard, log = await new_shard()
    log.automatic = False
    outcomes = commit(shard, 7)
    log.settle(log_error)
    assert outcomes == [client_error]
    assert shard.offsets.get("g", ("t", 0)) is None


async def test_a_new_leader_finds_groups_members_assignments_and_offsets() -> None:
    shard, log = await new_shard()
    member = join(shard)
    assert [r.assignment for r in sync(shard, member, b"all of it")] == [b"all of it"]
    assert commit(shard, 5, member_id=member.member_id, generation=1) == [ErrorCode.NONE]
    assert commit(shard, 6, member_id=member.member_id, generation=1) == [ErrorCode.NONE]
    shard.close()

    successor, _ = await new_shard(log)
    group = successor.groups["g"]
    assert group.state is GroupState.STABLE
    assert successor.heartbeat("g", member.member_id, None, 1) is ErrorCode.NONE
    assert [r.assignment for r in sync(successor, member, b"")] == [b"all of it"]
    found = successor.offsets.get("g", ("t", 0))
    assert found is not None
    assert found.offset == 6
    successor.close()


async def test_whoever_waits_is_sent_to_the_new_coordinator() -> None:
    shard, _ = await new_shard()
    first = join(shard)
    waiting: list[JoinReply] = []
    request = JoinRequest("", None, "c", "/h", 10_000, 30_000, "consumer", (("range", b""),))
    shard.join("g", request, waiting.append)
    assert not waiting
    shard.close()
    assert [r.error for r in waiting] == [ErrorCode.NOT_COORDINATOR]
    assert first.error is ErrorCode.NONE


async def test_offsets_of_a_deleted_topic_are_gone_for_good() -> None:
    shard, log = await new_shard()
    commit(shard, 5, "kept")
    commit(shard, 5, "deleted")
    shard.forget(lambda partition, _: partition[0] == "deleted")
    assert shard.offsets.get("g", ("deleted", 0)) is None
    shard.close()
    successor, _ = await new_shard(log)
    assert successor.offsets.get("g", ("deleted", 0)) is None
    assert successor.offsets.get("g", ("kept", 0)) is not None
    successor.close()


async def test_a_deleted_group_stays_deleted_and_one_with_members_is_not_deleted() -> None:
    shard, log = await new_shard()
    member = join(shard)
    sync(shard, member, b"x")
    outcomes: list[ErrorCode] = []
    shard.delete_group("g", outcomes.append)
    assert outcomes == [ErrorCode.NON_EMPTY_GROUP]
    assert shard.leave("g", member.member_id, None) is ErrorCode.NONE
    shard.delete_group("g", outcomes.append)
    shard.delete_group("g", outcomes.append)
    assert outcomes[1:] == [ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND]
    successor, _ = await new_shard(log)
    assert not successor.groups
    assert not list(successor.offsets.groups())


async def test_the_coordinator_says_where_a_group_is_or_why_not_yet() -> None:
    count: list[int | None] = [None]
    coordinator = GroupCoordinator(LIMITS, Clock(), lambda: count[0], lambda: {"t"})

    def refusal(group_id: str) -> ErrorCode:
        with pytest.raises(KafkaError) as caught:
            coordinator.shard_for(group_id)
        return caught.value.code

    assert refusal("") is ErrorCode.INVALID_GROUP_ID
    assert refusal("g") is ErrorCode.COORDINATOR_NOT_AVAILABLE
    count[0] = 1
    assert refusal("g") is ErrorCode.NOT_COORDINATOR
    coordinator.elected(0, MemoryLog())
    assert refusal("g") is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    async with asyncio.timeout(60):
        while not list(coordinator.shards()):
            await asyncio.sleep(0)
    assert coordinator.shard_for("g").loaded
    assert coordinator.shard_for("", empty_id_allowed=True).loaded
    coordinator.resigned(0)
    assert refusal("g") is ErrorCode.NOT_COORDINATOR
    coordinator.close()


async def test_a_join_costs_the_same_in_a_large_group() -> None:
    shard = Shard(MemoryLog(), GroupLimits(initial_rebalance_delay_ms=3_000), Clock())
    await shard.load()
    request = JoinRequest("", None, "c", "/h", 10_000, 30_000, "consumer", (("range", b"sub"),))
    costs = []
    for size in (50, 250):
        for _ in range(size):
            shard.join(f"of-{size}", request, [].append)
        with counted_calls() as calls:
            shard.join(f"of-{size}", request, [].append)
        costs.append(calls.count)
    assert costs[1] < costs[0] + 50


async def test_requests_of_classic_members_cost_few_calls() -> None:
    coordinator = GroupCoordinator(LIMITS, Clock(), lambda: 1, lambda: {"t"})
    coordinator.elected(0, MemoryLog())
    async with asyncio.timeout(60):
        while not list(coordinator.shards()):
            await asyncio.sleep(0)
    member = join(coordinator.shard_for("g"))
    sync(coordinator.shard_for("g"), member, b"x")
    with counted_calls() as finding:
        shard = coordinator.shard_for("g")
    with counted_calls() as beating:
        error = shard.heartbeat("g", member.member_id, None, member.generation)
    assert error is ErrorCode.NONE
    # The numbers are those without share groups.
    assert finding.count <= 13, finding.count
    assert beating.count <= 13, beating.count
    coordinator.close()


def test_groups_hash_as_in_java() -> None:
    # Values of "...".hashCode() in Java; the last one's absolute value does not fit and counts as 0.
    for key, value in (
        ("", 0),
        ("hello", 99162322),
        ("groups", -1237460524),
        ("polygenelubricants", -(2**31)),
    ):
        assert partition_for(key, 1 << 31) == (abs(value) if value > -(2**31) else 0)
    assert partition_for("polygenelubricants", 50) == 0
    assert 0 <= partition_for("ü-😀", 50) < 50
