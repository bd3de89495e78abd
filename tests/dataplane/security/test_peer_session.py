"""The contents of a session about its peer, and its replacement."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace

import pytest

from ottla.dataplane.security.peer_session import NODE_MECHANISM, PeerSession
from ottla.dataplane.security.principal import ANONYMOUS, USER, Principal
from ottla.protocol.session.node_proof import NO_NODE, NodeRole, ProvenNode
from ottla.protocol.settings.security_protocol import SecurityProtocol

SESSION = PeerSession(ANONYMOUS, "10.0.0.1", "CLIENTS", SecurityProtocol.SASL_SSL)


def test_a_session_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        SESSION.principal = Principal(USER, "ann")  # type: ignore[misc]


def test_a_node_is_metered_no_longer_and_is_that_broker_only() -> None:
    logged_in = replace(SESSION, expires_at=5.0, mechanism="SCRAM-SHA-256")
    assert logged_in.is_metered
    assert not logged_in.is_broker(NO_NODE)
    node = logged_in.of_node(ProvenNode(NodeRole.BROKER, 101))
    assert str(node.principal) == "OttlaNode:101"
    assert (node.mechanism, node.expires_at) == (NODE_MECHANISM, None)
    assert (node.host, node.listener, node.security_protocol) == ("10.0.0.1", "CLIENTS", "SASL_SSL")
    assert not node.is_metered
    assert [node.is_broker(node_id) for node_id in (101, 102, NO_NODE)] == [True, False, False]
    person = SESSION.of_node(ProvenNode(NodeRole.OPERATOR, NO_NODE))
    assert str(person.principal) == "OttlaNode:operator"
