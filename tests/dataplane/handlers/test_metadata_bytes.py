"""Metadata answers are the bytes of the plain encoder for the current image, whatever is cached."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.dataplane.cluster import topic_views
from ottla.dataplane.cluster.authorized_operations import OPERATIONS_NOT_ASKED_FOR, TOPIC_OPERATIONS
from ottla.dataplane.cluster.internal_topics import is_internal
from ottla.dataplane.handlers.metadata import MetadataHandlers
from ottla.dataplane.security.authorization.access import Authorization
from ottla.dataplane.security.authorization.audit_log import AuditLog
from ottla.dataplane.security.authorization.authorizer import Authorizer
from ottla.dataplane.security.peer_session import PeerSession
from ottla.dataplane.security.principal import Principal
from ottla.dataplane.server import ClientRequest
from ottla.protocol.cluster.acls import Acl, AclOperation, AclPermission, AclResourceType, PatternType
from ottla.protocol.cluster.cluster_image import ClusterImage, PartitionState, TopicState
from ottla.protocol.direct_codecs.metadata_layout import TopicWriter
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.protocol.messages.metadata_records import (
    PartitionRecord,
    TopicRecord,
    TopicRemovedRecord,
)
from ottla.protocol.wire.codec import encode

from .test_metadata import Replies, StubQuorum, creator, listed, lost

NAMES = ["orders", "x" * 200, "__consumer_offsets", "a"]
BROKERS = (1, 2, 3)


@dataclass
class Step:
    """A change of the image, and a request afterwards."""

    name: str
    replicas: list[int]
    leader: int
    removes: bool
    broker: int
    fenced: bool
    listens: bool
    allowed: bool
    version: int
    listener: str
    asks_for_all: bool
    with_operations: bool
    offline: list[int] = field(default_factory=list)


steps = st.builds(
    Step,
    name=st.sampled_from(NAMES),
    replicas=st.permutations(BROKERS).map(lambda ids: ids[:2]),
    leader=st.sampled_from([-1, *BROKERS]),
    removes=st.booleans(),
    broker=st.sampled_from(BROKERS),
    fenced=st.booleans(),
    listens=st.booleans(),
    allowed=st.booleans(),
    version=st.integers(0, 13),
    listener=st.sampled_from(["CLIENTS", "OTHER"]),
    asks_for_all=st.booleans(),
    with_operations=st.booleans(),
    offline=st.lists(st.sampled_from(BROKERS), max_size=1),
)


class Asked(Replies):
    """A request of ann."""

    api_key = MetadataRequest.api_key
    client_id: str | None = None

    def __init__(self, version: int, listener: str, authorization: Authorization) -> None:
        super().__init__(version, listener)
        self.session = PeerSession(Principal("User", "ann"), "10.0.0.1", listener)
        self.access = authorization.access(self)


class World:
    """A cluster that changes, and handlers that get a request after each change."""

    def __init__(self) -> None:
        self.quorum = StubQuorum()
        self.handlers = MetadataHandlers(
            self.quorum, 1, creator(self.quorum), listed(self.quorum), lost(self.quorum)
        )
        self.authorizer = Authorizer()
        audit = AuditLog(self.authorizer.decide, str, lambda: 0.0)
        self.authorization = Authorization(self.authorizer, audit)
        for broker_id in BROKERS:
            self.quorum.add_broker(broker_id)

    def change(self, step: Step) -> None:
        image = self.quorum.image
        listener = "CLIENTS" if step.listens else "OTHER"
        self.quorum.add_broker(step.broker, fenced=step.fenced, listener=listener)
        topic = image.topics.get(step.name)
        if topic is not None and step.removes:
            image.apply(TopicRemovedRecord(topic_id=topic.id))
            topic = None
        if topic is None:
            image.apply(TopicRecord(topic_id=image.offset.to_bytes(16, "big"), name=step.name))
            topic = image.topics[step.name]
        image.apply(
            PartitionRecord(
                topic_id=topic.id,
                partition=len(topic.partitions) if step.allowed else 0,
                replicas=step.replicas,
                isr=step.replicas,
                leader=step.leader,
                leader_epoch=image.offset,
                offline_replicas=step.offline,
            )
        )
        acl = Acl(
            AclResourceType.TOPIC, step.name, PatternType.LITERAL, "User:ann", "*", AclOperation.READ,
            AclPermission.ALLOW,
        )  # fmt: skip
        self.authorizer.change([(acl, step.allowed)])

    def ask(self, step: Step) -> tuple[MetadataResponse, Asked]:
        asked = Asked(step.version, step.listener, self.authorization)
        topics = [MetadataRequestTopic(name=name) for name in NAMES]
        if step.asks_for_all:
            topics = []
        message = MetadataRequest(
            topics=None if step.asks_for_all and step.version else topics,
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=step.with_operations and step.version >= 8,
        )
        response = self.handlers.metadata(cast(ClientRequest, asked), message)
        assert response is not None
        return response, asked


def topics_by_the_book(world: World, step: Step, asked: Asked) -> Iterator[MetadataResponseTopic]:
    image = world.quorum.image

    def operations(name: str) -> int:
        if not step.with_operations or step.version < 8:
            return OPERATIONS_NOT_ASKED_FOR
        return asked.access.operations(AclResourceType.TOPIC, name) & TOPIC_OPERATIONS

    for name in image.topics if step.asks_for_all else NAMES:
        topic = image.topics.get(name)
        if not asked.access.allows(AclOperation.DESCRIBE, AclResourceType.TOPIC, name):
            if not step.asks_for_all:
                yield MetadataResponseTopic(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name)
        elif topic is None:
            yield MetadataResponseTopic(
                error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                name=name,
                is_internal=is_internal(name),
                topic_authorized_operations=operations(name),
            )
        else:
            yield MetadataResponseTopic(
                name=name,
                topic_id=topic.id,
                is_internal=is_internal(name),
                partitions=list(partitions_by_the_book(image, topic, step)),
                topic_authorized_operations=operations(name),
            )


def partitions_by_the_book(
    image: ClusterImage, topic: TopicState, step: Step
) -> Iterator[MetadataResponsePartition]:
    def reached(broker_id: int) -> bool:
        broker = image.brokers.get(broker_id)
        return (
            broker is not None
            and not broker.fenced
            and any(listener.name == step.listener for listener in broker.listeners)
        )

    def error_of(state: PartitionState) -> ErrorCode:
        leader = image.brokers.get(state.leader)
        if reached(state.leader):
            return ErrorCode.NONE
        if step.version >= 6 and leader is not None and not leader.fenced:
            return ErrorCode.LISTENER_NOT_FOUND
        return ErrorCode.LEADER_NOT_AVAILABLE

    for index, state in sorted(topic.partitions.items()):
        error, replicas, isr = error_of(state), list(state.replicas), list(state.isr)
        offline = [
            replica for replica in replicas if not reached(replica) or replica in state.offline_replicas
        ]
        if step.version == 0 and offline:
            replicas, isr = (
                [replica for replica in replicas if reached(replica)],
                [replica for replica in isr if reached(replica)],
            )
            error = error or ErrorCode.REPLICA_NOT_AVAILABLE
        yield MetadataResponsePartition(
            error_code=error,
            partition_index=index,
            leader_id=state.leader if reached(state.leader) else -1,
            leader_epoch=state.leader_epoch,
            replica_nodes=replicas,
            isr_nodes=isr,
            offline_replicas=offline,
        )


@settings(max_examples=100, deadline=None)
@given(st.lists(steps, min_size=1, max_size=12), st.sampled_from([topic_views.KEPT_BYTES_MAX, 1_500]))
def test_answers_are_the_plain_encoders_of_the_image_as_it_is(
    history: list[Step], kept_bytes_max: int
) -> None:
    world = World()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(topic_views, "KEPT_BYTES_MAX", kept_bytes_max)
        for step in history:
            world.change(step)
            for _ in range(2):
                response, asked = world.ask(step)
                found = encode(response, step.version)
                response.topics = list(topics_by_the_book(world, step, asked))
                assert found == encode(response, step.version)


async def test_what_changes_while_a_long_answer_is_made_does_not_spoil_what_is_kept() -> None:
    """Brokers that are gone by then appear with their old state; the next answer is up to date."""
    quorum = StubQuorum()
    for broker_id in BROKERS:
        quorum.add_broker(broker_id)
    for number in range(1_000):
        quorum.add_topic(f"t{number}", number.to_bytes(16, "big"), [[2, 3]])
    handlers = MetadataHandlers(quorum, 1, creator(quorum), listed(quorum), lost(quorum))

    async def answer(*, fences: bool) -> bytes:
        asked = Replies(12)
        assert handlers.metadata(cast(ClientRequest, asked), MetadataRequest(topics=None)) is None
        await asyncio.sleep(0)
        if fences:
            quorum.add_broker(2, fenced=True)
        while not asked.replies:
            await asyncio.sleep(0)
        return encode(asked.replies[0], 12)

    await answer(fences=True)
    kept = await answer(fences=False)
    anew = MetadataHandlers(quorum, 1, creator(quorum), listed(quorum), lost(quorum))
    handlers = anew
    assert kept == await answer(fences=False)


@pytest.mark.parametrize("version", range(14))
@pytest.mark.parametrize("count", [0, 1, 126, 127, 128, 300])
def test_many_replicas_and_partitions_are_written_as_by_the_plain_encoder(version: int, count: int) -> None:
    ids = list(range(count))
    message = MetadataResponsePartition(
        error_code=5, partition_index=7, leader_id=-1, leader_epoch=9,
        replica_nodes=ids, isr_nodes=ids[1:], offline_replicas=ids[:1],
    )  # fmt: skip
    writer = TopicWriter(version)
    partition = writer.partition(5, 7, -1, 9, ids, ids[1:], ids[:1])
    for partitions in (count, 1):
        topic = MetadataResponseTopic(
            name="n" * count, topic_id=b"i" * 16, is_internal=True, partitions=[message] * partitions
        )
        written = writer.topic(
            "n" * count, b"i" * 16, True, [partition] * partitions, OPERATIONS_NOT_ASKED_FOR
        )
        plain = encode(MetadataResponse(topics=[topic]), version)
        assert written in plain
        assert len(plain) - len(written) == len(encode(MetadataResponse(), version))
