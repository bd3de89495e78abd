"""A broker's answer to a request for all topics, without sockets: measures the cost that an authorizer adds."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from typing import cast

from ottla.dataplane.cluster.listed_brokers import ListedBrokers
from ottla.dataplane.cluster.lost_brokers import LostBrokers
from ottla.dataplane.cluster.topic_creation import TopicCreator, TopicDefaults
from ottla.dataplane.handlers.metadata import MetadataHandlers
from ottla.dataplane.quorum.access import Quorum
from ottla.dataplane.security.authorization.access import EVERYTHING, Authorization
from ottla.dataplane.security.authorization.audit_log import AuditLog
from ottla.dataplane.security.authorization.authorizer import Authorizer
from ottla.dataplane.security.peer_session import PeerSession
from ottla.dataplane.security.principal import Principal
from ottla.dataplane.server import ClientRequest
from ottla.protocol.cluster.cluster_image import ClusterImage
from ottla.protocol.messages.metadata import MetadataRequest, MetadataResponse
from ottla.protocol.messages.metadata_records import (
    BrokerListener,
    BrokerRecord,
    PartitionRecord,
    TopicRecord,
)
from ottla.protocol.wire.codec import encode

_LISTENER = "CLIENTS"
_VERSION = 12


class _Cluster:
    """One broker, and topics of one partition."""

    broker_epoch = 1

    def __init__(self, topics: Sequence[str]) -> None:
        self.image = ClusterImage()
        address = BrokerListener(name=_LISTENER, host="127.0.0.1", port=9092)
        self.image.apply(
            BrokerRecord(broker_id=1, broker_epoch=1, listeners=[address], rack=None, fenced=False)
        )
        for number, name in enumerate(topics):
            topic_id = number.to_bytes(16, "big")
            self.image.apply(TopicRecord(topic_id=topic_id, name=name))
            self.image.apply(
                PartitionRecord(
                    topic_id=topic_id, partition=0, replicas=[1], isr=[1], leader=1, leader_epoch=1
                )
            )


class _Asked:
    """The part of a request that the handler needs; the answer is encoded and dropped."""

    api_key, api_version, listener = MetadataRequest.api_key, _VERSION, _LISTENER
    client_id: str | None = "benchmark"

    def __init__(self, session: PeerSession, authorization: Authorization | None) -> None:
        self.session = session
        self.access = EVERYTHING if authorization is None else authorization.access(self)
        self.answered = asyncio.get_running_loop().create_future()

    async def reply_when_encoded(self, message: MetadataResponse) -> None:
        encode(message, _VERSION)
        self.answered.set_result(len(message.topics))


class MetadataAnswers:
    """Metadata answers about these topics for a principal at a host."""

    def __init__(self, topics: Sequence[str], user: str, host: str) -> None:
        self._session = PeerSession(Principal.parse(user), host, _LISTENER)
        quorum = cast(Quorum, _Cluster(topics))
        listed = ListedBrokers(0, lambda: 0)
        creator = TopicCreator(quorum, TopicDefaults(), random.Random(1))
        self._handlers = MetadataHandlers(quorum, 1, creator, listed, LostBrokers(lambda: quorum.image))

    def milliseconds(self, authorizer: Authorizer | None, forget: Callable[[], object]) -> tuple[float, int]:
        """Return CPU milliseconds for a whole answer, and its number of topics: the best of five.

        `forget` is called before each answer.
        """
        audit = None if authorizer is None else AuditLog(authorizer.decide, str, time.monotonic)
        authorization = None if authorizer is None or audit is None else Authorization(authorizer, audit)
        found = []
        for _ in range(5):
            forget()
            found.append(asyncio.run(self._answer(authorization)))
        return min(found)

    async def _answer(self, authorization: Authorization | None) -> tuple[float, int]:
        began = time.process_time()
        asked = _Asked(self._session, authorization)
        self._handlers.metadata(cast(ClientRequest, asked), MetadataRequest(topics=None))
        topics: int = await asked.answered
        return (time.process_time() - began) * 1e3, topics
