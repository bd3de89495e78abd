"""A shard of groups is replayed from a log whose end may not be committed yet."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ottla.dataplane.coordinated_log.replicated_log import ReplicatedLog
from ottla.protocol.errors import ErrorCode, KafkaError

from .harness import ReplicasByHand


async def _read(log: ReplicatedLog) -> int:
    return sum([len(piece) async for piece in log.read_all()])


async def test_a_new_coordinator_tells_nothing_that_could_still_be_lost(tmp_path: Path) -> None:
    """A commit that only the new leader has must not be seen before its followers have it, too."""
    cluster = ReplicasByHand(tmp_path)
    cluster.elect(1)
    cluster.fetch(2, 1)
    cluster.fetch(3, 1)
    cluster[1].produce(b"commit")
    cluster.fetch(2, 1)  # 2 has it now; neither 3 nor the high watermark does.
    cluster.elect(2, isr=(2, 3))
    loading = asyncio.create_task(_read(ReplicatedLog(cluster[2].partition)))
    for _ in range(10):
        await asyncio.sleep(0)
    assert not loading.done()
    cluster.sync(2, 3)
    assert await asyncio.wait_for(loading, 60) > 0


async def test_a_replay_ends_when_another_leads(tmp_path: Path) -> None:
    cluster = ReplicasByHand(tmp_path)
    cluster.elect(1)
    cluster[1].produce(b"commit")
    loading = asyncio.create_task(_read(ReplicatedLog(cluster[1].partition)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    cluster.elect(2)
    with pytest.raises(KafkaError) as moved:
        await asyncio.wait_for(loading, 60)
    assert moved.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
