"""A returning broker gets, in pieces, the effects of its registration on the partitions that it led."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ottla.dataplane.quorum import QuorumSession
from ottla.dataplane.quorum.image_gate import ImageGate
from ottla.metadata_quorum import broker_sessions
from ottla.metadata_quorum.leader_duties import LeaderDuties
from ottla.protocol.cluster.cluster_image import ClusterImage
from ottla.protocol.cluster.image_delta import ImageDelta
from ottla.protocol.messages.topic_commands import CreateTopics, NewTopic, PartitionAssignment

from .cluster import QuorumAndSessions, until

PARTITIONS = 5
DEADLINE_S = 60


def led_by(image: ClusterImage, broker_id: int) -> list[int]:
    states = image.topics["t"].partitions if "t" in image.topics else {}
    return [index for index, state in states.items() if state.leader == broker_id]


async def test_a_broker_that_comes_back_never_leads_as_the_process_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker may have lost unflushed records. In its old epoch it would write other records at the same offsets."""
    monkeypatch.setattr(broker_sessions, "PUSH_RECORDS_MAX", 1)
    monkeypatch.setattr(
        LeaderDuties, "fence", lambda *_: False
    )  # The broker is back before its absence is noticed.
    passed: list[list[int]] = []
    async with asyncio.timeout(DEADLINE_S), QuorumAndSessions(tmp_path) as cluster:
        first = await cluster.broker(1)
        other = await cluster.broker(2)
        await first.unfenced()
        await other.unfenced()
        assignments = [PartitionAssignment(partition=n, replicas=[1, 2]) for n in range(PARTITIONS)]
        await first.submit(CreateTopics(topics=[NewTopic(name="t", assignments=assignments)]))
        assert led_by(first.image, 1) == list(range(PARTITIONS))
        await first.stop()

        def on_delta(image: ClusterImage, delta: ImageDelta) -> None:
            if gate.passed(image, delta) is not None:
                passed.append(led_by(image, 1))

        again = QuorumSession(cluster.session_config(1), on_delta=on_delta)
        gate = ImageGate(lambda: again.is_registered)
        cluster.sessions.append(again)
        await again.start()
        await again.registered()
        await until(lambda: passed)
        assert led_by(again.image, 2) == list(range(PARTITIONS))
    assert not any(passed)
