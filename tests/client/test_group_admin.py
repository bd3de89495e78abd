"""The admin client's group descriptions from coordinators' answers."""

from __future__ import annotations

import pytest

from ottla.client.admin.groups import classic_description
from ottla.client.connections.metadata import BrokerAddress
from ottla.client.consuming.membership.subscription import encode_assignment
from ottla.client.records import TopicPartition
from ottla.protocol.messages.groups import DescribedGroup, DescribedGroupMember

WHERE = BrokerAddress(1, "host", 9092)
READABLE = encode_assignment({"orders": [0, 1]})


def told(protocol_type: str, *assignments: bytes) -> DescribedGroup:
    members = [
        DescribedGroupMember(
            member_id=f"m{number}",
            client_id="c",
            client_host="/host",
            member_metadata=b"",
            member_assignment=one,
        )
        for number, one in enumerate(assignments)
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
    assert [one.partitions for one in group.members] == [(), partitions]


def test_assignments_of_other_protocols_are_left_to_their_clients() -> None:
    (member,) = classic_description(told("connect", READABLE), WHERE).members
    assert member.partitions == ()
