"""The admin client's group descriptions, and offsets of many groups, from coordinators' answers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from unittest.mock import patch

import pytest

from ottla.client.admin import Admin, GroupListing
from ottla.client.admin.groups import classic_description
from ottla.client.connections.metadata import BrokerAddress
from ottla.client.consuming.membership.subscription import encode_assignment
from ottla.client.records import TopicPartition
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.protocol.messages.groups import DescribedGroup, DescribedGroupMember
from ottla.protocol.messages.offsets import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from ottla.protocol.wire.schema import Message, Request
from tests.client.fake_cluster import FakeCluster, Fault

WHERE = BrokerAddress(1, "host", 9092)
READABLE = encode_assignment({"orders": [0, 1]})


def told(protocol_type: str, *assignments: bytes) -> DescribedGroup:
    members = [
        DescribedGroupMember(
            member_id=f"m{number}",
            client_id="c",
            client_host="/host",
            member_metadata=b"",
            member_assignment=assignment,
        )
        for number, assignment in enumerate(assignments)
    ]
    return DescribedGroup(
        error_code=0,
        group_id="g",
        group_state="Stable",
        protocol_type=protocol_type,
        protocol_data="range",
        members=members,
    )


@pytest.mark.parametrize(
    "garbage", [b"\x00", b"\x00\x00\x7f\xff\xff\xff", b"\x00\x00\x00\x00\x00\x01\x00\x01\xff"]
)
def test_what_a_leader_has_assigned_and_nobody_can_read_is_nothing(garbage: bytes) -> None:
    """`ottla group describe` of all groups failed because of one such group, which any client can make."""
    group = classic_description(told("consumer", garbage, READABLE), WHERE)
    partitions = (TopicPartition("orders", 0), TopicPartition("orders", 1))
    assert [member.partitions for member in group.members] == [(), partitions]


def test_assignments_of_other_protocols_are_left_to_their_clients() -> None:
    (member,) = classic_description(told("connect", READABLE), WHERE).members
    assert member.partitions == ()


# ------------------------------------------------------------ offsets of many groups

FIRST = TopicPartition("t", 0)


class Coordinators(FakeCluster):
    """Two coordinators. Each group has committed the offset in its name, such as `g7`."""

    def __init__(self) -> None:
        super().__init__("t", 2, lambda: Fault.NONE)
        self.asked: list[tuple[int, int]] = []
        """The broker and the number of groups of each request for offsets."""
        self.errors: dict[str, ErrorCode] = {}
        self.is_broken: set[int] = set()
        self.served += [FindCoordinatorRequest, OffsetFetchRequest]

    def answer_other(self, broker: int, request: Request[Message], version: int) -> Message | None:
        if isinstance(request, FindCoordinatorRequest):
            return FindCoordinatorResponse(node_id=0, host="127.0.0.1", port=self.ports[0])
        assert isinstance(request, OffsetFetchRequest)
        self.asked.append((broker, len(request.groups)))
        if broker in self.is_broken:
            return None
        if version < 8:
            partition = OffsetFetchResponsePartition(
                partition_index=0, committed_offset=int(request.group_id[1:])
            )
            return OffsetFetchResponse(topics=[OffsetFetchResponseTopic(name="t", partitions=[partition])])
        return OffsetFetchResponse(groups=[self._group(asked.group_id) for asked in request.groups])

    def _group(self, name: str) -> OffsetFetchResponseGroup:
        if name in self.errors:
            return OffsetFetchResponseGroup(group_id=name, error_code=self.errors[name])
        partitions = [
            OffsetFetchResponsePartitions(partition_index=0, committed_offset=int(name[1:])),
            OffsetFetchResponsePartitions(partition_index=1, committed_offset=-1),
        ]
        return OffsetFetchResponseGroup(
            group_id=name, topics=[OffsetFetchResponseTopics(name="t", partitions=partitions)]
        )


@asynccontextmanager
async def reaching(cluster: Coordinators) -> AsyncIterator[Admin]:
    await cluster.start(2)
    try:
        async with Admin(bootstrap_servers=cluster.bootstrap, request_timeout_ms=5_000) as admin:
            yield admin
    finally:
        await cluster.stop()


def listed(count: int) -> list[GroupListing]:
    return [
        GroupListing(f"g{number}", "consumer", "Stable", "classic", number % 2) for number in range(count)
    ]


async def test_coordinators_are_asked_for_many_groups_at_once() -> None:
    cluster = Coordinators()
    cluster.errors["g5"] = ErrorCode.NOT_COORDINATOR
    async with reaching(cluster) as admin:
        found = await admin.committed_offsets_of_groups(listed(120))
    refused = found.pop("g5")
    assert isinstance(refused, KafkaError)
    assert refused.code == ErrorCode.NOT_COORDINATOR
    assert found == {f"g{number}": {FIRST: number} for number in range(120) if number != 5}
    assert sorted(cluster.asked) == [(0, 10), (0, 50), (1, 10), (1, 50)]


async def test_a_coordinator_that_does_not_answer_hides_no_other_groups() -> None:
    cluster = Coordinators()
    cluster.is_broken.add(1)
    async with reaching(cluster) as admin:
        found = await admin.committed_offsets_of_groups(listed(4))
    assert [found[name] for name in ("g0", "g2")] == [{FIRST: 0}, {FIRST: 2}]
    assert all(isinstance(found[name], KafkaError) for name in ("g1", "g3"))


async def test_an_old_coordinator_is_asked_for_each_group() -> None:
    cluster = Coordinators()
    with patch.object(OffsetFetchRequest, "max_version", 7):
        async with reaching(cluster) as admin:
            found = await admin.committed_offsets_of_groups(listed(4))
    assert found == {f"g{number}": {FIRST: number} for number in range(4)}
    assert len(cluster.asked) == 4
