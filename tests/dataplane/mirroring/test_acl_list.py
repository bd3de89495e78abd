"""Which ACLs of a source are followed: those of topics and groups whose names match, as they are written."""

from __future__ import annotations

import re
from typing import Any

import pytest

from ottla.dataplane.mirroring.acl_list import AclList
from ottla.protocol.acls import Acl, AclOperation, AclPermission, AclResourceType, PatternType
from ottla.protocol.cluster_image import ClusterImage
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.acls import AclDescription, DescribeAclsResource, DescribeAclsResponse
from ottla.protocol.messages.command import PlainResult
from ottla.protocol.messages.metadata_records import AclRecord
from ottla.protocol.messages.mirror_commands import FollowAcls
from ottla.protocol.messages.mirror_records import MirrorAclRecord

TOPIC, GROUP = AclResourceType.TOPIC, AclResourceType.GROUP
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED


class Source:
    def __init__(self, *resources: tuple[int, str, int]) -> None:
        self.resources = list(resources)
        self.error = ErrorCode.NONE
        self.principal = "User:ann"

    async def ask(self, broker_id: int, message: Any, **_: Any) -> DescribeAclsResponse:
        names = (message.resource_name_filter, message.principal_filter, message.host_filter)
        kinds = (message.resource_type_filter, message.pattern_type_filter, message.operation)
        assert (names, kinds, message.permission_type) == ((None,) * 3, (1, 1, 1), 1), "it would not tell all"
        rule = AclDescription(
            principal=self.principal,
            host="*",
            operation=AclOperation.READ,
            permission_type=AclPermission.ALLOW,
        )
        return DescribeAclsResponse(
            error_code=self.error,
            error_message="not you" if self.error else None,
            resources=[
                DescribeAclsResource(
                    resource_type=kind, resource_name=name, pattern_type=pattern, acls=[rule]
                )
                for kind, name, pattern in self.resources
            ],
        )


class Quorum:
    def __init__(self) -> None:
        self.image = ClusterImage()
        self.asked: list[set[tuple[int, str, int]]] = []

    async def submit(self, command: FollowAcls) -> PlainResult:
        self.asked.append({Acl.of(one)[:3] for one in command.acls})
        return PlainResult()


def acl_list(source: Source, quorum: Quorum, groups: str = "") -> AclList:
    topics, compiled = re.compile(r"orders\..*"), re.compile(groups) if groups else None
    return AclList("m", source, quorum, topics, compiled)  # type: ignore[arg-type]


def known(quorum: Quorum, name: str, *, is_copied: bool) -> None:
    fields = Acl(TOPIC, name, LITERAL, "User:ann", "*", AclOperation.READ, AclPermission.ALLOW)._asdict()
    quorum.image.apply(AclRecord(**fields))
    if is_copied:
        quorum.image.apply(MirrorAclRecord(mirror="m", is_copied=True, **fields))


async def test_names_match_as_they_are_written() -> None:
    source = Source(
        (TOPIC, "orders.a", LITERAL),
        (TOPIC, "orders.", PREFIXED),
        (TOPIC, "ord", PREFIXED),
        (TOPIC, "*", LITERAL),
        (TOPIC, "other", LITERAL),
        (GROUP, "billing", LITERAL),
        (AclResourceType.CLUSTER, "kafka-cluster", LITERAL),
        (AclResourceType.TRANSACTIONAL_ID, "orders.x", LITERAL),
    )
    quorum = Quorum()
    await acl_list(source, quorum).bring_up_to_date(1)
    await acl_list(source, quorum, "bill.*").bring_up_to_date(1)
    topics = {(TOPIC, "orders.a", LITERAL), (TOPIC, "orders.", PREFIXED)}
    assert quorum.asked == [topics, topics | {(GROUP, "billing", LITERAL)}]


async def test_nothing_is_asked_where_nothing_has_changed() -> None:
    source, quorum = Source((TOPIC, "orders.a", LITERAL)), Quorum()
    known(quorum, "orders.a", is_copied=True)
    known(quorum, "of a person", is_copied=False)
    await acl_list(source, quorum).bring_up_to_date(1)
    assert not quorum.asked
    source.resources.clear()
    await acl_list(source, quorum).bring_up_to_date(1)
    assert quorum.asked == [set()]


async def test_a_source_that_does_not_tell_removes_nothing() -> None:
    source, quorum = Source(), Quorum()
    known(quorum, "orders.a", is_copied=True)
    source.error = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    with pytest.raises(KafkaError, match="ACLs are not copied: not you"):
        await acl_list(source, quorum).bring_up_to_date(1)
    assert not quorum.asked


async def test_what_this_cluster_cannot_have_is_not_asked_for_again_and_again() -> None:
    source, quorum = Source((TOPIC, "orders.a", LITERAL)), Quorum()
    source.principal = "no principal"
    await acl_list(source, quorum).bring_up_to_date(1)
    assert not quorum.asked
