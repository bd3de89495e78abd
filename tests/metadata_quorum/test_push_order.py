"""The order in which brokers are pushed a turn's records, and the parts that sessions share."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

from ottla.metadata_quorum.broker_sessions import BrokerSession, BrokerSessions, SessionEvents, SnapshotSource
from ottla.metadata_quorum.feed import FeedEntry, MetadataFeed, Scope
from ottla.metadata_quorum.node_connection import NodeConnection
from ottla.metadata_quorum.publication import Publication
from ottla.protocol.cluster.cluster_image import ClusterImage, PartitionState
from ottla.protocol.cluster.partition_change import PartitionChange
from ottla.protocol.messages.quorum_session import FeedRecords, Subscribe, decode_session_message
from ottla.protocol.messages.quorum_session import encode_session_message as encode
from ottla.protocol.session.handshake import Identity


@dataclass
class FakeLink:
    """A link that keeps its sent records, in one list for all links."""

    broker_id: int
    sent: list[tuple[int, bytes]]
    holds_something: bool = False
    writable: bool = True
    remote_host: str = ""
    peer: Identity = field(init=False)

    def __post_init__(self) -> None:
        self.peer = Identity(self.broker_id, bytes(16), "c")

    def send(self, payload: bytes) -> bool:
        self.sent.append((self.broker_id, payload))
        return True

    def set_tcp_timeout(self, unacknowledged_ms_max: int) -> None:
        """Do nothing, since there is no connection."""


class Followed:
    """A feed with three followers."""

    def __init__(self) -> None:
        self.feed = MetadataFeed()
        ignored = cast(Any, lambda *_: None)
        events = SessionEvents(*[ignored] * 8)
        self.sessions = BrokerSessions(
            self.feed, SnapshotSource(self.feed, ClusterImage), events, unacknowledged_ms_max=1000
        )
        self.sent: list[tuple[int, bytes]] = []
        self.links = {broker_id: FakeLink(broker_id, self.sent) for broker_id in (1, 2, 3)}
        for fake in self.links.values():
            link = cast(NodeConnection, fake)
            session = self.sessions.accept(link)
            assert isinstance(session, BrokerSession)
            session.payload_received(link, encode(Subscribe(metadata_offset=0)))
        self.sent.clear()

    def append(self, scope: Scope, record: bytes) -> None:
        self.feed.append([FeedEntry(scope, record)])


def test_those_come_first_where_somebody_waits() -> None:
    followed = Followed()
    followed.append(None, b"record")
    followed.links[2].holds_something = True
    followed.sessions.push(frozenset({3}))
    assert [broker_id for broker_id, _ in followed.sent] == [3, 2, 1]


def led_by(leader: int) -> PartitionChange:
    return PartitionChange(bytes(16), leader, PartitionState((1, 2, 3), (1, 2, 3), leader=leader))


def test_a_new_leader_is_told_before_its_followers() -> None:
    """A follower that knows first is refused, and waits before it asks again."""
    image = ClusterImage()
    pushed: list[frozenset[int]] = []
    anything = cast(Any, SimpleNamespace)
    publication = Publication(
        anything(image=image, history=0),
        anything(applied_index=1),
        MetadataFeed(),
        anything(note=lambda *_: None),
        anything(active=True, noted=lambda *_: None, image_changed=lambda _: None),
        anything(changed=list),
        anything(push=pushed.append),
        lambda: 0.0,
    )
    for leader in (3, 2):
        image.offset += 1
        publication.note([(None, led_by(leader))], history=0)
    publication.publish()
    image.offset += 1
    publication.note([(None, led_by(1))], history=0)
    publication.publish()
    assert pushed == [{2, 3}, {1}]


def test_sessions_that_are_given_the_same_share_its_bytes() -> None:
    followed = Followed()
    followed.append(frozenset({1, 2}), b"record")
    followed.sessions.push()
    pushed = dict(followed.sent)
    assert pushed[1] is pushed[2]
    messages = {broker_id: decode_session_message(payload) for broker_id, payload in pushed.items()}
    assert [cast(FeedRecords, messages[broker_id]).records for broker_id in (1, 2, 3)] == [
        [b"record"],
        [b"record"],
        [],
    ]


def test_a_change_of_the_leader_is_in_the_next_push() -> None:
    """A push of the same records in a later term is different."""
    followed = Followed()
    followed.append(None, b"record")
    followed.sessions.push()
    followed.sessions.announce(7, 101)
    followed.sent.clear()
    for link in followed.links.values():
        session = followed.sessions.of(link.broker_id, bytes(16))
        assert session is not None
        session.payload_received(cast(NodeConnection, link), encode(Subscribe(metadata_offset=0)))
    assert {cast(FeedRecords, decode_session_message(payload)).term for _, payload in followed.sent} == {7}
