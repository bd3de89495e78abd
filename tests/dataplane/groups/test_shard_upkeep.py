"""State that a shard forgets or must keep: empty groups, old offsets, damaged records, late writes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import cast

import pytest

from ottla.dataplane.groups.classic.membership import JoinReply, JoinRequest
from ottla.dataplane.groups.classic.states import GroupState
from ottla.dataplane.groups.coordinator import GroupCoordinator
from ottla.dataplane.groups.dependencies import GroupDependencies
from ottla.dataplane.groups.offsets import CommittedOffset
from ottla.dataplane.groups.shard import Shard
from ottla.dataplane.handlers.group_offsets import GroupOffsetHandlers
from ottla.dataplane.handlers.groups import GroupHandlers
from ottla.dataplane.security.authorization.access import EVERYTHING
from ottla.dataplane.server.handler import ClientRequest
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.groups import ListGroupsRequest
from ottla.protocol.messages.offsets import OffsetFetchRequest, OffsetFetchRequestTopic
from ottla.protocol.records.record import encode_batch

from .test_consumer_group import Topics
from .test_shard import LIMITS, Clock, MemoryLog, commit, join, new_shard, sync

WEEK_MS = 7 * 24 * 3600 * 1000


def leave(shard: Shard, member: JoinReply) -> None:
    assert shard.leave("g", member.member_id, None) is ErrorCode.NONE


async def reloaded(log: MemoryLog) -> Shard:
    shard, _ = await new_shard(log)
    return shard


async def test_an_empty_group_without_offsets_goes_and_stays_gone() -> None:
    shard, log = await new_shard()
    member = join(shard)
    sync(shard, member, b"")
    shard.expire()
    assert "g" in shard.groups
    leave(shard, member)
    shard.expire()
    assert not shard.groups
    assert not (await reloaded(log)).groups


async def test_offsets_outlive_their_members_by_the_retention_and_take_the_group_along() -> None:
    clock = Clock()
    log = MemoryLog()
    shard = Shard(log, LIMITS, clock)
    await shard.load()
    member = join(shard)
    sync(shard, member, b"")
    assert commit(shard, 5, member_id=member.member_id, generation=1) == [ErrorCode.NONE]
    clock.now_ms += 10 * WEEK_MS
    shard.expire()
    assert shard.offsets.get("g", ("t", 0)) is not None, "a group with members keeps its offsets"
    leave(shard, member)
    clock.now_ms += WEEK_MS - 1
    shard.expire()
    assert shard.offsets.get("g", ("t", 0)) is not None
    clock.now_ms += 1
    shard.expire()
    assert shard.offsets.get("g", ("t", 0)) is None
    assert not shard.groups
    again = await reloaded(log)
    assert not again.groups
    assert not list(again.offsets.groups())


async def test_the_retention_counts_from_when_a_group_was_left_even_across_a_move() -> None:
    clock = Clock()
    log = MemoryLog()
    shard = Shard(log, LIMITS, clock)
    await shard.load()
    member = join(shard)
    sync(shard, member, b"")
    commit(shard, 5, member_id=member.member_id, generation=1)
    leave(shard, member)
    clock.now_ms += WEEK_MS
    successor = Shard(log, LIMITS, clock)
    await successor.load()
    successor.expire()
    assert not successor.groups


async def test_a_consumer_outside_any_group_keeps_its_offsets_across_a_move() -> None:
    shard, log = await new_shard()
    assert commit(shard, 5) == [ErrorCode.NONE]
    for each in (shard, await reloaded(log)):
        assert each.groups["g"].state is GroupState.EMPTY
        each.expire()
        assert each.offsets.get("g", ("t", 0)) is not None, (
            "committed just now, as far as the test's clock goes"
        )


@pytest.mark.parametrize("wrong_clock", ["as the broker began", "now"])
async def test_offsets_outlive_a_clock_that_is_ahead(wrong_clock: str) -> None:
    """Only the members' clock, which ignores corrections, was used: offsets committed a moment before were gone at the
    next check.
    """
    steady, wall = Clock(), Clock()
    shard = Shard(MemoryLog(), LIMITS, steady, GroupDependencies(wall_ms=wall))
    await shard.load()
    assert commit(shard, 5) == [ErrorCode.NONE]
    wrong = wall if wrong_clock == "now" else steady
    wrong.now_ms += 10 * WEEK_MS
    shard.expire()
    assert shard.offsets.get("g", ("t", 0)) is not None
    steady.now_ms = wall.now_ms = 10 * WEEK_MS
    shard.expire()
    assert shard.offsets.get("g", ("t", 0)) is None


async def test_a_refused_commit_leaves_no_group_behind() -> None:
    shard, _ = await new_shard()
    assert commit(shard, 5, member_id="stranger", generation=3) == [ErrorCode.GROUP_ID_NOT_FOUND]
    assert not shard.groups


async def test_a_commit_on_its_way_does_not_outlive_the_deletion_of_its_group() -> None:
    shard, log = await new_shard()
    commit(shard, 5)
    log.automatic = False
    commit(shard, 6)
    outcomes: list[ErrorCode] = []
    shard.delete_group("g", outcomes.append)
    log.settle()
    assert outcomes == [ErrorCode.NONE]
    assert shard.offsets.get("g", ("t", 0)) is None
    assert not shard.groups
    assert (await reloaded(log)).offsets.get("g", ("t", 0)) is None


async def test_a_group_that_follows_a_deleted_one_has_timers_of_its_own() -> None:
    shard, _ = await new_shard()
    replies: list[JoinReply] = []
    request = JoinRequest(
        "", None, "c", "/h", 10_000, 30_000, "consumer", (("range", b""),), require_known_id=True
    )
    shard.join("g", request, replies.append)
    first = dict(shard._table._timers)
    assert first
    shard.delete_group("g", lambda _: None)
    assert not shard._table._timers
    shard.join("g", request, replies.append)
    assert shard._table._timers["g"] is not first["g"]
    shard.close()


async def test_damaged_and_foreign_records_are_passed_over() -> None:
    shard, log = await new_shard()
    commit(shard, 5)
    for key in (b"", b"\x00", b"\x00\x01\xff\xff", b"\x00\x02\x00", b"\x7f\xff1"):
        log.batches.append(bytes(encode_batch([(key, b"\x00\x03", 0)])))
    control = bytearray(encode_batch([(b"\x00\x00\x00\x00", b"", 0)]))
    control[22] |= 0x30
    log.batches.append(bytes(control))
    found = (await reloaded(log)).offsets.get("g", ("t", 0))
    assert found is not None
    assert found.offset == 5


async def test_tombstones_of_a_topic_fit_into_batches_that_the_log_takes() -> None:
    shard, log = await new_shard()
    outcomes: list[ErrorCode] = []
    for number in range(40):
        partitions = {("t" * 200, p): CommittedOffset(1, -1, "", 0) for p in range(200)}
        shard.commit(f"{number:0200d}", "", None, -1, partitions, outcomes.append)
    before = len(log.batches)
    shard.forget(lambda partition, _: partition[0] == "t" * 200)
    assert max(map(len, log.batches[before:])) < 1_000_000
    assert not list((await reloaded(log)).offsets.groups())


async def test_offsets_of_topics_that_went_while_nobody_led_are_forgotten_at_the_load() -> None:
    shard, log = await new_shard()
    commit(shard, 5, "gone")
    commit(shard, 6, "kept")
    coordinator = GroupCoordinator(LIMITS, Clock(), lambda: 1, lambda: {"kept"})
    coordinator.elected(0, log)
    async with asyncio.timeout(60):
        while not list(coordinator.shards()):
            await asyncio.sleep(0)
    (loaded,) = coordinator.shards()
    assert list(loaded.offsets.of_group("g")) == [("kept", 0)]
    coordinator.close()


async def test_offsets_of_a_deleted_topic_go_though_another_has_its_name() -> None:
    log = MemoryLog()
    coordinator = GroupCoordinator(LIMITS, Clock(), lambda: 1, lambda: {"t"})
    coordinator.elected(0, log)
    async with asyncio.timeout(60):
        while not list(coordinator.shards()):
            await asyncio.sleep(0)
    (shard,) = coordinator.shards()
    commit(shard, 5)
    coordinator.topics_removed(["t"])
    assert shard.offsets.get("g", ("t", 0)) is None
    coordinator.close()


async def test_offsets_of_an_earlier_topic_of_the_same_name_are_forgotten_at_the_load() -> None:
    topics = Topics(again=1, kept=1)
    ids = topics.catalog.ids
    shard, log = await new_shard()
    for name in ("again", "kept"):
        offsets = {(name, 0): CommittedOffset(5, -1, "", 0, ids[name])}
        shard.commit("g", "", None, -1, offsets, lambda _outcome: None)
    topics.delete("again")
    topics.create("again", 1)
    dependencies = GroupDependencies(topics.catalog)
    coordinator = GroupCoordinator(
        LIMITS, Clock(), lambda: 1, lambda: topics.image.topics, dependencies=dependencies
    )
    coordinator.elected(0, log)
    async with asyncio.timeout(60):
        while not list(coordinator.shards()):
            await asyncio.sleep(0)
    (loaded,) = coordinator.shards()
    assert list(loaded.offsets.of_group("g")) == [("kept", 0)]
    # A commit that was in progress when the topic was deleted shows afterwards: no client gets it.
    loaded.offsets.put("g", ("again", 0), CommittedOffset(5, -1, "", 0, bytes(15) + b"\x63"))
    handlers = GroupOffsetHandlers(coordinator, lambda: topics.image, Clock(), 4096)
    asked = OffsetFetchRequest(
        group_id="g",
        topics=[OffsetFetchRequestTopic(name=name, partition_indexes=[0]) for name in ("again", "kept")],
    )
    answer = await handlers.offset_fetch(
        cast(ClientRequest, SimpleNamespace(access=EVERYTHING, api_version=7)), asked
    )
    assert [t.partitions[0].committed_offset for t in answer.topics] == [-1, 5]
    coordinator.close()


class HaltingLog(MemoryLog):
    """A log that cannot be read the first time."""

    failures = 1

    async def read_all(self) -> AsyncIterator[memoryview]:
        if self.failures:
            self.failures -= 1
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
        async for data in super().read_all():
            yield data


async def test_a_shard_that_could_not_be_read_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.dataplane.coordinated_log.led_shards._RELOAD_S", 0.05)
    _, written = await new_shard()
    log = HaltingLog()
    commit(Shard(written, LIMITS, Clock()), 5)
    log.batches = written.batches
    coordinator = GroupCoordinator(LIMITS, Clock(), lambda: 1, lambda: {"t"})
    handlers = GroupHandlers(coordinator)
    asked = cast(ClientRequest, SimpleNamespace(access=EVERYTHING, api_version=5))
    coordinator.elected(0, log)
    answer = handlers.list_groups(asked, ListGroupsRequest())
    assert answer.error_code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "a part of the groups is no answer"
    async with asyncio.timeout(60):
        while log.failures or coordinator.loading:
            await asyncio.sleep(0)
        assert handlers.list_groups(asked, ListGroupsRequest()).error_code == ErrorCode.NONE
        while not list(coordinator.shards()):
            await asyncio.sleep(0.01)
    answer = handlers.list_groups(asked, ListGroupsRequest())
    assert [g.group_id for g in answer.groups] == ["g"]
    coordinator.close()
