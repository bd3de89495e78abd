"""Error codes of the group APIs, as Apache Kafka 4.4 gave them to the same requests in the same order.

With `OTTLA_TEST_CLUSTER` set to a Kafka cluster, the tests check Kafka again.
"""

from __future__ import annotations

import socket
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.consumer_group_description import ConsumerGroupDescribeRequest
from ottla.protocol.messages.consumer_groups import ConsumerGroupHeartbeatRequest, TopicPartitions
from ottla.protocol.messages.consumer_protocol import ConsumerProtocolSubscription, encode_payload
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.groups import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    ListGroupsRequest,
    MemberIdentity,
    SyncGroupRequest,
)
from ottla.protocol.messages.headers import decode_response, encode_request
from ottla.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from ottla.protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from tests.cluster import wait_for
from tests.integration.conftest import create

pytestmark = pytest.mark.cluster

UNKNOWN_ID = bytes([1]) * 16


class Wire:
    """A connection to a group's coordinator; requests one after another."""

    def __init__(self, bootstrap: str, group: str) -> None:
        self._socket = _connect(bootstrap.split(",")[0])
        address = wait_for(lambda: self._coordinator(group), "a coordinator", 60)
        self._socket.close()
        self._socket = _connect(address)
        wait_for(lambda: self._loaded(group) or None, "groups are loaded", 60)

    def _coordinator(self, group: str) -> str | None:
        (found,) = self.ask(FindCoordinatorRequest(coordinator_keys=[group]), 4).coordinators
        return None if found.error_code else f"{found.host}:{found.port}"

    def _loaded(self, group: str) -> bool:
        (found,) = self.ask(ConsumerGroupDescribeRequest(group_ids=[group]), 1).groups
        return found.error_code in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.INVALID_GROUP_ID)

    def ask(self, request: Any, version: int) -> Any:
        self._socket.sendall(encode_request(request, version, 1, "test"))
        size = int.from_bytes(self._socket.recv(4, socket.MSG_WAITALL), "big")
        return decode_response(
            type(request), memoryview(self._socket.recv(size, socket.MSG_WAITALL)), version
        )[1]

    def close(self) -> None:
        self._socket.close()


def _connect(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), 15)


@pytest.fixture
def topic(admin: AdminClient) -> str:
    return create(admin, 4)


@pytest.fixture
def group() -> str:
    return f"answers-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def wire(bootstrap: str, group: str) -> Iterator[Wire]:
    connection = Wire(bootstrap, group)
    yield connection
    connection.close()


Beat = Callable[..., tuple[ErrorCode, int]]


@pytest.fixture
def heartbeat(wire: Wire, group: str) -> Beat:
    def say(version: int = 1, **fields: Any) -> tuple[ErrorCode, int]:
        reply = wire.ask(ConsumerGroupHeartbeatRequest(**{"group_id": group, **fields}), version)
        return ErrorCode(reply.error_code), reply.member_epoch

    return say


def joining(topic: str) -> dict[str, Any]:
    return {"rebalance_timeout_ms": 10_000, "subscribed_topic_names": [topic], "topic_partitions": []}


def test_heartbeats_that_make_no_sense(heartbeat: Beat, topic: str, group: str) -> None:
    full = joining(topic)
    owned = [TopicPartitions(topic_id=UNKNOWN_ID, partitions=[0])]
    without = {name: {k: v for k, v in full.items() if k != name} for name in full}
    invalid: list[dict[str, Any]] = [
        {"member_id": "", **full},
        {"member_id": "m", "group_id": "", **full},
        *({"member_id": "m", **each} for each in without.values()),
        {"member_id": "m", **full, "topic_partitions": owned},
        {"member_id": "m", "member_epoch": -3},
        {"member_id": "m", "member_epoch": -2},
        {"member_id": "m", "instance_id": "", **full},
        {"member_id": "m", "rack_id": "", **full},
    ]
    for fields in invalid:
        assert heartbeat(**fields)[0] is ErrorCode.INVALID_REQUEST, fields
    assert heartbeat(member_id="m", server_assignor="sticky", **full)[0] is ErrorCode.UNSUPPORTED_ASSIGNOR
    pattern = {**without["subscribed_topic_names"], "subscribed_topic_regex": "a("}
    assert heartbeat(member_id="m", **pattern)[0] is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert heartbeat(member_id="m", member_epoch=5)[0] is ErrorCode.GROUP_ID_NOT_FOUND
    assert heartbeat(member_id="m", member_epoch=-1)[0] is ErrorCode.GROUP_ID_NOT_FOUND
    assert heartbeat(0, member_id="", **full)[0] is ErrorCode.NONE


