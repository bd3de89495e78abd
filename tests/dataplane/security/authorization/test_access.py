"""Access checks: logged and counted decisions, and handlers that declare no rights."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Any

import pytest

from ottla.dataplane.security.authorization.access import EVERYTHING, Access, Authorization
from ottla.dataplane.security.authorization.audit_log import REPEATED_AFTER_S, AuditLog
from ottla.dataplane.security.authorization.authorizer import Authorizer
from ottla.dataplane.security.authorization.needs import NOTHING, cluster, group, handler_asks
from ottla.dataplane.security.peer_session import PeerSession
from ottla.dataplane.security.principal import NODE, Principal
from ottla.dataplane.server import HandlerTable, handles
from ottla.protocol.cluster.acls import Acl, AclOperation, AclPermission, AclResourceType, PatternType
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.groups import HeartbeatRequest

READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE
TOPIC, GROUP, CLUSTER = AclResourceType.TOPIC, AclResourceType.GROUP, AclResourceType.CLUSTER
ALLOWED = Acl(TOPIC, "orders", PatternType.LITERAL, "User:ann", "*", READ, AclPermission.ALLOW)


@dataclass
class Asked:
    session: PeerSession = field(
        default_factory=lambda: PeerSession(Principal("User", "ann"), "10.0.0.7", "CLIENTS")
    )
    api_key: int = 0
    client_id: str | None = "app"


class Broker:
    """An authorizer with its audit log, and a clock."""

    def __init__(self, *acls: Acl) -> None:
        self.now_s = 0.0
        authorizer = Authorizer()
        authorizer.change((acl, True) for acl in acls)
        self.audit = AuditLog(authorizer.decide, lambda key: f"Api{key}", lambda: self.now_s)
        self.authorization = Authorization(authorizer, self.audit)

    def access(self, asked: Asked | None = None) -> Access:
        return self.authorization.access(asked or Asked())


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "ottla.authorizer")
    return caplog


def test_without_an_authorizer_everything_is_allowed() -> None:
    assert EVERYTHING.allows(WRITE, TOPIC, "orders")
    assert EVERYTHING.allows_for_some(WRITE, TOPIC)
    assert EVERYTHING.denied_topics(WRITE, ["orders"]) == set()
    EVERYTHING.check_cluster(AclOperation.ALTER)


def test_each_of_many_topics_is_allowed_as_alone_and_only_what_is_allowed_is_counted(
    lines: pytest.LogCaptureFixture,
) -> None:
    broker, names = Broker(ALLOWED), ["orders", "secret", "orders"]
    assert list(broker.access().allows_each(READ, TOPIC, names)) == [True, False, True]
    assert (broker.audit.allowed[READ], broker.audit.denied[READ]) == (2, 0)
    assert not lines.records
    assert list(EVERYTHING.allows_each(READ, TOPIC, names)) == [True, True, True]


def test_a_denial_is_logged_as_kafka_logs_it(lines: pytest.LogCaptureFixture) -> None:
    assert not Broker(ALLOWED).access().allows(WRITE, TOPIC, "orders")
    assert lines.messages == [
        "Principal = User:ann is Denied operation = WRITE from host = 10.0.0.7 on resource = Topic:LITERAL:orders for "
        "request = Api0 with resourceRefCount = 1 based on rule DefaultDeny; client id = app, listener = CLIENTS, "
        "mechanism = None"
    ]


def test_what_is_allowed_is_logged_at_debug_with_its_rule(lines: pytest.LogCaptureFixture) -> None:
    broker = Broker(ALLOWED)
    broker.access().check_topic(READ, "orders")
    assert not lines.messages
    lines.set_level(logging.DEBUG, "ottla.authorizer")
    broker.access().check_topic(DESCRIBE, "orders")
    assert "is Allowed operation = DESCRIBE" in lines.messages[0]
    assert "MatchingAcl(ALLOW User:ann from * READ on Topic:LITERAL:orders)" in lines.messages[0]
    assert broker.audit.allowed[READ] == broker.audit.allowed[DESCRIBE] == 1


def test_equal_denials_are_logged_once_in_a_while_with_a_count(lines: pytest.LogCaptureFixture) -> None:
    broker = Broker()
    for _ in range(5):
        broker.access().allows(WRITE, TOPIC, "orders")
    broker.access().allows(WRITE, TOPIC, "other")
    assert len(lines.messages) == 2
    broker.now_s += REPEATED_AFTER_S
    broker.access().allows(WRITE, TOPIC, "orders")
    assert lines.messages[2].endswith("; 4 more like this since the last line")
    assert broker.audit.denied[WRITE] == 7


def test_a_quiet_denial_is_neither_logged_nor_counted(lines: pytest.LogCaptureFixture) -> None:
    broker = Broker()
    assert not broker.access().allows_cluster(AclOperation.CREATE, quiet=True)
    assert not lines.messages
    assert sum(broker.audit.denied) == 0


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (TOPIC, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        (GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED),
        (CLUSTER, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        (AclResourceType.TRANSACTIONAL_ID, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
    ],
)
def test_each_kind_of_resource_has_its_error(kind: AclResourceType, code: ErrorCode) -> None:
    with pytest.raises(KafkaError) as caught:
        Broker().access().check(READ, kind, "x")
    assert caught.value.code is code


def test_a_node_may_do_what_following_and_retention_take_and_nothing_else() -> None:
    denying = Acl(TOPIC, "*", PatternType.LITERAL, "User:*", "*", AclOperation.ALL, AclPermission.DENY)
    node = Asked(PeerSession(Principal(NODE, "2"), "10.0.0.2", "CLIENTS"))
    access = Broker(denying).access(node)
    assert access.allows_cluster(AclOperation.CLUSTER_ACTION)
    assert access.allows(READ, TOPIC, "orders")
    assert not access.allows(WRITE, TOPIC, "orders")
    assert not access.allows_cluster(AclOperation.ALTER)
    assert access.allows(AclOperation.DESCRIBE, GROUP, "g")
    assert not access.allows(READ, GROUP, "g")


class Handlers:
    """A handler that declares its rights; another class has one that does not."""

    @handles(HeartbeatRequest, 0, 4, needs=group(READ))
    def heartbeat(self, request: Any, message: HeartbeatRequest) -> None: ...


class Silent:
    @handles(HeartbeatRequest, 0, 4)
    def heartbeat(self, request: Any, message: HeartbeatRequest) -> None: ...


def test_a_handler_without_needs_is_denied_to_everybody() -> None:
    handler = HandlerTable(Silent()).get(HeartbeatRequest.schema.api_key or 0)
    assert handler is not None
    with pytest.raises(KafkaError) as caught:
        handler.authorize(Broker().access(), HeartbeatRequest(group_id="g"))
    assert caught.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_the_group_that_a_request_names_is_the_one_that_is_asked_about() -> None:
    allowed = Acl(GROUP, "mine", PatternType.LITERAL, "User:ann", "*", READ, AclPermission.ALLOW)
    access = Broker(allowed).access()
    handler = HandlerTable(Handlers()).get(HeartbeatRequest.schema.api_key or 0)
    assert handler is not None
    handler.authorize(access, HeartbeatRequest(group_id="mine"))
    with pytest.raises(KafkaError):
        handler.authorize(access, HeartbeatRequest(group_id="theirs"))


def test_needs_are_told_in_words() -> None:
    assert NOTHING.text == "nothing"
    assert (cluster(AclOperation.ALTER) & group(READ) & handler_asks("READ Topic")).text == (
        "ALTER Cluster; READ Group; READ Topic"
    )


def test_changes_of_acls_are_logged_with_who_made_them(lines: pytest.LogCaptureFixture) -> None:
    Broker().audit.changed(Asked(), "created", [ALLOWED])
    assert lines.messages == [
        "Principal = User:ann from host = 10.0.0.7 created ACLs: ALLOW User:ann from * READ on Topic:LITERAL:orders"
    ]
