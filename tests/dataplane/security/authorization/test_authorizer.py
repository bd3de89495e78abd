"""The index decides as the description does, whatever ACLs there are and in whichever order they came."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.dataplane.security.authorization import authorizer as authorizers
from ottla.dataplane.security.authorization import grants as grants_module
from ottla.dataplane.security.authorization.authorizer import Authorizer
from ottla.dataplane.security.principal import NODE
from ottla.protocol.cluster.acl_rights import is_allowed
from ottla.protocol.cluster.acls import (
    Acl,
    AclOperation,
    AclPermission,
    AclResourceType,
    PatternType,
    checked_acl,
)
from ottla.protocol.cluster.authorizer_settings import AuthorizerSettings
from tests.dataplane.security.authorization import by_the_book

PRINCIPALS = ["User:ann", "User:bob", "User:*", "Other:ann"]
HOSTS = ["*", "10.0.0.1", "10.0.0.2", "10.0.0.0/31", "10.0.0.0/8", "0.0.0.0/0", "::1", "2001:db8::/32"]
NAMES = ["a", "ab", "abc", "b", "ba", "hardcode", "*"]
OPERATIONS = [operation for operation in AclOperation if operation >= AclOperation.ALL]
ASKED = [operation for operation in OPERATIONS if operation != AclOperation.ALL]
CLIENT_HOSTS = ["10.0.0.1", "10.0.0.2", "10.9.9.9", "192.0.2.1", "::1", "2001:db8::7", "2001:db9::7"]

acls = st.builds(
    Acl,
    st.sampled_from([AclResourceType.TOPIC, AclResourceType.GROUP]),
    st.sampled_from(NAMES),
    st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
    st.sampled_from(PRINCIPALS),
    st.sampled_from(HOSTS),
    st.sampled_from(OPERATIONS),
    st.sampled_from([AclPermission.ALLOW, AclPermission.DENY]),
)
some_acls = st.sets(acls, max_size=12)
principals = st.sampled_from(["User:ann", "User:bob", "User:eve", "Other:ann", "Other:eve"])
hosts = st.sampled_from(CLIENT_HOSTS)


def topic(
    operation: AclOperation,
    name: str = "t",
    *,
    principal: str = "User:ann",
    host: str = "*",
    prefixed: bool = False,
    deny: bool = False,
) -> Acl:
    return Acl(
        AclResourceType.TOPIC,
        name,
        PatternType.PREFIXED if prefixed else PatternType.LITERAL,
        principal,
        host,
        operation,
        AclPermission.DENY if deny else AclPermission.ALLOW,
    )


def with_acls(
    *present: Acl, super_users: tuple[str, ...] = (), open_without_acls: bool = False
) -> Authorizer:
    authorizer = Authorizer(frozenset(super_users), open_without_acls=open_without_acls)
    authorizer.change([(acl, True) for acl in present])
    return authorizer


def may(
    authorizer: Authorizer,
    operation: int,
    name: str = "t",
    principal: str = "User:ann",
    host: str = "10.0.0.1",
) -> bool:
    mask = authorizer.grants(principal, host).mask(AclResourceType.TOPIC, name)
    return bool(mask & 1 << operation)


@given(some_acls, st.sampled_from([*NAMES, "abcd", "zz"]), principals, hosts, st.booleans(), st.booleans())
def test_index_and_quorum_decide_as_the_description_does(
    present: set[Acl], name: str, principal: str, host: str, open_without_acls: bool, is_super: bool
) -> None:
    super_users = ("User:bob",) if is_super else ()
    authorizer = with_acls(*present, super_users=super_users, open_without_acls=open_without_acls)
    grants = authorizer.grants(principal, host)
    for operation in ASKED:
        expected = by_the_book.allowed(
            present, AclResourceType.TOPIC, name, operation, principal, host,
            super_users=super_users, open_without_acls=open_without_acls,
        )  # fmt: skip
        decision = authorizer.decide(AclResourceType.TOPIC, name, operation, grants.requester)
        assert bool(grants.mask(AclResourceType.TOPIC, name) & 1 << operation) == expected
        assert decision.allowed == expected
        settings = AuthorizerSettings(frozenset(super_users), open_without_acls)
        assert (
            is_allowed(present, settings, principal, host, operation, AclResourceType.TOPIC, name) == expected
        )
        if decision.acl is not None:
            assert decision.acl in present
            assert by_the_book.names(decision.acl, AclResourceType.TOPIC, name)
            assert by_the_book.is_for(decision.acl, principal, host)


@given(some_acls, principals, hosts, st.booleans(), st.sampled_from(ASKED))
def test_what_some_resource_allows_is_as_described(
    present: set[Acl], principal: str, host: str, open_without_acls: bool, operation: AclOperation
) -> None:
    authorizer = with_acls(*present, super_users=("User:bob",), open_without_acls=open_without_acls)
    found = authorizer.grants(principal, host).allows_for_some(operation, AclResourceType.TOPIC)
    assert found == by_the_book.allowed_for_some(
        present, AclResourceType.TOPIC, operation, principal, host,
        super_users=("User:bob",), open_without_acls=open_without_acls,
    )  # fmt: skip


@given(st.lists(st.lists(st.tuples(acls, st.booleans()), max_size=6), max_size=8), principals, hosts)
def test_an_index_that_changed_is_like_one_built_anew(
    steps: list[list[tuple[Acl, bool]]], principal: str, host: str
) -> None:
    changed = Authorizer()
    grants = changed.grants(principal, host)
    present: set[Acl] = set()
    for step in steps:
        for acl, is_there in step:
            (present.add if is_there else present.discard)(acl)
        changed.change(step)
        anew = with_acls(*present).grants(principal, host)
        for name in NAMES:
            assert grants.mask(AclResourceType.TOPIC, name) == anew.mask(AclResourceType.TOPIC, name)
        for operation in (AclOperation.WRITE, AclOperation.DESCRIBE):
            assert grants.allows_for_some(operation, AclResourceType.TOPIC) == anew.allows_for_some(
                operation, AclResourceType.TOPIC
            )


@given(
    st.lists(st.lists(st.tuples(acls, st.booleans()), max_size=8), min_size=1, max_size=3),
    st.sampled_from(["User:ann", "User:bob", f"{NODE}:1"]),
    hosts,
    st.booleans(),
)
def test_names_in_a_row_are_decided_as_each_alone(
    steps: list[list[tuple[Acl, bool]]], principal: str, host: str, open_without_acls: bool
) -> None:
    """ACLs may change between two names, as during a long answer."""
    authorizer = with_acls(super_users=("User:bob",), open_without_acls=open_without_acls)
    names = [*NAMES, "abcd", "abce", "zz", *NAMES] * len(steps)
    in_a_row = authorizer.grants(principal, host).masks(AclResourceType.TOPIC, names)
    for at, name in enumerate(names):
        if at % (len(names) // len(steps)) == 0:
            authorizer.change(steps[at * len(steps) // len(names)])
        requester = authorizer.grants(principal, host).requester
        assert next(in_a_row) == authorizer.mask(AclResourceType.TOPIC, name, requester)


@given(some_acls)
def test_nothing_is_left_of_acls_that_are_gone(present: set[Acl]) -> None:
    authorizer = with_acls(*present)
    authorizer.change([(acl, False) for acl in present])
    for kind in (AclResourceType.TOPIC, AclResourceType.GROUP):
        for name in NAMES:
            requester = authorizer.grants("User:ann", "10.0.0.1").requester
            assert authorizer.index.masks(kind, name, requester) is None


def test_a_super_user_may_do_what_is_denied() -> None:
    denied = topic(AclOperation.ALL, principal="User:*", deny=True)
    authorizer = with_acls(denied, super_users=("User:root",))
    assert may(authorizer, AclOperation.WRITE, principal="User:root")
    assert not may(authorizer, AclOperation.WRITE)


def test_denying_implies_nothing_and_wins_over_all_that_is_allowed() -> None:
    authorizer = with_acls(topic(AclOperation.ALL), topic(AclOperation.READ, "", prefixed=True, deny=True))
    assert not may(authorizer, AclOperation.READ)
    assert may(authorizer, AclOperation.DESCRIBE)


def test_a_resource_that_an_acl_of_another_principal_names_is_not_open() -> None:
    authorizer = with_acls(topic(AclOperation.READ, principal="User:bob"), open_without_acls=True)
    assert not may(authorizer, AclOperation.READ)
    assert may(authorizer, AclOperation.READ, "other")


@pytest.mark.parametrize("peer", ["10.0.0.1", "::ffff:10.0.0.1"])
def test_an_ipv4_peer_is_known_by_its_ipv4_address(peer: str) -> None:
    assert may(with_acls(topic(AclOperation.READ, host="10.0.0.1")), AclOperation.READ, host=peer)


def test_an_ipv6_host_may_be_written_long_or_short() -> None:
    acl = checked_acl(topic(AclOperation.READ, host="0:0:0:0:0:0:0:1"))
    assert may(with_acls(acl), AclOperation.READ, host="::1")


def test_of_several_acls_the_one_with_the_most_exact_pattern_is_named() -> None:
    exact = topic(AclOperation.WRITE, "orders")
    authorizer = with_acls(topic(AclOperation.ALL, "*"), topic(AclOperation.ALL, "ord", prefixed=True), exact)
    requester = authorizer.grants("User:ann", "10.0.0.1").requester
    decision = authorizer.decide(AclResourceType.TOPIC, "orders", AclOperation.DESCRIBE, requester)
    assert decision.acl == exact
    assert decision.rule == ("MatchingAcl(ALLOW User:ann from * WRITE on Topic:LITERAL:orders)")


def test_grants_are_shared_and_the_ones_not_used_longest_are_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(authorizers, "GRANTS_MAX", 2)
    authorizer = Authorizer()
    first, second = authorizer.grants("User:a", "h"), authorizer.grants("User:b", "h")
    assert authorizer.grants("User:a", "h") is first
    authorizer.grants("User:c", "h")
    assert authorizer.grants("User:a", "h") is first
    assert authorizer.grants("User:b", "h") is not second


def test_grants_that_are_forgotten_follow_changes_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authorizers, "GRANTS_MAX", 1)
    authorizer = with_acls(topic(AclOperation.READ))
    held = authorizer.grants("User:ann", "10.0.0.1")
    authorizer.grants("User:bob", "10.0.0.1")
    assert held.mask(AclResourceType.TOPIC, "t") & 1 << AclOperation.READ
    authorizer.change([(topic(AclOperation.READ), False)])
    assert not held.mask(AclResourceType.TOPIC, "t")


def test_names_are_remembered_only_if_something_is_allowed_and_not_without_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(grants_module, "NAMES_MAX", 3)
    authorizer = with_acls(topic(AclOperation.READ, "a", prefixed=True))
    asked: list[str] = []
    decide = authorizer.mask

    def counted(kind: int, name: str, requester: object) -> int:
        asked.append(name)
        return decide(kind, name, requester)  # type: ignore[arg-type]

    monkeypatch.setattr(authorizer, "mask", counted)
    grants = authorizer.grants("User:ann", "10.0.0.1")
    for name in ("a1", "a1", "b", "b", "a2", "a3", "a4", "a1"):
        grants.mask(AclResourceType.TOPIC, name)
    assert asked == ["a1", "b", "b", "a2", "a3", "a4", "a1"]