def test_members_that_are_not_what_they_say(heartbeat: Beat, topic: str) -> None:
    full = joining(topic)
    error, epoch = heartbeat(member_id="m", **full)
    assert error is ErrorCode.NONE
    said: list[tuple[dict[str, Any], ErrorCode]] = [
        ({"member_id": "x", "member_epoch": epoch}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "m", "member_epoch": epoch + 5}, ErrorCode.FENCED_MEMBER_EPOCH),
        ({"member_id": "m", "member_epoch": epoch}, ErrorCode.NONE),
        ({"member_id": "s", "instance_id": "i", **full}, ErrorCode.NONE),
        ({"member_id": "s2", "instance_id": "i", **full}, ErrorCode.UNRELEASED_INSTANCE_ID),
        ({"member_id": "z", "member_epoch": 1, "instance_id": "i"}, ErrorCode.FENCED_INSTANCE_ID),
        ({"member_id": "z", "member_epoch": 1, "instance_id": "none"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "s", "member_epoch": -2, "instance_id": "i"}, ErrorCode.NONE),
        ({"member_id": "s2", "instance_id": "i", **full}, ErrorCode.NONE),
        ({"member_id": "s2", "member_epoch": -1, "instance_id": "i"}, ErrorCode.NONE),
        ({"member_id": "m", "member_epoch": -1}, ErrorCode.NONE),
        ({"member_id": "m", "member_epoch": -1}, ErrorCode.UNKNOWN_MEMBER_ID),
    ]
    for fields, code in said:
        assert heartbeat(**fields)[0] is code, fields


