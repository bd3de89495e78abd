"""Ottla copies a running Apache Kafka, is promoted, and its clients go on: the migration path."""

from __future__ import annotations

import asyncio
import uuid

import pytest

from benchmarks.clusters import Cluster
from ottla import Admin, NewTopic, Producer, TopicPartition
from ottla.protocol.cluster.mirror_table import FaultKind
from tests.compat.reading import eventually
from tests.integration.mirroring import ends_of, fault_of, is_level, records_of, until


def new_name(what: str) -> str:
    return f"{what}-{uuid.uuid4().hex[:8]}"


@pytest.fixture(params=["kafka", "old_kafka"])
def source(request: pytest.FixtureRequest) -> Cluster:
    """Run Apache Kafka, of today and of 2021."""
    cluster: Cluster = request.getfixturevalue(request.param)
    return cluster


async def test_kafka_is_copied_while_it_is_killed_and_ottla_takes_over(
    source: Cluster, ours: Cluster
) -> None:
    """The source has idempotent, transactional and compacted topics, a group's committed offsets, and an open
    transaction.
    """
    kafka, name = source, new_name("in")
    plain, exact, compacted = (f"{name}.{kind}" for kind in ("plain", "exact", "compacted"))
    async with Admin(bootstrap_servers=kafka.bootstrap) as admin:
        safe = {"flush.messages": "1"}  # There is no other replica that a killed broker could learn it from.
        await admin.create_topics(
            [
                NewTopic(plain, 3, configs=safe),
                NewTopic(exact, 2, configs=safe),
                NewTopic(compacted, 1, configs=safe | {"cleanup.policy": "compact"}),
            ]
        )
    async with Admin(bootstrap_servers=ours.bootstrap) as operator:
        await operator.create_mirror(name, source=kafka.bootstrap, topics=rf"{name}\..*", groups=name)
        written = await _write(kafka, plain, exact, compacted)
        async with Admin(bootstrap_servers=kafka.bootstrap) as admin:
            wanted = {TopicPartition(plain, 0): 40, TopicPartition(exact, 1): 3}
            await admin.alter_offsets(name, wanted)
        open_one = Producer(bootstrap_servers=kafka.bootstrap, transactional_id=f"{name}-open")
        async with open_one, open_one.transaction():
            await (await open_one.send(exact, b"open", partition=0))
            await until(
                lambda: is_level(kafka.bootstrap, ours.bootstrap, plain, exact, compacted), "the copies"
            )
            for topic in (plain, exact, compacted):
                assert await records_of(ours.bootstrap, topic) == await records_of(kafka.bootstrap, topic)
            committed = await records_of(kafka.bootstrap, exact, "read_committed")
            assert await records_of(ours.bootstrap, exact, "read_committed") == committed

            async def followed() -> bool:
                async with Admin(bootstrap_servers=ours.bootstrap) as here:
                    return await here.committed_offsets(name) == wanted

            await until(followed, "the offsets of the group")
            await operator.promote_mirror(name)
            await _write(ours, plain, exact, compacted, kills=False)
        after = await records_of(ours.bootstrap, exact, "read_committed")
        assert all(some[: len(committed[index])] == committed[index] for index, some in after.items())
        assert all(record[3] != b"open" for some in after.values() for record in some)
        assert sum(map(len, after.values())) == 2 * sum(map(len, committed.values()))
        assert written > 0


async def _write(cluster: Cluster, plain: str, exact: str, compacted: str, *, kills: bool = True) -> int:
    """Write equally much to each topic; in the middle the broker is killed, and comes back."""
    count = 0
    async with (
        Producer(bootstrap_servers=cluster.bootstrap) as producer,
        Producer(bootstrap_servers=cluster.bootstrap, transactional_id=f"{exact}-writer") as writer,
    ):
        for number in range(300):
            await producer.send(plain, b"%d" % number, partition=number % 3)
            await producer.send(compacted, b"%d" % number, key=b"k%d" % (number % 5))
            count += 2
            if number % 30 == 0:
                try:
                    async with writer.transaction():
                        for index in range(2):
                            await writer.send(exact, b"%d" % number, partition=index)
                        if number % 90 == 60:
                            raise ArithmeticError
                except ArithmeticError:
                    continue
            if number == 150 and kills:
                await asyncio.to_thread(cluster.kill, cluster.brokers[0])
                await asyncio.to_thread(cluster.restart, cluster.brokers[0])
    return count


async def test_records_that_kafka_has_dropped_are_told(kafka: Cluster, ours: Cluster) -> None:
    name = new_name("gap")
    place = TopicPartition(name, 0)
    async with (
        Admin(bootstrap_servers=kafka.bootstrap) as admin,
        Producer(bootstrap_servers=kafka.bootstrap) as producer,
        Admin(bootstrap_servers=ours.bootstrap) as operator,
    ):
        await admin.create_topics([NewTopic(name, 1)])
        sent = [await producer.send(name, b"%d" % number) for number in range(20)]
        await eventually(lambda: all(delivery.done() for delivery in sent), "acknowledgements")
        await operator.create_mirror(name, source=kafka.bootstrap, topics=name)
        await until(lambda: is_level(kafka.bootstrap, ours.bootstrap, name), "the copy")
        await operator.pause_mirror(name)
        for number in range(20, 40):
            await (await producer.send(name, b"%d" % number))
        await admin.delete_records({place: 30})
        await operator.resume_mirror(name)
        fault = await fault_of(operator, name, name)
        assert (fault.kind, fault.first, fault.end) == (FaultKind.GAP, 20, 30)
        assert await ends_of(ours.bootstrap, name) == {0: 20}
        await operator.resume_mirror(name, accept_gap=True)
        await until(lambda: is_level(kafka.bootstrap, ours.bootstrap, name), "the rest")
        offsets = [record[0] for record in (await records_of(ours.bootstrap, name))[0]]
        assert offsets == [*range(30, 40)]  # what the source has dropped goes here, too


async def test_a_topic_that_kafka_made_anew_is_not_mixed_in(kafka: Cluster, ours: Cluster) -> None:
    name = new_name("anew")
    async with (
        Admin(bootstrap_servers=kafka.bootstrap) as admin,
        Admin(bootstrap_servers=ours.bootstrap) as operator,
    ):
        for values in (b"old", b"new"):
            await admin.create_topics([NewTopic(name, 1)])
            async with Producer(bootstrap_servers=kafka.bootstrap) as producer:
                for _ in range(10 if values == b"old" else 30):
                    await producer.send(name, values)
            if values == b"old":
                await operator.create_mirror(name, source=kafka.bootstrap, topics=name)
                await until(lambda: is_level(kafka.bootstrap, ours.bootstrap, name), "the copy")
                await admin.delete_topics([name])
        fault = await fault_of(operator, name, name)
        assert fault.kind == FaultKind.MADE_ANEW
        assert {record[3] for record in (await records_of(ours.bootstrap, name))[0]} == {b"old"}
        await operator.resume_mirror(name, accept_gap=True)
        await until(lambda: is_level(kafka.bootstrap, ours.bootstrap, name), "the new one")
        assert {record[3] for record in (await records_of(ours.bootstrap, name))[0]} == {b"new"}
