"""Groups, shards and offsets notice when they contradict themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ottla.dataplane.groups.classic.group import ClassicGroup
from ottla.dataplane.groups.consumer.group import ConsumerGroup
from ottla.dataplane.groups.consumer.member import MemberHeartbeat, MemberState
from ottla.dataplane.groups.limits import GroupLimits
from ottla.dataplane.groups.offsets import CommittedOffset
from ottla.dataplane.groups.shard import Shard
from ottla.protocol.errors import ErrorCode

from .test_consumer_group import REBALANCE_MS, Topics
from .test_consumer_group import new_group as new_consumer_group
from .test_group import join_request, joins, new_group
from .test_shard import Clock, MemoryLog


def classic() -> ClassicGroup:
    """Return a stable group of a static member that leads and has synced."""
    group = new_group()
    leader = joins(group.join(join_request(instance_id="i"), "j", 0))["j"].member_id
    group.sync(leader, "i", 1, {leader: b"all"}, "s", 0)
    group.stored(1, ErrorCode.NONE, 0)
    group.check()
    return group


def _rename_leader(group: ClassicGroup) -> None:
    group.leader = "nobody"


def _forget_instance(group: ClassicGroup) -> None:
    group.static_members.clear()


def _await_a_stranger(group: ClassicGroup) -> None:
    group.waits.unsynced.add("nobody")


def _park_a_join(group: ClassicGroup) -> None:
    next(iter(group.members.values())).join_ticket = "t"


def _park_a_sync(group: ClassicGroup) -> None:
    next(iter(group.members.values())).sync_ticket = "t"


def _another_protocol(group: ClassicGroup) -> None:
    group.protocol = "unheard of"


def _never_sync(group: ClassicGroup) -> None:
    group.waits.unsynced.update(group.members)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (_rename_leader, "its leader nobody is no member"),
        (_forget_instance, "are not those of its members"),
        (_await_a_stranger, "not all are members"),
        (_park_a_join, "waits to join"),
        (_park_a_sync, "waits to sync"),
        (_another_protocol, "does not know unheard of"),
        (_never_sync, "may take for ever to sync"),
    ],
)
def test_a_classic_group_that_contradicts_itself(spoil: Callable[[ClassicGroup], None], said: str) -> None:
    group = classic()
    spoil(group)
    with pytest.raises(AssertionError, match=said):
        group.check()


def consumers() -> ConsumerGroup:
    """Return a stable group with two members."""
    group = new_consumer_group(Topics(a=4))
    held: dict[str, Any] = {"m1": frozenset(), "m2": frozenset()}
    epochs = {"m1": 0, "m2": 0}
    for _ in range(4):
        for name, owned in held.items():
            reply = group.heartbeat(
                MemberHeartbeat(
                    name, epochs[name], rebalance_timeout_ms=REBALANCE_MS, topics=("a",), owned=owned
                ),
                0,
            )
            epochs[name] = reply.epoch
            if reply.assigned is not None:
                held[name] = reply.assigned
    group.check()
    assert all(member.assigned for member in group.members.values())
    return group


def _own_twice(group: ConsumerGroup) -> None:
    member, other = group.members.values()
    partition = next(iter(member.assigned))
    other.assigned |= {partition}
    other.since[partition] = 1


def _mean_twice(group: ConsumerGroup) -> None:
    group.target["m1"] |= group.target["m2"]


def _lose_an_owner(group: ConsumerGroup) -> None:
    group.owners.popitem()


def _run_ahead(group: ConsumerGroup) -> None:
    group.members["m1"].epoch = group.assignment_epoch + 1


def _give_up_nothing(group: ConsumerGroup) -> None:
    group.members["m1"].state = MemberState.UNREVOKED


def _target_ahead(group: ConsumerGroup) -> None:
    group.assignment_epoch = group.epoch + 1


def _target_of_nobody(group: ConsumerGroup) -> None:
    group.target["m3"] = frozenset()


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (_own_twice, "is m1's and m2's"),
        (_mean_twice, "is m1's and m2's"),
        (_lose_an_owner, "owners are"),
        (_run_ahead, "member m1 is"),
        (_give_up_nothing, "UNREVOKED and gives up"),
        (_target_ahead, "the target is ahead"),
        (_target_of_nobody, "not all of them members"),
    ],
)
def test_a_consumer_group_that_contradicts_itself(spoil: Callable[[ConsumerGroup], None], said: str) -> None:
    group = consumers()
    spoil(group)
    with pytest.raises(AssertionError, match=said):
        group.check()


async def test_a_shard_that_contradicts_itself() -> None:
    shard = Shard(MemoryLog(), GroupLimits(initial_rebalance_delay_ms=0), Clock())
    await shard.load()
    shard.join("g", join_request(), lambda _reply: None)
    shard.check()
    shard.offsets.put("h", ("t", 0), CommittedOffset(1, -1, "", 0))
    with pytest.raises(AssertionError, match="which are not here"):
        shard.check()
    shard.offsets.remove("h", ("t", 0))
    shard.offsets.put("g", ("t", -1), CommittedOffset(1, -1, "", 0))
    with pytest.raises(AssertionError, match="t--1 has"):
        shard.check()
    shard.offsets.remove("g", ("t", -1))
    shard.check()
    shard._table.close()
    with pytest.raises(AssertionError, match="has a deadline, and no timer"):
        shard.check()
    shard.close()
    shard.check()
