"""No broker ever knows a part of a topic's partitions: its clients would place records by how many those are."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ottla.dataplane.quorum import QuorumSession
from ottla.metadata_quorum import broker_sessions
from ottla.protocol.cluster.cluster_image import ClusterImage
from ottla.protocol.cluster.image_delta import ImageDelta
from ottla.protocol.messages.topic_commands import CreatePartitions, CreateTopics, MorePartitions, NewTopic

from .cluster import QuorumAndSessions, until

DEADLINE_S = 60


async def test_a_topic_is_known_with_all_its_partitions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_sessions, "PUSH_RECORDS_MAX", 7)
    known: list[int] = []

    def on_delta(image: ClusterImage, _delta: ImageDelta) -> None:
        known.append(len(image.topics["t"].partitions) if "t" in image.topics else 0)

    async with asyncio.timeout(DEADLINE_S), QuorumAndSessions(tmp_path) as cluster:
        first = await cluster.broker(1)
        await first.unfenced()
        other = QuorumSession(cluster.session_config(2), on_delta=on_delta)
        cluster.sessions.append(other)
        await other.start()
        await other.registered()
        topics = [NewTopic(name=name, num_partitions=20, replication_factor=1) for name in "st"]
        await first.submit(CreateTopics(topics=topics))
        await until(lambda: known[-1] == 20)
        await first.submit(CreatePartitions(topics=[MorePartitions(name="t", count=50)]))
        await until(lambda: known[-1] == 50)
    assert set(known) == {0, 20, 50}
