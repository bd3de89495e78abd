"""A client that loses its access: its calls fail with a clear error, and it does not flood brokers."""

from __future__ import annotations

import asyncio
import logging
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import ottla.client.connections.cluster as module
from ottla import AuthenticationFailed, Consumer, Producer, TopicPartition
from tests.client.fake_cluster import FakeCluster, fake_cluster

PAUSE_MS = 50


class Door:
    """A gate before a cluster; once it is shut, logins fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_shut = False
        self.knocks: list[float] = []
        self._connect = module.connect
        monkeypatch.setattr(module, "connect", self._knock)

    async def _knock(self, *arguments: Any, **options: Any) -> Any:
        if not self.is_shut:
            return await self._connect(*arguments, **options)
        self.knocks.append(asyncio.get_running_loop().time())
        raise AuthenticationFailed("the login as 'ann' failed")

    async def shut(self, cluster: FakeCluster) -> None:
        """Shut the gate, and end established connections, too."""
        self.is_shut = True
        await cluster.stop()
        await cluster.restart()


@pytest.fixture
def door(monkeypatch: pytest.MonkeyPatch) -> Door:
    return Door(monkeypatch)


async def test_records_fail_at_once(door: Door) -> None:
    async with (
        fake_cluster(brokers=2, partitions=2) as cluster,
        Producer(bootstrap_servers=cluster.bootstrap, retry_backoff_max_ms=PAUSE_MS) as producer,
    ):
        await producer.send_and_wait("t", b"a", partition=0)
        await door.shut(cluster)
        deliveries = [await producer.send("t", b"b", partition=partition) for partition in (0, 1)]
        async with asyncio.timeout(20):
            for delivery in deliveries:
                with pytest.raises(AuthenticationFailed, match="the login as 'ann' failed"):
                    await delivery
        door.is_shut = False
        assert (await producer.send_and_wait("t", b"c", partition=0)).offset == 1
    assert [log.values for log in cluster.logs] == [[b"a", b"c"], []]


async def test_reads_fail_and_brokers_are_not_asked_all_the_time(door: Door) -> None:
    async with fake_cluster(brokers=1) as cluster:
        door.is_shut = False
        consumer = Consumer(bootstrap_servers=cluster.bootstrap, retry_backoff_max_ms=PAUSE_MS)
        async with consumer:
            consumer.assign([TopicPartition("t", 0)])
            await door.shut(cluster)
            for _ in range(3):
                with pytest.raises(AuthenticationFailed):
                    async with asyncio.timeout(20):
                        while True:
                            await consumer.getmany(timeout_ms=5_000)
            async with asyncio.timeout(20):
                while len(door.knocks) < 5:
                    await asyncio.sleep(0.005)
    knocks = door.knocks
    pauses = [after - before for before, after in pairwise(knocks)]
    assert pauses
    assert min(pauses) > 0.8 * PAUSE_MS / 1000


async def test_a_spool_keeps_its_records_and_says_so(
    door: Door, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    door.is_shut = True
    async with fake_cluster(brokers=1) as cluster:
        producer = Producer(
            bootstrap_servers=cluster.bootstrap, retry_backoff_max_ms=PAUSE_MS, spool_dir=tmp_path / "spool"
        )
        with caplog.at_level(logging.WARNING, "ottla.client.spool"):
            async with producer:
                await producer.send("t", b"kept")
                async with asyncio.timeout(20):
                    while producer.spooled.error is None:
                        await asyncio.sleep(0.005)
                assert isinstance(producer.spooled.error, AuthenticationFailed)
                assert producer.spooled.records == 1
    assert any(
        "records wait, and will be sent again" in line.getMessage()
        and "login as 'ann' failed" in line.getMessage()
        for line in caplog.records
    )
    assert not list((tmp_path / "spool").glob("rejected*"))
