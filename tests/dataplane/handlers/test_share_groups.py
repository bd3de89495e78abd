"""The handlers of share groups: answers to clients, rights, and the feature `share.version`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.dataplane.groups.coordinator import GroupCoordinator
from ottla.dataplane.groups.dependencies import GroupDependencies
from ottla.dataplane.groups.limits import GroupLimits
from ottla.dataplane.groups.metrics import SHARE_GROUPS, GroupMetrics
from ottla.dataplane.handlers.groups import GroupHandlers
from ottla.dataplane.handlers.share_group_offsets import ShareGroupOffsetHandlers
from ottla.dataplane.handlers.share_groups import ShareGroupHandlers
from ottla.dataplane.security.authorization.access import EVERYTHING
from ottla.dataplane.server import ClientRequest
from ottla.protocol.cluster.acls import AclOperation, AclResourceType
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages import share_group_offsets as offsets
from ottla.protocol.messages.groups import DeleteGroupsRequest, ListGroupsRequest
from ottla.protocol.messages.share_group_description import ShareGroupDescribeRequest
from ottla.protocol.messages.share_groups import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from ottla.protocol.wire.schema import ZERO_UUID
from tests.dataplane.groups.persister import MemoryPersister
from tests.dataplane.groups.test_consumer_group import Topics
from tests.dataplane.groups.test_shard import Clock, MemoryLog

UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class Rights:
    """The rights of a client that may do everything but the denied operations on topics and groups."""

    def __init__(self, *denied: tuple[AclOperation, str]) -> None:
        self._denied = set(denied)

    def denied_topics(self, operation: AclOperation, names: Any) -> set[str]:
        return {name for name in names if (operation, name) in self._denied}

    def check(self, operation: AclOperation, resource_type: AclResourceType, name: str) -> None:
        if (operation, name) in self._denied:
            raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)

    def operations(self, _resource_type: AclResourceType, _name: str) -> int:
        return 1 << AclOperation.READ


class Broker:
    """A coordinator of all groups with its handlers. Each partition ends at offset 100, where its leader answers. The
    leaders of partitions with the indexes `silent` do not."""

    def __init__(self, level: int = 1) -> None:
        self.topics, self.persister = Topics(a=2, b=1), MemoryPersister()
        dependencies = GroupDependencies(self.topics.catalog, persister=self.persister)
        self.coordinator = GroupCoordinator(
            GroupLimits(), Clock(), lambda: 1, lambda: self.topics.image.topics, dependencies
        )
        self.coordinator.elected(0, MemoryLog())
        self.membership = ShareGroupHandlers(self.coordinator, lambda: level)
        self.silent: set[int] = set()
        self.offsets = ShareGroupOffsetHandlers(
            self.coordinator, self.topics.catalog, self.persister, self._ends, lambda: level
        )
        self.groups = GroupHandlers(self.coordinator)

    async def _ends(self, partitions: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int]:
        return dict.fromkeys((place for place in partitions if place[1] not in self.silent), 100)

    async def heartbeat(
        self,
        member_id: str = "m",
        epoch: int = 0,
        topics: list[str] | None = None,
        rights: Any = EVERYTHING,
        **more: Any,
    ) -> ShareGroupHeartbeatResponse:
        answers: list[ShareGroupHeartbeatResponse] = []
        message = ShareGroupHeartbeatRequest(
            group_id=more.pop("group_id", "g"),
            member_id=member_id,
            member_epoch=epoch,
            subscribed_topic_names=topics,
            **more,
        )
        self.membership.heartbeat(request(rights, answers.append), message)
        (answer,) = answers
        # Initializations of states end.
        for _ in range(10):
            await asyncio.sleep(0)
        return answer

    def id_of(self, topic: str) -> bytes:
        return self.topics.image.topics[topic].id


def request(rights: Any = EVERYTHING, reply: Any = None) -> ClientRequest:
    return cast(
        ClientRequest,
        SimpleNamespace(
            access=rights,
            api_version=1,
            client_id="c",
            client_host="127.0.0.1",
            session=SimpleNamespace(principal="User:ann"),
            holders=("User:ann", "127.0.0.1"),
            reply=reply,
        ),
    )


@pytest.fixture
async def broker() -> Broker:
    return await started()


async def started(level: int = 1) -> Broker:
    made = Broker(level)
    while made.coordinator.loading:
        await asyncio.sleep(0)
    return made


async def test_a_heartbeat_is_answered_with_the_assignment(broker: Broker) -> None:
    first = await broker.heartbeat(topics=["a"])
    assert (first.error_code, first.member_id, first.member_epoch, first.heartbeat_interval_ms) == (
        0,
        "m",
        2,
        250,
    )
    assert first.assignment is not None
    assert first.assignment.topic_partitions == []
    second = await broker.heartbeat(epoch=2)
    assert second.member_epoch == 3
    assert second.assignment is not None
    assert [(t.topic_id, t.partitions) for t in second.assignment.topic_partitions] == [
        (broker.id_of("a"), [0, 1])
    ]
    assert (await broker.heartbeat(epoch=3)).assignment is None
    left = await broker.heartbeat(epoch=-1)
    assert (left.error_code, left.member_id, left.member_epoch, left.assignment) == (0, "m", -1, None)


INVALID = [
    ({"member_id": "", "topics": ["a"]}, "MemberId can't be empty."),
    ({"group_id": "", "topics": ["a"]}, "GroupId can't be empty."),
    ({"rack_id": "", "topics": ["a"]}, "RackId can't be empty."),
    ({"topics": None}, "SubscribedTopicNames must be set in first request."),
    ({"topics": []}, "SubscribedTopicNames must be set in first request."),
    ({"epoch": -2}, "MemberEpoch is invalid."),
]


@pytest.mark.parametrize(("said", "message"), INVALID)
async def test_requests_that_contradict_themselves_are_refused(
    broker: Broker, said: dict[str, Any], message: str
) -> None:
    answer = await broker.heartbeat(**said)
    assert (answer.error_code, answer.error_message) == (ErrorCode.INVALID_REQUEST, message)


async def test_without_the_feature_there_are_no_share_groups() -> None:
    broker = await started(level=0)
    answer = await broker.heartbeat(topics=["a"])
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    described = await broker.membership.describe(request(), ShareGroupDescribeRequest(group_ids=["g"]))
    assert [group.error_code for group in described.groups] == [ErrorCode.UNSUPPORTED_VERSION]
    with pytest.raises(KafkaError) as refusal:
        await broker.offsets.delete(request(), offsets.DeleteShareGroupOffsetsRequest(group_id="g"))
    assert refusal.value.code is ErrorCode.UNSUPPORTED_VERSION


async def test_topics_that_a_member_may_not_describe_are_refused_and_hidden(broker: Broker) -> None:
    rights = Rights((AclOperation.DESCRIBE, "b"))
    assert (await broker.heartbeat(topics=["a", "b"], rights=rights)).error_code == (
        ErrorCode.TOPIC_AUTHORIZATION_FAILED
    )
    await broker.heartbeat(topics=["a", "b"])
    asked = ShareGroupDescribeRequest(group_ids=["g", "g"], include_authorized_operations=True)
    (hidden,) = (await broker.membership.describe(request(rights), asked)).groups
    assert (hidden.error_code, hidden.members) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, [])
    (denied,) = (
        await broker.membership.describe(request(Rights((AclOperation.DESCRIBE, "g"))), asked)
    ).groups
    assert denied.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED


async def test_a_group_is_described_and_listed(broker: Broker) -> None:
    await broker.heartbeat(topics=["a"], rack_id="r")
    await broker.heartbeat(epoch=2)
    asked = ShareGroupDescribeRequest(group_ids=["g", "x"], include_authorized_operations=True)
    found, missing = (await broker.membership.describe(request(Rights()), asked)).groups
    assert (found.group_state, found.group_epoch, found.assignment_epoch) == ("Stable", 3, 3)
    assert (found.assignor_name, found.authorized_operations) == ("simple", 1 << AclOperation.READ)
    (member,) = found.members
    assert (member.member_id, member.rack_id, member.member_epoch) == ("m", "r", 3)
    assert (member.client_id, member.client_host) == ("c", "/127.0.0.1")
    assert member.subscribed_topic_names == ["a"]
    assert [(t.topic_name, t.partitions) for t in member.assignment.topic_partitions] == [("a", [0, 1])]
    assert (missing.error_code, missing.error_message) == (ErrorCode.GROUP_ID_NOT_FOUND, "Group x not found.")

    def listed(**filters: list[str]) -> list[tuple[str, str, str, str]]:
        groups = broker.groups.list_groups(request(), ListGroupsRequest(**filters)).groups
        return [(g.group_id, g.protocol_type, g.group_state, g.group_type) for g in groups]

    assert listed(types_filter=["Share"]) == [("g", "share", "Stable", "share")]
    assert listed(types_filter=["consumer"]) == []
    assert listed(states_filter=["empty"]) == []


async def test_a_group_is_deleted_with_an_explanation(broker: Broker) -> None:
    await broker.heartbeat(topics=["a"])
    asked = DeleteGroupsRequest(groups_names=["g"])
    (refused,) = (await broker.groups.delete_groups(request(), asked)).results
    assert refused.error_code == ErrorCode.NON_EMPTY_GROUP
    assert refused.error_message
    await broker.heartbeat(epoch=-1)
    (done,) = (await broker.groups.delete_groups(request(), asked)).results
    assert (done.error_code, done.error_message, broker.persister.states) == (0, None, {})


def all_of(broker: Broker, answer: offsets.DescribeShareGroupOffsetsResponse) -> list[Any]:
    """Return (topic, whether its id is that of the topic, index, offset, lag, error) of each partition."""
    return [
        (t.topic_name, t.topic_id != ZERO_UUID, p.partition_index, p.start_offset, p.lag, p.error_code)
        for group in answer.groups
        for t in group.topics
        for p in t.partitions
    ]


async def test_offsets_are_described_altered_and_deleted(broker: Broker) -> None:
    await broker.heartbeat(topics=["b"])
    await broker.heartbeat(epoch=-1)
    altered = await broker.offsets.alter(
        request(Rights((AclOperation.READ, "b"))),
        offsets.AlterShareGroupOffsetsRequest(
            group_id="g",
            topics=[
                offsets.NewTopicOffsets(
                    topic_name=name,
                    partitions=[offsets.NewOffset(partition_index=index, start_offset=offset)],
                )
                for name, index, offset in [("a", 0, 40), ("a", 7, 1), ("a", 1, -2), ("b", 0, 1), ("x", 0, 1)]
            ],
        ),
    )
    assert [(t.topic_name, t.partitions[0].error_code) for t in altered.responses] == [
        ("a", 0),
        ("a", UNKNOWN),
        ("a", ErrorCode.INVALID_REQUEST),
        ("b", ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        ("x", UNKNOWN),
    ]
    every = offsets.DescribeShareGroupOffsetsRequest(groups=[offsets.WantedGroup(group_id="g", topics=None)])
    assert all_of(broker, await broker.offsets.describe(request(), every)) == [
        ("b", True, 0, -1, -1, 0),
        ("a", True, 0, 40, 60, 0),
    ]
    broker.silent.add(0)
    assert all_of(broker, await broker.offsets.describe(request(), every))[1] == ("a", True, 0, 40, -1, 0)
    broker.silent.clear()
    rights = Rights((AclOperation.DESCRIBE, "b"))
    assert all_of(broker, await broker.offsets.describe(request(rights), every)) == [
        ("a", True, 0, 40, 60, 0)
    ]
    named = offsets.DescribeShareGroupOffsetsRequest(
        groups=[
            offsets.WantedGroup(
                group_id="g",
                topics=[offsets.WantedTopic(topic_name=name, partitions=[0, 1]) for name in ("a", "b", "x")],
            )
        ]
    )
    denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert all_of(broker, await broker.offsets.describe(request(rights), named)) == [
        ("a", True, 0, 40, 60, 0),
        ("a", True, 1, -1, -1, 0),
        ("b", False, 0, -1, -1, denied),
        ("b", False, 1, -1, -1, denied),
        ("x", False, 0, -1, -1, 0),
        ("x", False, 1, -1, -1, 0),
    ]
    deleted = await broker.offsets.delete(
        request(Rights((AclOperation.READ, "b"))),
        offsets.DeleteShareGroupOffsetsRequest(
            group_id="g", topics=[offsets.UnwantedTopic(topic_name=name) for name in ("a", "b", "x")]
        ),
    )
    assert [(t.topic_name, t.topic_id != ZERO_UUID, t.error_code) for t in deleted.responses] == [
        ("a", True, 0),
        ("b", False, denied),
        ("x", False, UNKNOWN),
    ]
    assert all_of(broker, await broker.offsets.describe(request(), every)) == [("b", True, 0, -1, -1, 0)]


async def test_states_that_cannot_be_read_have_their_error(broker: Broker) -> None:
    await broker.heartbeat(topics=["b"])
    broker.persister.refusals[0] = ErrorCode.COORDINATOR_NOT_AVAILABLE
    every = offsets.DescribeShareGroupOffsetsRequest(groups=[offsets.WantedGroup(group_id="g", topics=None)])
    assert all_of(broker, await broker.offsets.describe(request(), every)) == [
        ("b", True, 0, -1, -1, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    ]


async def test_offsets_of_a_group_with_members_stay(broker: Broker) -> None:
    await broker.heartbeat(topics=["a"])
    with pytest.raises(KafkaError) as refusal:
        await broker.offsets.alter(
            request(),
            offsets.AlterShareGroupOffsetsRequest(
                group_id="g",
                topics=[
                    offsets.NewTopicOffsets(
                        topic_name="a", partitions=[offsets.NewOffset(partition_index=0, start_offset=1)]
                    )
                ],
            ),
        )
    assert refusal.value.code is ErrorCode.NON_EMPTY_GROUP
    unwanted = offsets.DeleteShareGroupOffsetsRequest(
        group_id="x", topics=[offsets.UnwantedTopic(topic_name="a")]
    )
    with pytest.raises(KafkaError) as refusal:
        await broker.offsets.delete(request(), unwanted)
    assert refusal.value.code is ErrorCode.GROUP_ID_NOT_FOUND


async def test_a_group_of_another_kind_and_a_missing_group_have_no_offsets(broker: Broker) -> None:
    # So did Apache Kafka 4.4.0.
    asked = [
        offsets.WantedGroup(group_id="zz", topics=topics)
        for topics in (None, [offsets.WantedTopic(topic_name="a", partitions=[0])])
    ]
    (every,) = (
        await broker.offsets.describe(request(), offsets.DescribeShareGroupOffsetsRequest(groups=asked[:1]))
    ).groups
    assert (every.error_code, every.topics) == (0, [])
    named = await broker.offsets.describe(
        request(), offsets.DescribeShareGroupOffsetsRequest(groups=asked[1:])
    )
    assert all_of(broker, named) == [("a", True, 0, -1, -1, 0)]


async def test_share_groups_are_counted_by_state(broker: Broker) -> None:
    def counted() -> dict[str, float]:
        families = GroupMetrics(broker.coordinator, cast(Any, None)).metric_families()
        family = next(each for each in families if each.metric is SHARE_GROUPS)
        return {state: value for (state,), value in family.rows}

    assert counted() == {"empty": 0, "stable": 0}
    await broker.heartbeat(topics=["a"])
    await broker.heartbeat(topics=["a"], group_id="other")
    await broker.heartbeat(epoch=-1)
    assert counted() == {"empty": 1, "stable": 1}