def test_offsets_of_a_consumer_group(heartbeat: Beat, wire: Wire, topic: str, group: str) -> None:
    _, epoch = heartbeat(member_id="m", **joining(topic))
    described = wire.ask(ConsumerGroupDescribeRequest(group_ids=[group]), 1).groups[0].members[0]
    topic_id = bytes(described.assignment.topic_partitions[0].topic_id)

    def commit(version: int, member: str, said: int, name: str = group, **place: Any) -> ErrorCode:
        rows = [
            OffsetCommitRequestPartition(partition_index=place.get("partition", 0), committed_metadata="")
        ]
        wanted = OffsetCommitRequestTopic(name=topic, topic_id=place.get("id", topic_id), partitions=rows)
        request = OffsetCommitRequest(
            group_id=name, member_id=member, generation_id_or_member_epoch=said, topics=[wanted]
        )
        return ErrorCode(wire.ask(request, version).topics[0].partitions[0].error_code)

    assert commit(9, "m", epoch) is commit(10, "m", epoch) is ErrorCode.NONE
    assert commit(8, "m", epoch) is ErrorCode.UNSUPPORTED_VERSION
    assert commit(9, "m", epoch + 1) is ErrorCode.STALE_MEMBER_EPOCH
    assert commit(9, "q", epoch) is commit(9, "", -1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(10, "m", epoch, id=UNKNOWN_ID) is ErrorCode.UNKNOWN_TOPIC_ID
    assert commit(10, "m", epoch, partition=99) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def fetch(version: int, member: str | None = None, said: int = -1, known: bytes = topic_id) -> list[Any]:
        wanted = [OffsetFetchRequestTopics(name=topic, topic_id=known, partition_indexes=[0, 1])]
        asked = OffsetFetchRequestGroup(group_id=group, member_id=member, member_epoch=said, topics=wanted)
        (found,) = wire.ask(OffsetFetchRequest(groups=[asked]), version).groups
        rows = [(p.committed_offset, ErrorCode(p.error_code)) for t in found.topics for p in t.partitions]
        return [ErrorCode(found.error_code), *rows]

    found = [ErrorCode.NONE, (0, ErrorCode.NONE), (-1, ErrorCode.NONE)]
    assert fetch(9) == fetch(9, "m", epoch) == fetch(10) == found
    assert fetch(9, "m", epoch + 1) == [ErrorCode.STALE_MEMBER_EPOCH]
    assert fetch(9, "q", 1) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert fetch(10, known=UNKNOWN_ID)[1] == (-1, ErrorCode.UNKNOWN_TOPIC_ID)

    def delete(name: str, partition: int = 0, of: str = topic) -> list[ErrorCode]:
        rows = [OffsetDeleteRequestPartition(partition_index=partition)]
        wanted = [OffsetDeleteRequestTopic(name=of, partitions=rows)]
        reply = wire.ask(OffsetDeleteRequest(group_id=name, topics=wanted), 0)
        rows_of = [ErrorCode(p.error_code) for t in reply.topics for p in t.partitions]
        return [ErrorCode(reply.error_code), *rows_of]

    assert delete(group) == [ErrorCode.NONE, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC]
    assert delete(group, 77) == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert delete(group, of="no-such-topic") == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    heartbeat(member_id="m", member_epoch=-1)
    assert delete(group) == [ErrorCode.NONE, ErrorCode.NONE]
    assert fetch(9)[1] == (-1, ErrorCode.NONE)
    assert delete(group) == [ErrorCode.NONE, ErrorCode.NONE]


def test_the_classic_protocol_in_a_consumer_group(
    heartbeat: Beat, wire: Wire, topic: str, group: str
) -> None:
    heartbeat(member_id="m", **joining(topic))
    (old,) = wire.ask(DescribeGroupsRequest(groups=[group]), 5).groups
    (new,) = wire.ask(DescribeGroupsRequest(groups=[group]), 6).groups
    assert (old.error_code, old.group_state) == (ErrorCode.NONE, "Dead")
    assert (new.error_code, new.error_message) == (
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"Group {group} is not a classic group.",
    )
    for kinds, listed in ((["Consumer"], True), (["classic"], False), (["bogus"], False)):
        found = wire.ask(ListGroupsRequest(types_filter=kinds), 5).groups
        assert any(each.group_id == group for each in found) == listed, kinds

    def join(member: str = "", kind: str = "consumer", names: tuple[str, ...] = ("range",)) -> Any:
        payload = encode_payload(ConsumerProtocolSubscription(topics=[topic]), 1)
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            member_id=member,
            protocol_type=kind,
            protocols=[JoinGroupRequestProtocol(name=name, metadata=payload) for name in names],
        )
        return wire.ask(request, 9)

    assert join(kind="connect").error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert join(names=()).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    refused = join()
    assert refused.error_code == ErrorCode.MEMBER_ID_REQUIRED
    joined = join(refused.member_id)
    assert (joined.error_code, joined.protocol_name, joined.leader, joined.members) == (0, "range", "", [])

    def sync(member: str, generation: int, protocol: str = "range") -> ErrorCode:
        request = SyncGroupRequest(
            group_id=group,
            generation_id=generation,
            member_id=member,
            protocol_type="consumer",
            protocol_name=protocol,
        )
        return ErrorCode(wire.ask(request, 5).error_code)

    def beat(member: str, generation: int) -> ErrorCode:
        request = HeartbeatRequest(group_id=group, generation_id=generation, member_id=member)
        return ErrorCode(wire.ask(request, 4).error_code)

    generation = joined.generation_id
    assert sync(joined.member_id, generation) is ErrorCode.NONE
    assert sync(joined.member_id, 99) is beat(joined.member_id, 99) is ErrorCode.ILLEGAL_GENERATION
    assert sync(joined.member_id, generation, "x") is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert sync("stranger", 1) is beat("m", generation) is ErrorCode.UNKNOWN_MEMBER_ID
    (deleted,) = wire.ask(DeleteGroupsRequest(groups_names=[group]), 2).results
    assert deleted.error_code == ErrorCode.NON_EMPTY_GROUP
    leaving = [MemberIdentity(member_id="m"), MemberIdentity(member_id="stranger")]
    left = wire.ask(LeaveGroupRequest(group_id=group, members=leaving), 5).members
    assert [m.error_code for m in left] == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]
    (after,) = wire.ask(ConsumerGroupDescribeRequest(group_ids=[group]), 1).groups
    assert after.error_code == ErrorCode.GROUP_ID_NOT_FOUND, "the last member is classic, and so is the group"


