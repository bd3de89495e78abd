"""Brokers look up the coordinators of share-partitions, and the first look-up creates the topic of their states."""

from __future__ import annotations

from typing import cast

import pytest

from ottla.dataplane.cluster.internal_topics import SHARE_STATE_TOPIC, is_internal
from ottla.dataplane.handlers.find_coordinator import FindCoordinatorHandlers
from ottla.dataplane.security.peer_session import PeerSession
from ottla.dataplane.security.principal import ANONYMOUS
from ottla.dataplane.server.handler import ClientRequest
from ottla.protocol import features
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.features import SHARE
from ottla.protocol.messages.find_coordinator import (
    SHARE_KEY,
    Coordinator,
    FindCoordinatorRequest,
    SharePartition,
)
from ottla.protocol.messages.topic_commands import CreateTopics
from ottla.protocol.session.node_proof import NodeRole, ProvenNode
from tests.dataplane.handlers.test_metadata import Replies, StubQuorum, creator

KEY = SharePartition("g", b"t" * 16, 0).key
BROKER = ProvenNode(NodeRole.BROKER, 2)


@pytest.fixture
def quorum(monkeypatch: pytest.MonkeyPatch) -> StubQuorum:
    monkeypatch.setitem(
        features.FEATURES,  # type: ignore[arg-type]
        SHARE,
        features.Feature(SHARE, 0, 1, 0),
    )
    stub = StubQuorum()
    stub.add_broker(1)
    stub.image.features[SHARE] = 1
    return stub


async def found(
    quorum: StubQuorum, *keys: str, node: ProvenNode | None = BROKER, version: int = 6
) -> list[Coordinator]:
    request = Replies(version)
    request.session = PeerSession(ANONYMOUS, "h", "CLIENTS", node=node)  # type: ignore[attr-defined]
    handlers = FindCoordinatorHandlers(quorum, creator(quorum))
    message = FindCoordinatorRequest(key_type=SHARE_KEY, coordinator_keys=list(keys))
    answer = await handlers.find_coordinator(cast(ClientRequest, request), message)
    return list(answer.coordinators)


async def test_a_broker_finds_the_coordinator_and_creates_its_topic(quorum: StubQuorum) -> None:
    known, unknown = await found(quorum, KEY, "no key")
    assert (known.key, known.node_id, known.port) == (KEY, 1, 9001)
    assert unknown.error_code == ErrorCode.INVALID_REQUEST
    assert len(quorum.image.topics[SHARE_STATE_TOPIC].partitions) == 50
    assert is_internal(SHARE_STATE_TOPIC)


@pytest.mark.parametrize(
    ("node", "version", "level", "expected"),
    [
        (None, 6, 1, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        (ProvenNode(NodeRole.OPERATOR, -1), 6, 1, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        (BROKER, 5, 1, ErrorCode.INVALID_REQUEST),
        (BROKER, 6, 0, ErrorCode.UNSUPPORTED_VERSION),
    ],
)
async def test_all_others_find_nothing_and_create_nothing(
    quorum: StubQuorum, node: ProvenNode | None, version: int, level: int, expected: ErrorCode
) -> None:
    quorum.image.features[SHARE] = level
    with pytest.raises(KafkaError) as refused:
        await found(quorum, KEY, node=node, version=version)
    assert refused.value.code is expected
    assert quorum.submitted == []


@pytest.mark.parametrize(
    ("brokers", "replicas", "min_isr"), [(1, 1, "1"), (2, 2, "1"), (3, 3, "2"), (5, 3, "2")]
)
async def test_a_small_cluster_gets_as_many_replicas_as_it_has_brokers(
    quorum: StubQuorum, brokers: int, replicas: int, min_isr: str
) -> None:
    for broker_id in range(2, brokers + 1):
        quorum.add_broker(broker_id)
    await creator(quorum).create([SHARE_STATE_TOPIC])
    (command,) = quorum.submitted
    assert isinstance(command, CreateTopics)
    configs = {config.name: config.value for config in command.topics[0].configs}
    assert command.topics[0].replication_factor == replicas
    assert configs["min.insync.replicas"] == min_isr
    assert (configs["cleanup.policy"], configs["retention.ms"]) == ("delete", "-1")
