"""Pushes of thousands of records: pieces that take a moment to fold, each encoded once for all brokers."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, cast

from ottla.metadata_quorum.broker_sessions import PUSH_BYTES_MAX, PUSH_RECORDS_MAX, BrokerSessions
from ottla.metadata_quorum.feed import FeedEntry, MetadataFeed
from ottla.protocol.messages.quorum_session import (
    FeedRecords,
    Subscribe,
    Unsubscribe,
    decode_session_message,
    encode_session_message,
)

COUNT = PUSH_RECORDS_MAX * 5 // 2


class Peer:
    """A link to a broker that takes everything at once."""

    writable = True
    holds_something = False
    remote_host = "127.0.0.1"

    def __init__(self, broker_id: int) -> None:
        self.peer = SimpleNamespace(node_id=broker_id, directory_id=os.urandom(16))
        self.sent: list[bytes] = []

    def set_tcp_timeout(self, unacknowledged_ms_max: int) -> None:
        pass

    def send(self, payload: bytes) -> None:
        self.sent.append(payload)

    @property
    def pushes(self) -> list[FeedRecords]:
        messages = (decode_session_message(payload) for payload in self.sent)
        return [message for message in messages if isinstance(message, FeedRecords)]


def telling(entries: Iterable[FeedEntry]) -> tuple[MetadataFeed, BrokerSessions]:
    """Return a feed of these entries, and the sessions of brokers that follow it."""
    feed = MetadataFeed()
    feed.append(entries)
    events = SimpleNamespace(subscribed=lambda session, message: None)
    return feed, BrokerSessions(feed, cast(Any, None), cast(Any, events), unacknowledged_ms_max=1_000)


def subscribed(sessions: BrokerSessions, broker_id: int) -> Peer:
    peer = Peer(broker_id)
    session = sessions.accept(cast(Any, peer))
    assert session is not None
    peer.sent.clear()
    session.payload_received(cast(Any, peer), encode_session_message(Subscribe(metadata_offset=0)))
    return peer


def told(peer: Peer) -> list[bytes]:
    """Return all records, if they were pushed without a gap."""
    offset, records = 0, []
    for push in peer.pushes:
        assert push.first_offset == offset
        assert len(push.records) <= PUSH_RECORDS_MAX
        offset = push.end_offset
        records += push.records
    return records


async def turns(number: int) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


async def test_thousands_of_records_come_in_pieces_that_are_encoded_once() -> None:
    records = [b"record %d" % number for number in range(COUNT)]
    feed, sessions = telling(FeedEntry(None, record) for record in records)
    peers = [subscribed(sessions, broker_id) for broker_id in (1, 2, 3)]
    for pieces in (1, 2, 3, 3):
        assert [len(peer.pushes) for peer in peers] == [pieces] * 3
        await turns(1)
    for peer in peers:
        assert told(peer) == records
        assert all(
            payload is first_payload for payload, first_payload in zip(peer.sent, peers[0].sent, strict=True)
        )

    more = [b"another %d" % number for number in range(10)]
    feed.append(FeedEntry(None, record) for record in more)
    sessions.push()
    late = subscribed(sessions, 4)
    await turns(2)
    for peer in (*peers, late):
        assert told(peer) == records + more


def test_the_new_partitions_of_a_topic_come_in_one_piece() -> None:
    feed, _ = telling(
        FeedEntry(
            None, b"topic %d" % topic if number == 0 else bytes(PUSH_BYTES_MAX // 1000), continues=number > 0
        )
        for topic in range(3)
        for number in range(2 * PUSH_RECORDS_MAX + 1)
    )
    ends, offset = [], 0
    while offset < feed.end_offset:
        offset = feed.read(offset, 1, max_records=PUSH_RECORDS_MAX, max_bytes=PUSH_BYTES_MAX).end_offset
        ends.append(offset)
    assert ends == [2 * PUSH_RECORDS_MAX + 1, 4 * PUSH_RECORDS_MAX + 2, 6 * PUSH_RECORDS_MAX + 3]


async def test_what_is_applied_between_two_pieces_comes_behind_them() -> None:
    """A push that is requested meanwhile does not overtake the due one."""
    records = [b"record %d" % number for number in range(COUNT)]
    feed, sessions = telling(FeedEntry(None, record) for record in records)
    peer = subscribed(sessions, 1)
    feed.append([FeedEntry(None, b"later")])
    sessions.push()
    assert len(peer.pushes) == 1
    await turns(3)
    assert told(peer) == [*records, b"later"]


async def test_a_broker_that_subscribes_anew_between_two_pieces_goes_on_from_where_it_says() -> None:
    records = [b"record %d" % number for number in range(COUNT)]
    _, sessions = telling(FeedEntry(None, record) for record in records)
    peer = subscribed(sessions, 1)
    session = sessions.of(1, peer.peer.directory_id)
    assert session is not None
    session.payload_received(cast(Any, peer), encode_session_message(Unsubscribe()))
    await turns(2)
    assert len(peer.pushes) == 1
    peer.sent.clear()
    session.payload_received(cast(Any, peer), encode_session_message(Subscribe(metadata_offset=0)))
    await turns(3)
    assert told(peer) == records


def test_what_is_for_some_brokers_is_told_to_these_alone() -> None:
    _, sessions = telling([FeedEntry(frozenset({1}), b"for 1"), FeedEntry(None, b"for all")])
    assert told(subscribed(sessions, 1)) == [b"for 1", b"for all"]
    assert told(subscribed(sessions, 2)) == [b"for all"]
