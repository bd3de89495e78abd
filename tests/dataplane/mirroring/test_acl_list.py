"""The ACLs of a source that are copied: those of topics and groups with matching names, unchanged."""

from __future__ import annotations

import random
import re
from typing import Any

import pytest

from ottla.dataplane.mirroring.acl_list import AclList
from ottla.dataplane.mirroring.acl_reach import Reach, within
from ottla.dataplane.patterns import compile_pattern
from ottla.protocol.cluster.acls import Acl, AclOperation, AclPermission, AclResourceType, PatternType
from ottla.protocol.cluster.cluster_image import ClusterImage
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.acls import AclDescription, DescribeAclsResource, DescribeAclsResponse
from ottla.protocol.messages.command import PlainResult
from ottla.protocol.messages.metadata_records import AclRecord, TopicRecord
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
        self.asked.append({Acl.of(acl)[:3] for acl in command.acls})
        return PlainResult()


def acl_list(source: Source, quorum: Quorum, groups: str = "") -> AclList:
    topics = compile_pattern(r"orders\..*", "topics")
    compiled = compile_pattern(groups, "groups") if groups else None
    return AclList("m", source, quorum, topics, compiled)  # type: ignore[arg-type]


def split(acls: list[Acl], regex: str) -> tuple[set[Acl], set[Acl]]:
    pattern = compile_pattern(regex, "topics")
    names = {acl.resource_name for acl in acls if pattern.fullmatch(acl.resource_name)}
    return within(acls, {TOPIC: Reach(regex, names)})


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


def rule(name: str, pattern: int = LITERAL, permission: int = AclPermission.ALLOW) -> Acl:
    return Acl(TOPIC, name, pattern, "User:eve", "*", AclOperation.READ, permission)


@pytest.mark.parametrize(
    ("regex", "prefixes", "beyond"),
    [
        (".*", ["o", "orders."], []),
        ("orders.*", ["orders", "orders.a"], ["order", "o"]),
        (r"orders\..*", ["orders.", "orders.a"], ["orders", "orders_a"]),
        ("a.c.*|b.*", ["abc", "axcd", "b"], ["ab", "c"]),
        (r"orders\.[a-z]+", [], ["orders.", "orders.a"]),
        (r"orders\.*", [], ["orders", "orders."]),
        ("(a|b).*", [], ["a", "b"]),
        (r"a\|b.*", [], ["a", "b"]),
        (r"\d.*", [], ["d", "1"]),
        ("(?i)a.*", [], ["a"]),
        ("a?.*", [], ["a", "b"]),
        ("orders", [], ["orders"]),
    ],
)
def test_a_prefix_is_taken_over_if_all_that_begins_with_it_is_copied(
    regex: str, prefixes: list[str], beyond: list[str]
) -> None:
    names = prefixes + beyond
    kept, left = split([rule(name, PREFIXED) for name in names], regex)
    assert sorted(acl.resource_name for acl in kept) == sorted(prefixes)
    assert sorted(acl.resource_name for acl in left) == sorted(beyond)


@pytest.mark.parametrize("regex", [".*", r".*|\*", r"\*", "orders.*"])
def test_a_right_to_all_names_is_never_taken_over(regex: str) -> None:
    assert split([rule("*")], regex)[0] == set()


def test_a_denial_that_reaches_further_is_cut_down_to_what_is_allowed() -> None:
    """The copies would otherwise be open to users who are denied the originals."""
    deny = AclPermission.DENY
    acls = [
        rule("orders.a"),
        rule("orders.b.", PREFIXED),
        rule("*", LITERAL, deny),
        rule("ord", PREFIXED, deny),
        rule("orders.b.secret", LITERAL, deny),
        rule("other", LITERAL, deny),
        rule("oth", PREFIXED, deny),
    ]
    kept, _ = split(acls, r"orders\..*")
    assert kept == {
        rule("orders.a"),
        rule("orders.b.", PREFIXED),
        rule("orders.a", LITERAL, deny),
        rule("orders.b.", PREFIXED, deny),
        rule("orders.b.secret", LITERAL, deny),
    }


def test_no_prefix_is_taken_over_that_reaches_a_name_without_a_copy() -> None:
    seed = random.randrange(1 << 30)
    chance = random.Random(seed)
    taken = 0
    for _ in range(3000):
        regex = "".join(
            chance.choice(["a", "b", ".", ".*", r"\.", "|", "a*", "b?", "[ab]"]) for _ in range(5)
        )
        try:
            compile_pattern(regex, "topics")
        except KafkaError:
            continue
        prefix = "".join(chance.choice("ab.") for _ in range(chance.randint(1, 3)))
        if Reach(regex, ()).contains(rule(prefix, PREFIXED)):
            taken += 1
            for _ in range(20):
                name = prefix + "".join(chance.choice("ab.xy") for _ in range(chance.randint(0, 4)))
                assert re.fullmatch(regex, name), f"seed {seed}: {regex!r} does not match {name!r}"
    assert taken > 50


async def test_a_topic_of_this_cluster_is_not_opened_by_an_acl_of_the_source() -> None:
    quorum = Quorum()
    quorum.image.apply(TopicRecord(topic_id=bytes(15) + b"1", name="orders.own"))
    await acl_list(Source((TOPIC, "orders.own", LITERAL)), quorum).bring_up_to_date(1)
    assert not quorum.asked
    await acl_list(
        Source((TOPIC, "orders.own", LITERAL), (TOPIC, "orders.a", LITERAL)), quorum
    ).bring_up_to_date(1)
    assert quorum.asked == [{(TOPIC, "orders.a", LITERAL)}]
