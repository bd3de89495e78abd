"""A producer's ways to learn of new leaders: by refusals that name them, otherwise by as few requests as possible."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from typing import Any

import pytest

from ottla.client.connections.cluster import Cluster
from ottla.client.connections.connection import Connection
from ottla.client.connections.metadata import BrokerAddress
from ottla.client.connections.opening import connect
from ottla.client.failures import ClientError, ConnectionLost
from ottla.client.producer import Producer
from ottla.client.producing.accumulator import PartitionQueue
from ottla.client.producing.batch_limit import BatchLimit
from ottla.client.producing.leaders import Leaders, Spawn
from tests.client.fake_cluster import Fault, fake_cluster
from tests.client.test_cluster_metadata import answer


async def test_a_leader_that_a_refusal_names_is_sent_to_and_nobody_is_asked() -> None:
    async with (
        fake_cluster(brokers=3, partitions=30) as cluster,
        Producer(bootstrap_servers=cluster.bootstrap) as producer,
    ):
        cluster.names_leaders = True
        for number in range(30):
            await producer.send("t", b"1", partition=number)
        await producer.flush()
        asked = cluster.metadata_requests
        cluster.move_leaders()
        for number in range(30):
            await producer.send("t", b"2", partition=number)
        await producer.flush()
        assert cluster.metadata_requests == asked
        assert all(log.values == [b"1", b"2"] for log in cluster.logs)


async def test_a_named_leader_is_found_that_metadata_have_not_told_of() -> None:
    async with fake_cluster(brokers=2) as cluster:
        cluster.names_leaders, cluster.hidden = True, {1}
        async with Producer(bootstrap_servers=cluster.bootstrap.split(",")[0]) as producer:
            await producer.send_and_wait("t", b"1")
            asked = cluster.metadata_requests
            cluster.move_leaders()
            async with asyncio.timeout(25):
                await producer.send_and_wait("t", b"2")
            assert cluster.metadata_requests == asked
            assert cluster.logs[0].values == [b"1", b"2"]


async def test_a_leader_that_has_yet_to_hear_of_it_is_asked_again_and_nobody_else() -> None:
    refusals = 0

    def fault() -> Fault:
        nonlocal refusals
        refusals += 1
        return Fault.NOT_LEADER if 0 < refusals <= 5 else Fault.NONE

    async with fake_cluster(brokers=2) as cluster:
        cluster.move_leaders()
        async with Producer(bootstrap_servers=cluster.bootstrap) as producer:
            await producer.partitions_for("t")
            cluster.names_leaders, cluster.told_leader, cluster.fault = True, (0, 0), fault
            asked = cluster.metadata_requests
            async with asyncio.timeout(25):
                await producer.send_and_wait("t", b"1")
            assert refusals == 6
            assert cluster.metadata_requests == asked


class Known(Cluster):
    """A cluster with brokers 1 and 2, of which 1 cannot be reached."""

    def __init__(self) -> None:
        super().__init__("localhost:1")
        self.metadata.update(answer([(1, 4), (1, 4), (2, 4)]))
        self.refreshed: list[set[str]] = []
        self.connects = 0
        self.open_to: set[int] = set()
        self.again = asyncio.Event()

    async def refresh(self, topics: Iterable[str] | None = None) -> None:
        self.refreshed.append(set(topics or ()))
        await self.again.wait()
        self.again.clear()

    def connected(self, broker_id: int) -> Any:
        return object() if broker_id in self.open_to else None

    async def connection(self, broker_id: int, lane: str = "") -> Any:
        self.connects += 1
        raise ConnectionLost(f"broker {broker_id}")


class Searching:
    """The leaders of some queues."""

    def __init__(self, cluster: Cluster, queues: Collection[PartitionQueue[Any]]) -> None:
        self.tasks: list[asyncio.Task[None]] = []
        self.woken = 0
        spawn: Spawn = lambda coroutine: self.tasks.append(asyncio.ensure_future(coroutine))  # noqa: E731
        self.leaders = Leaders(cluster, queues, 1_000, spawn, self._wake, lambda *_: None)

    def _wake(self) -> None:
        self.woken += 1

    def close(self) -> None:
        self.leaders.close()
        for task in self.tasks:
            task.cancel()


def waiting_queue(partition: int, topic: str = "t") -> PartitionQueue[Any]:
    queue: PartitionQueue[Any] = PartitionQueue(topic, partition, BatchLimit(1_000), lambda *_: object())
    queue.append((None, b"x", 0, ()), 10, 0.0)
    return queue


async def test_a_refusal_older_than_the_last_answer_causes_no_question() -> None:
    cluster, queue = Known(), waiting_queue(0)
    searching = Searching(cluster, [queue])
    queue.sent_to = (2, 3)
    searching.leaders.failed(queue, moved=True)
    await asyncio.sleep(0)
    assert not cluster.refreshed
    assert queue.failed_leader is None  # so it leaves at once, to the leader known since
    queue.sent_to = (1, 4)
    searching.leaders.failed(queue, moved=True)
    await asyncio.sleep(0)
    assert cluster.refreshed == [{"t"}]
    assert queue.failed_leader == (1, 4)
    searching.close()


async def test_an_unreachable_leader_is_tried_once_for_all_and_nobody_is_woken_for_nothing() -> None:
    cluster, queues = Known(), [waiting_queue(0), waiting_queue(1)]
    searching = Searching(cluster, queues)
    for queue in queues:
        assert searching.leaders.connection_for(queue, (1, 4)) is None
    async with asyncio.timeout(25):
        while not cluster.refreshed:
            await asyncio.sleep(0)
        assert cluster.connects == 1
        assert searching.woken == 0
        cluster.metadata.update(answer([(2, 5), (1, 4), (2, 4)]))
        cluster.again.set()
        while len(cluster.refreshed) < 2:  # the other one has no other leader yet
            await asyncio.sleep(0)
    assert searching.woken >= 1
    searching.close()


async def test_the_first_question_is_about_all_that_waits_for_a_broker_that_was_lost() -> None:
    """Records that were not in flight wait for their leaders, too."""
    cluster, queues = Known(), [waiting_queue(0), waiting_queue(0, "u"), waiting_queue(2)]
    cluster.metadata.update(answer([(1, 4)], name="u"))
    searching = Searching(cluster, queues)
    queues[0].sent_to = (1, 4)
    searching.leaders.failed(queues[0], moved=True)
    searching.leaders.lost(1)
    async with asyncio.timeout(25):
        while not cluster.refreshed:
            await asyncio.sleep(0)
    assert cluster.refreshed == [{"t", "u"}]
    searching.close()


async def test_a_broker_that_was_lost_before_is_believed_when_it_leads_again() -> None:
    """The broker is back, and no connection was tried since: the first answer that names it is enough."""
    cluster, queue = Known(), waiting_queue(0)
    searching = Searching(cluster, [queue])
    searching.leaders.lost(2)
    queue.sent_to = (1, 4)
    searching.leaders.failed(queue, moved=True)
    searching.leaders.lost(1)
    async with asyncio.timeout(25):
        while not cluster.refreshed:
            await asyncio.sleep(0)
        cluster.metadata.update(answer([(2, 5), (1, 4), (2, 4)]))
        cluster.again.set()
        while not searching.woken:
            assert len(cluster.refreshed) == 1
            await asyncio.sleep(0)
    searching.close()


async def test_a_broker_to_which_somebody_else_has_connected_can_be_lost_again() -> None:
    """The partitions that wait for the broker are searched for a second time, too."""
    cluster, queue = Known(), waiting_queue(0)
    searching = Searching(cluster, [queue])
    searching.leaders.lost(1)
    cluster.open_to.add(1)
    assert searching.leaders.connection_for(queue, (1, 4)) is not None
    queue.failed_leader = None
    searching.leaders.lost(1)
    assert queue.failed_leader == (1, 4)
    searching.close()


async def test_an_unreachable_leader_is_tried_again_when_its_time_has_come() -> None:
    cluster, queue = Known(), waiting_queue(0)
    searching = Searching(cluster, [queue])
    async with asyncio.timeout(25):
        for attempt in (1, 2, 3):
            while cluster.connects < attempt:
                searching.leaders.connection_for(queue, (1, 4))
                await asyncio.sleep(0)
            woken = searching.woken
            while searching.woken == woken:
                assert searching.leaders.connection_for(queue, (1, 4)) is None
                assert cluster.connects == attempt
                await asyncio.sleep(0.001)
    searching.close()


async def test_a_broker_that_once_did_not_tell_its_versions_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After a failure other than a lost connection it counted for ever as one to which a connection is being made."""
    refused = False

    async def refusing(address: BrokerAddress, **options: Any) -> Connection:
        nonlocal refused
        if address.id == 1 and not refused:
            refused = True
            raise ClientError("broker 1 refused to tell its versions")
        return await connect(address, **options)

    monkeypatch.setattr("ottla.client.connections.cluster.connect", refusing)
    async with (
        fake_cluster(brokers=2, partitions=2) as cluster,
        Producer(bootstrap_servers=cluster.bootstrap.split(",")[0]) as producer,
    ):
        async with asyncio.timeout(25):
            await producer.send_and_wait("t", b"x", partition=1)
    assert refused


async def test_a_broker_that_does_not_hear_of_its_leadership_is_not_all_that_is_asked() -> None:
    """The broker may be cut off from the quorum while another broker leads.

    Records ran into their timeout, since a refusal by an outdated broker never led to a metadata request.
    """
    async with fake_cluster(brokers=3) as cluster:
        cluster.names_leaders = True
        cluster.move_leaders()
        async with Producer(bootstrap_servers=cluster.bootstrap) as producer:
            await producer.send_and_wait("t", b"1")
            cluster.told_leader = 0, 0
            cluster.move_leaders()
            async with asyncio.timeout(25):
                await producer.send_and_wait("t", b"2")
        assert cluster.logs[0].values == [b"1", b"2"]