def classic_member(wire: Wire, group: str, topic: str, subscription: bytes) -> None:
    """Join the only member of a stable group, with an offset committed in `topic`."""

    def join() -> Any:
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=30_000,
            rebalance_timeout_ms=30_000,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=subscription)],
        )
        return wire.ask(request, 3)

    joined = join()
    assert joined.error_code == ErrorCode.NONE
    who = {"group_id": group, "member_id": joined.member_id}
    synced = wire.ask(SyncGroupRequest(**who, generation_id=joined.generation_id), 2)
    assert synced.error_code == ErrorCode.NONE
    rows = [OffsetCommitRequestPartition(partition_index=0, committed_offset=1)]
    commit = OffsetCommitRequest(
        **who,
        generation_id_or_member_epoch=joined.generation_id,
        topics=[OffsetCommitRequestTopic(name=topic, partitions=rows)],
    )
    assert wire.ask(commit, 5).topics[0].partitions[0].error_code == ErrorCode.NONE


NO_USER_DATA = b"\xff\xff\xff\xff"
UNREADABLE: list[Callable[[bytes], bytes]] = [
    lambda topics: b"",
    lambda topics: b"\0",
    lambda topics: b"\0\0" + topics,  # without user data
    lambda topics: b"\0\3" + topics + b"\0\0\0\x64ab",  # user data that is cut short
    lambda topics: b"\0\0\0\0\0\3\0\1a",  # topics that are cut short
]


@pytest.mark.parametrize("version", [-1, 0, 1, 3, 4, 1000])
@pytest.mark.parametrize("rest", [b"", b"\xff" * 7], ids=["nothing", "garbage"])
def test_offsets_of_topics_that_no_classic_member_subscribes_to_are_deleted_whatever_its_version(
    wire: Wire, admin: AdminClient, topic: str, group: str, version: int, rest: bytes
) -> None:
    """Topics come first in every version, and the rest of a subscription is irrelevant."""
    other = create(admin, 1)
    name = topic.encode()
    topics = b"\0\0\0\1" + len(name).to_bytes(2, "big") + name + NO_USER_DATA
    classic_member(wire, group, other, version.to_bytes(2, "big", signed=True) + topics + rest)
    assert deleted(wire, group, other) == [ErrorCode.NONE, ErrorCode.NONE]
    assert deleted(wire, group, topic) == [ErrorCode.NONE, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC]


@pytest.mark.parametrize("damaged", range(len(UNREADABLE)))
def test_a_classic_consumer_whose_subscription_cannot_be_read_may_subscribe_to_any_topic(
    wire: Wire, topic: str, group: str, damaged: int
) -> None:
    topics = b"\0\0\0\1\0\1a"
    classic_member(wire, group, topic, UNREADABLE[damaged](topics))
    assert deleted(wire, group, topic) == [ErrorCode.NONE, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC]


def deleted(wire: Wire, group: str, topic: str) -> list[ErrorCode]:
    """Return OffsetDelete's errors for the group, and for partition 0 of a topic."""
    rows = [OffsetDeleteRequestPartition(partition_index=0)]
    wanted = [OffsetDeleteRequestTopic(name=topic, partitions=rows)]
    reply = wire.ask(OffsetDeleteRequest(group_id=group, topics=wanted), 0)
    rows_of = [ErrorCode(p.error_code) for t in reply.topics for p in t.partitions]
    return [ErrorCode(reply.error_code), *rows_of]


