"""Group members with a real cluster: joins, leaves, new subscriptions, and members that read on meanwhile, also with
other clients in the group.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

from ottla.client.admin import Admin, NewTopic
from ottla.client.consumer import Consumer
from ottla.client.consuming.membership.listener import RebalanceListener
from ottla.client.producer import Producer
from ottla.client.records import TopicPartition
from ottla.protocol.errors import KafkaError
from tests import java
from tests.client.listeners import KeptEvents
from tests.cluster import PAUSE_S, RunningCluster, running_cluster
from tests.integration.history import SMALL_CLUSTER
from tests.integration.stock_clients import Process

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    with running_cluster(
        tmp_path_factory.mktemp("groups"), quorum=1, brokers=1, settings=SMALL_CLUSTER
    ) as running:
        yield running


async def create(cluster: RunningCluster, name: str, partitions: int) -> None:
    async with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        await admin.create_topics([NewTopic(name, partitions, 1)])


def member(cluster: RunningCluster, group: str, *strategies: str, **options: Any) -> Consumer:
    return Consumer(
        bootstrap_servers=cluster.bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        heartbeat_interval_ms=50,
        partition_assignment_strategy=strategies or ("range", "cooperative-sticky"),
        **options,
    )


async def until(
    condition: Callable[[], object], meanwhile: Callable[[], Awaitable[object]] | None = None
) -> None:
    async with asyncio.timeout(40):
        while not condition():
            await (asyncio.sleep(0.01) if meanwhile is None else meanwhile())


def shared(count: int, *members: Any) -> bool:
    """Return whether each of `count` partitions is read by one of these members, and each has a fair share."""
    owned = [
        {(partition.topic, partition.partition) for partition in member.assignment()} for member in members
    ]
    sizes = [len(some) for some in owned]
    return sum(sizes) == len(set().union(*owned)) == count and max(sizes) - min(sizes) <= 1


async def test_cooperative_members_read_on_what_they_keep(cluster: RunningCluster) -> None:
    """Nothing is committed: a partition that was given up and taken again would be read twice."""
    await create(cluster, "kept", 4)
    read: Counter[tuple[int, int]] = Counter()
    stop = asyncio.Event()

    async def produce() -> None:
        async with Producer(bootstrap_servers=cluster.bootstrap) as producer:
            while not stop.is_set():
                for partition in range(4):
                    await producer.send_and_wait("kept", b"x", partition=partition)
                await asyncio.sleep(PAUSE_S)

    async def poll() -> None:
        for records in (await first.getmany(timeout_ms=50)).values():
            read.update((record.partition, record.offset) for record in records)

    events = KeptEvents()
    first, second = (member(cluster, "keeping", "cooperative-sticky") for _ in range(2))
    producing = asyncio.ensure_future(produce())
    first.subscribe(["kept"], listener=events)
    second.subscribe(["kept"])
    async with first:
        await until(lambda: len(read) > 20, poll)
        async with second:
            await until(lambda: shared(4, first, second), poll)
            kept = {partition.partition for partition in first.assignment()}
            seen = len(read)
            await until(lambda: len(read) > seen + 20, poll)
            assert events.all("revoked") == {0, 1, 2, 3} - kept
        stop.set()
        await producing
    assert all(times == 1 for (partition, _), times in read.items() if partition in kept)
    assert not events.all("lost")


async def test_more_members_than_partitions_come_and_go(cluster: RunningCluster) -> None:
    await create(cluster, "crowded", 3)
    members = [member(cluster, "crowd", "cooperative-sticky") for _ in range(4)]
    for consumer in members:
        consumer.subscribe(["crowded"])
        await consumer.start()
    await until(lambda: shared(3, *members))
    before = {consumer: consumer.assignment() for consumer in members}
    idle = next(consumer for consumer in members if not before[consumer])
    leaving = next(consumer for consumer in members if consumer is not idle)
    await leaving.stop()
    staying = [consumer for consumer in members if consumer is not leaving]
    await until(lambda: shared(3, *staying))
    assert idle.assignment() == before[leaving]
    assert all(consumer.assignment() == before[consumer] for consumer in staying if consumer is not idle)
    for consumer in staying:
        await consumer.stop()


class Librdkafka:
    """A librdkafka member that is polled in a thread, since it only takes part in rebalances when polled, and reports
    its assignment there.
    """

    def __init__(self, cluster: RunningCluster, topic: str, group: str) -> None:
        self._owned: set[TopicPartition] = set()
        self._done = threading.Event()
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "group.id": group,
                "partition.assignment.strategy": "cooperative-sticky",
                "heartbeat.interval.ms": 100,
                "session.timeout.ms": 6_000,
            }
        )
        self._consumer.subscribe([topic], on_assign=self._assigned, on_revoke=self._revoked)
        self._thread = threading.Thread(target=self._poll)

    def __enter__(self) -> Librdkafka:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def assignment(self) -> set[TopicPartition]:
        return set(self._owned)

    def _assigned(self, _: object, partitions: list[confluent_kafka.TopicPartition]) -> None:
        self._owned |= {TopicPartition(partition.topic, partition.partition) for partition in partitions}

    def _revoked(self, _: object, partitions: list[confluent_kafka.TopicPartition]) -> None:
        self._owned -= {TopicPartition(partition.topic, partition.partition) for partition in partitions}

    def _poll(self) -> None:
        while not self._done.is_set():
            self._consumer.poll(0.05)
        self._consumer.close()


async def test_a_librdkafka_member_joins_ours(cluster: RunningCluster) -> None:
    await create(cluster, "joined", 6)
    events = KeptEvents()
    ours = member(cluster, "joined", "cooperative-sticky")
    ours.subscribe(["joined"], listener=events)
    async with ours:
        await until(lambda: shared(6, ours))
        with Librdkafka(cluster, "joined", "joined") as theirs:
            await until(lambda: shared(6, ours, theirs))
            assert events.all("revoked").isdisjoint(partition.partition for partition in ours.assignment())
            assert len(events.all("revoked")) == 3, "no more than the newcomer's share"
        await until(lambda: shared(6, ours))


async def test_a_librdkafka_member_makes_room_for_ours(cluster: RunningCluster) -> None:
    await create(cluster, "room", 6)
    with Librdkafka(cluster, "room", "room") as theirs:
        await until(lambda: shared(6, theirs))
        ours = member(cluster, "room", "cooperative-sticky")
        ours.subscribe(["room"])
        async with ours:
            await until(lambda: shared(6, ours, theirs))
        await until(lambda: shared(6, theirs))


async def test_a_group_with_an_aiokafka_member(cluster: RunningCluster) -> None:
    await create(cluster, "with-aiokafka", 6)
    events = KeptEvents()
    ours = member(cluster, "sticking", "sticky")
    ours.subscribe(["with-aiokafka"], listener=events)
    async with ours:
        await until(lambda: shared(6, ours))
        theirs = AIOKafkaConsumer(
            "with-aiokafka",
            bootstrap_servers=cluster.bootstrap,
            group_id="sticking",
            heartbeat_interval_ms=100,
            partition_assignment_strategy=[StickyPartitionAssignor],
        )
        await theirs.start()
        await until(lambda: shared(6, ours, theirs))
        before = ours.assignment()
        third = member(cluster, "sticking", "sticky")
        third.subscribe(["with-aiokafka"])
        async with third:
            await until(lambda: shared(6, ours, theirs, third))
            assert ours.assignment() < before, "it keeps two of its three"
        await theirs.stop()
        await until(lambda: shared(6, ours))


@java.needs_java
@pytest.mark.java
async def test_a_group_with_a_java_member(cluster: RunningCluster, tmp_path: Path) -> None:
    """The Java member has the default assignors of both clients, or a cooperative one."""
    await create(cluster, "with-java", 6)
    settings = tmp_path / "consumer.properties"
    settings.write_text("heartbeat.interval.ms=200\n")
    strategy = "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"
    theirs = Process(
        java.command(
            "org.apache.kafka.tools.VerifiableConsumer",
            *("--bootstrap-server", cluster.bootstrap, "--topic", "with-java", "--group-id", "with-java"),
            *("--session-timeout", "6000", "--assignment-strategy", strategy),
            *("--command-config", str(settings)),
        )
    )
    events = KeptEvents()
    ours = member(cluster, "with-java", "cooperative-sticky")
    ours.subscribe(["with-java"], listener=events)
    async with ours:
        await until(lambda: shared(6, ours))
        with theirs:
            await until(lambda: len(ours.assignment()) == 3)
            kept = {partition.partition for partition in ours.assignment()}
            assert events.all("revoked") == set(range(6)) - kept
            await until(lambda: theirs.assigned == set(range(6)) - kept)
            await asyncio.to_thread(theirs.stop)
        await until(lambda: shared(6, ours))


@pytest.mark.parametrize("group", [None, "following"])
async def test_a_pattern_follows_topics_that_come_and_go(cluster: RunningCluster, group: str | None) -> None:
    prefix = f"{group or 'alone'}-logs"
    await create(cluster, f"{prefix}-a", 1)
    consumer = Consumer(
        bootstrap_servers=cluster.bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        heartbeat_interval_ms=50,
        metadata_max_age_ms=100,
    )
    consumer.subscribe(pattern=f"{prefix}-.")
    async with consumer, Admin(bootstrap_servers=cluster.bootstrap) as admin:
        await until(lambda: consumer.assignment() == {(f"{prefix}-a", 0)})
        await create(cluster, f"{prefix}-b", 2)
        await create(cluster, f"{prefix}-no", 1)
        await until(lambda: len(consumer.assignment()) == 3)
        assert consumer.subscription() == {f"{prefix}-a", f"{prefix}-b"}
        async with Producer(bootstrap_servers=cluster.bootstrap) as producer:
            await producer.send_and_wait(f"{prefix}-b", b"young", partition=1)
        async with asyncio.timeout(60):
            assert (await consumer.getone()).value == b"young"
        await admin.delete_topics([f"{prefix}-a"])
        await until(lambda: {partition.topic for partition in consumer.assignment()} == {f"{prefix}-b"})
        await admin.create_partitions(f"{prefix}-b", 4)
        await until(lambda: len(consumer.assignment()) == 4)
        assert f"{prefix}-a" not in await admin.list_topics(), "not created by asking for it"


async def test_subscriptions_change_and_end(cluster: RunningCluster) -> None:
    for name in ("old", "new"):
        await create(cluster, name, 2)
    for strategy in ("range", "cooperative-sticky"):
        first, second = (member(cluster, f"changing-{strategy}", strategy) for _ in range(2))
        async with first, second:
            first.subscribe(["old"])
            second.subscribe(["old"])
            await until(lambda: shared(2, first, second))  # noqa: B023
            first.subscribe(["new"])
            await until(lambda: {partition.topic for partition in first.assignment()} == {"new"})  # noqa: B023
            await until(lambda: shared(4, first, second))  # noqa: B023
            await first.unsubscribe()
            assert not first.assignment()
            first.subscribe(["old"])
            await until(lambda: shared(2, first, second))  # noqa: B023


async def test_a_listener_hands_over_what_was_read_to_the_letter(cluster: RunningCluster) -> None:
    """Each record is read once, however often the group rebalances: a revoked partition is committed first."""
    await create(cluster, "exactly", 4)
    count = 400
    async with Producer(bootstrap_servers=cluster.bootstrap) as producer:
        for number in range(count):
            await producer.send("exactly", b"%d" % number, partition=number % 4)
    for strategy in ("roundrobin", "cooperative-sticky"):
        read: Counter[bytes] = Counter()

        class Committing(RebalanceListener):
            def __init__(self, consumer: Consumer) -> None:
                self.consumer = consumer

            async def on_partitions_revoked(self, partitions: set[TopicPartition]) -> None:
                await self.consumer.commit()

        async def poll(consumer: Consumer) -> None:
            for records in (await consumer.getmany(timeout_ms=20, max_records=7)).values():
                read.update(record.value or b"" for record in records)  # noqa: B023

        members: list[Consumer] = []
        for _ in range(3):
            consumer = member(cluster, f"exactly-{strategy}", strategy)
            consumer.subscribe(["exactly"], listener=Committing(consumer))
            await consumer.start()
            members.append(consumer)
            await until(lambda: shared(4, *members), lambda: asyncio.gather(*map(poll, members)))  # noqa: B023
        await members.pop(0).stop()
        await until(lambda: len(read) == count, lambda: asyncio.gather(*map(poll, members)))  # noqa: B023
        while members:
            # A member that stops during a join may already be in a generation of which it has not heard: as with
            # Kafka's consumers, its listener's commit is refused then.
            await until(lambda: shared(4, *members), lambda: asyncio.gather(*map(poll, members)))  # noqa: B023
            await members.pop(0).stop()
        assert set(read.values()) == {1}


async def test_a_static_member_comes_back_to_its_partitions(cluster: RunningCluster) -> None:
    await create(cluster, "static", 4)
    kept_events = KeptEvents()
    other = member(cluster, "statics", group_instance_id="b")
    other.subscribe(["static"], listener=kept_events)

    def static() -> Consumer:
        made = member(cluster, "statics", group_instance_id="a")
        made.subscribe(["static"])
        return made

    async with other:
        async with static() as first:
            await until(lambda: shared(4, first, other))
            before = first.assignment()
            events = list(kept_events.events)
        async with static() as again:
            await until(lambda: again.assignment() == before)
        assert kept_events.events == events, "no other member noticed"


async def test_lag_is_what_may_still_be_read(cluster: RunningCluster) -> None:
    await create(cluster, "lagging", 1)
    here = TopicPartition("lagging", 0)
    options: dict[str, Any] = {"bootstrap_servers": cluster.bootstrap, "auto_offset_reset": "earliest"}
    async with (
        Consumer("lagging", **options) as all_of_it,
        Consumer("lagging", isolation_level="read_committed", **options) as committed,
        Producer(bootstrap_servers=cluster.bootstrap, transactional_id="lagging") as producer,
    ):
        assert await all_of_it.lag(here) == 0
        async with producer.transaction():
            for number in range(3):
                await producer.send("lagging", b"%d" % number)
            await producer.flush()
            assert (await all_of_it.lag(here), await committed.lag(here)) == (3, 0)
            await all_of_it.getone()
            assert await all_of_it.lag(here) == 2
        async with asyncio.timeout(60):
            while await committed.lag(here) != 4:  # with the marker, once that is written
                await asyncio.sleep(0.01)
        with pytest.raises(ValueError, match="other-0 is not assigned"):
            await all_of_it.lag(TopicPartition("other", 0))


async def test_topics_that_stay_away_are_named(cluster: RunningCluster) -> None:
    consumer = Consumer("no such name", bootstrap_servers=cluster.bootstrap, request_timeout_ms=300)
    with pytest.raises(KafkaError, match="no such name"):
        await consumer.start()
