"""A broker with thousands of logs reports their ends to the quorum's leader in short messages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.dataplane.quorum.log_end_reports import LOGS_AT_ONCE, LogEnd, LogEndReports, LogKey
from ottla.metadata_quorum import broker_sessions
from ottla.metadata_quorum.heartbeats import Heartbeats
from ottla.metadata_quorum.liveness import ProgressTable
from ottla.metadata_quorum.node import QuorumNode
from ottla.protocol.messages.quorum_session import LeaderChanged, SessionHeartbeat

from .cluster import QuorumAndSessions, until
from .test_reported_log_ends import Logs

TOPIC = b"t" * 16
COUNT = 2 * LOGS_AT_ONCE + 500
DEADLINE_S = 60


def logs() -> Logs:
    keys: list[LogKey] = [(TOPIC, number) for number in range(COUNT)]
    ends: dict[LogKey, LogEnd] = {key: (1, key[1]) for key in keys}
    return Logs(ends)


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> list[SessionHeartbeat]:
    """Return the heartbeats that quorum nodes got. Their topic is in no image, and is not forgotten here."""
    monkeypatch.setattr(ProgressTable, "forget", lambda _table, _topics: None)
    taken: list[SessionHeartbeat] = []
    hear = Heartbeats.heartbeat

    def noted(signs: Heartbeats, session: broker_sessions.BrokerSession, message: SessionHeartbeat) -> None:
        taken.append(message)
        hear(signs, session, message)

    monkeypatch.setattr(Heartbeats, "heartbeat", noted)
    return taken


def known(node: QuorumNode) -> dict[LogKey, int]:
    """Return the ends of broker 1's logs, as this node knows them."""
    table: ProgressTable = node.duties.progress
    return {
        (progress.topic_id, progress.partition): progress.log_end_offset
        for progress in table.of([(TOPIC, number) for number in range(COUNT)])
    }


def has_told_all(node: QuorumNode, broker_epoch: int) -> Callable[[], bool]:
    return lambda: node.duties.progress.has_reported(1, broker_epoch, 1)


async def test_every_log_is_told_in_a_few_messages(tmp_path: Path, heard: list[SessionHeartbeat]) -> None:
    there = logs()
    async with asyncio.timeout(DEADLINE_S), QuorumAndSessions(tmp_path) as cluster:
        session = await cluster.broker(1, log_ends=lambda: there)
        await session.registered()
        node = await cluster.leading()
        await until(has_told_all(node, session.broker_epoch))
        assert known(node) == {key: end for key, (_, end) in there.items()}
        sizes = [len(heartbeat.progress) for heartbeat in heard if heartbeat.progress]
        assert (sum(sizes), max(sizes)) == (COUNT, LOGS_AT_ONCE)
        there.change((TOPIC, 0), (2, 9))
        await until(lambda: known(node)[TOPIC, 0] == 9)
        assert len([heartbeat for heartbeat in heard if heartbeat.progress][-1].progress) == 1


async def test_the_next_piece_waits_for_the_answer_to_the_one_before() -> None:
    """A new leader gets reports of all logs of all brokers. Reports that it has no time for must not queue up."""
    asked = asyncio.Event()
    reports = LogEndReports(logs, asked.set)
    reports.new_leader(takes_pieces=True)
    piece = reports.piece(7, waits=True)
    assert piece is not None
    assert reports.is_amid_round
    reports.sent(5)
    assert reports.piece(7, waits=True) is None
    reports.answered(4)
    assert reports.piece(7, waits=True) is None
    assert not asked.is_set()

    reports.answered(5)
    async with asyncio.timeout(DEADLINE_S):
        await asked.wait()
    piece += reports.piece(7, waits=True) or []
    reports.sent(6)
    assert reports.reported_offset == 0
    at_the_interval = reports.piece(7, waits=False)
    assert at_the_interval is not None
    piece += at_the_interval
    assert not reports.is_amid_round
    assert reports.reported_offset == 7
    assert sorted(progress.partition for progress in piece) == list(range(COUNT))
    assert reports.piece(8, waits=True) == [], "a piece with a successor is not awaited"
    reports.stop()


async def test_a_leader_of_before_is_told_all_at_once(
    tmp_path: Path, heard: list[SessionHeartbeat], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An older leader would take a piece for the whole report."""

    def of_before(term: int, leader_id: int) -> LeaderChanged:
        return LeaderChanged(term=term, leader_id=leader_id, knows_transactions=True)

    monkeypatch.setattr(broker_sessions, "_leader", of_before)
    there = logs()
    async with asyncio.timeout(DEADLINE_S), QuorumAndSessions(tmp_path) as cluster:
        session = await cluster.broker(1, log_ends=lambda: there)
        await session.registered()
        node = await cluster.leading()
        await until(has_told_all(node, session.broker_epoch))
        assert [len(heartbeat.progress) for heartbeat in heard if heartbeat.progress] == [COUNT]
        assert len(known(node)) == COUNT


async def test_another_leader_is_told_everything_anew(tmp_path: Path, heard: list[SessionHeartbeat]) -> None:
    there = logs()
    async with asyncio.timeout(DEADLINE_S), QuorumAndSessions(tmp_path, nodes=3) as cluster:
        session = await cluster.broker(1, log_ends=lambda: there)
        await session.registered()
        first = await cluster.leading()
        await until(has_told_all(first, session.broker_epoch))
        heard.clear()
        await cluster.stop_node(first.config.node_id)
        await until(lambda: cluster.leader is not None and len(known(cluster.leader)) == COUNT)
        assert cluster.leader is not None
        await until(has_told_all(cluster.leader, session.broker_epoch))
        assert max(len(heartbeat.progress) for heartbeat in heard) <= LOGS_AT_ONCE


async def test_a_node_that_is_not_known_to_lead_is_not_told_that_nothing_is_new(
    tmp_path: Path, heard: list[SessionHeartbeat]
) -> None:
    """The first heartbeat of a new connection says nothing of logs, which may have grown meanwhile."""
    there = Logs({(TOPIC, 0): (1, 5)})
    async with asyncio.timeout(DEADLINE_S), QuorumAndSessions(tmp_path) as cluster:
        session = await cluster.broker(1, log_ends=lambda: there)
        await session.registered()
        node = await cluster.leading()
        await until(has_told_all(node, session.broker_epoch))
        heard.clear()
        session._links[node.config.node_id].cut("by the test")
        there.change((TOPIC, 0), (1, 9))
        await until(lambda: known(node)[TOPIC, 0] == 9)
        pieces = [(len(heartbeat.progress), heartbeat.told_offset > 0) for heartbeat in heard]
        assert pieces[0] == (0, False)
        assert pieces.index((0, False)) < pieces.index((1, True))
        await until(has_told_all(node, session.broker_epoch))