def test_when_the_last_member_leaves_the_epochs_of_group_and_assignment_rise_together(
    heartbeat: Beat, wire: Wire, topic: str, group: str
) -> None:
    def epochs() -> tuple[str, int, int]:
        (found,) = wire.ask(ConsumerGroupDescribeRequest(group_ids=[group]), 1).groups
        return found.group_state, found.group_epoch, found.assignment_epoch

    _, epoch = heartbeat(member_id="m", **joining(topic))
    assert epochs() == ("Stable", epoch, epoch)
    assert heartbeat(member_id="m", member_epoch=-1)[0] is ErrorCode.NONE
    assert epochs() == ("Empty", epoch + 1, epoch + 1)
    assert heartbeat(member_id="m", **joining(topic)) == (ErrorCode.NONE, epoch + 2)


def test_a_consumer_without_a_group_commits_and_fetches_under_the_empty_id(
    bootstrap: str, topic: str
) -> None:
    """The empty id names a group without members, so requests of members are refused."""
    wire = Wire(bootstrap, "")

    def commit(version: int, member: str = "", generation: int = -1) -> ErrorCode:
        rows = [OffsetCommitRequestPartition(partition_index=0, committed_offset=7)]
        request = OffsetCommitRequest(
            group_id="",
            member_id=member,
            generation_id_or_member_epoch=generation,
            topics=[OffsetCommitRequestTopic(name=topic, partitions=rows)],
        )
        return ErrorCode(wire.ask(request, version).topics[0].partitions[0].error_code)

    def fetch_one() -> tuple[ErrorCode, int]:
        asked = OffsetFetchRequest(
            group_id="", topics=[OffsetFetchRequestTopic(name=topic, partition_indexes=[0])]
        )
        found = wire.ask(asked, 7)
        return ErrorCode(found.error_code), found.topics[0].partitions[0].committed_offset

    def fetch_many() -> tuple[ErrorCode, int]:
        wanted = [OffsetFetchRequestTopics(name=topic, partition_indexes=[0])]
        asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="", topics=wanted)])
        (found,) = wire.ask(asked, 9).groups
        return ErrorCode(found.error_code), found.topics[0].partitions[0].committed_offset

    def described() -> tuple[ErrorCode, str]:
        (found,) = wire.ask(DescribeGroupsRequest(groups=[""]), 6).groups
        return ErrorCode(found.error_code), found.group_state

    def delete() -> ErrorCode:
        return ErrorCode(wire.ask(DeleteGroupsRequest(groups_names=[""]), 2).results[0].error_code)

    wait_for(lambda: fetch_one() == (ErrorCode.NONE, -1) or None, "the offsets of the empty group id", 60)
    assert [commit(version) for version in (2, 5, 7, 9)] == [ErrorCode.NONE] * 4
    assert commit(7, "m", 1) is commit(7, "", 0) is ErrorCode.UNKNOWN_MEMBER_ID
    assert fetch_one() == fetch_many() == (ErrorCode.NONE, 7)
    assert described() == (ErrorCode.NONE, "Empty")
    assert "" in {each.group_id for each in wire.ask(ListGroupsRequest(), 5).groups}

    join = JoinGroupRequest(group_id="", session_timeout_ms=10_000, protocol_type="consumer")
    sync = SyncGroupRequest(group_id="", generation_id=1, member_id="m")
    for request, version in (
        (join, 9),
        (sync, 3),
        (HeartbeatRequest(group_id="", generation_id=1, member_id="m"), 4),
        (LeaveGroupRequest(group_id="", members=[MemberIdentity(member_id="m")]), 5),
        (OffsetDeleteRequest(group_id=""), 0),
    ):
        assert wire.ask(request, version).error_code == ErrorCode.INVALID_GROUP_ID, request
    (new,) = wire.ask(ConsumerGroupDescribeRequest(group_ids=[""]), 1).groups
    assert new.error_code == ErrorCode.INVALID_GROUP_ID

    assert delete() is ErrorCode.NONE
    assert fetch_one() == (ErrorCode.NONE, -1)
    assert described() == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")
    assert delete() is ErrorCode.GROUP_ID_NOT_FOUND
    wire.close()
