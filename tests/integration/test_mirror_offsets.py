"""An application that reads, transforms and writes in transactions goes on at a mirror that was promoted at a cut after
its source was killed. Each record there was copied exactly once.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

import pytest

from ottla import Admin, Consumer, KafkaError, MirrorDescription, NewTopic, Producer, TopicPartition
from ottla.protocol.cluster.mirror_table import offsets_copy
from tests.cluster import PAUSE_S, RunningCluster, running_cluster
from tests.integration.mirroring import fault_of, records_of, until

pytestmark = pytest.mark.xdist_group("mirrors")

READ, WRITTEN, STUCK = "eo.read", "eo.written", "eo.stuck"
PARTITIONS = 2
GROUP, LATECOMER, LOCAL = "copier", "copier.late", "copier.local"
GONE_AFTER_MS = 20_000
PATIENT_MS = 60_000
WAIT_S = 120.0
PLACES = [TopicPartition(READ, index) for index in range(PARTITIONS)]


@dataclass
class Application:
    """An application that copies records between topics in transactions, which also commit its group's offsets."""

    bootstrap: str
    patience_ms: int = GONE_AFTER_MS
    commit_index: int = -1
    """Commit index of its newest transaction."""
    stopped: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        """Run until a stop, or until the cluster is gone."""
        with suppress(KafkaError):
            async with (
                Consumer(
                    READ,
                    bootstrap_servers=self.bootstrap,
                    group_id=GROUP,
                    isolation_level="read_committed",
                    auto_offset_reset="earliest",
                    enable_auto_commit=False,
                    request_timeout_ms=self.patience_ms // 2,
                ) as consumer,
                Producer(
                    bootstrap_servers=self.bootstrap,
                    transactional_id=GROUP,
                    linger_ms=0,
                    max_block_ms=self.patience_ms,
                    delivery_timeout_ms=self.patience_ms,
                    request_timeout_ms=self.patience_ms // 2,
                ) as producer,
            ):
                while not self.stopped.is_set():
                    await self.copy_some(consumer, producer)
                    await asyncio.sleep(PAUSE_S)

    async def copy_some(self, consumer: Consumer, producer: Producer) -> None:
        batch = await consumer.getmany(timeout_ms=200, max_records=20)
        if not batch:
            return
        transaction = await producer.begin()
        sent = [
            await producer.send(WRITTEN, record.value, partition=record.partition)
            for records in batch.values()
            for record in records
        ]
        await asyncio.gather(*sent)
        offsets = {place: records[-1].offset + 1 for place, records in batch.items()}
        await producer.send_offsets_to_transaction(offsets, consumer)
        self.commit_index = (await transaction.commit()).commit_index


@dataclass
class Writer:
    """A writer of the application's input, each value once."""

    bootstrap: str
    name: str
    count: int | None = None
    written: int = 0

    async def run(self) -> None:
        """Write until there are `count` values, or the cluster is gone."""
        with suppress(KafkaError):
            async with Producer(
                bootstrap_servers=self.bootstrap,
                max_block_ms=GONE_AFTER_MS,
                delivery_timeout_ms=GONE_AFTER_MS,
                request_timeout_ms=GONE_AFTER_MS // 2,
            ) as producer:
                for number in itertools.count():
                    if number == self.count:
                        return
                    value = b"%s %d" % (self.name.encode(), number)
                    await producer.send_and_wait(READ, value, partition=number % PARTITIONS)
                    self.written += 1
                    await asyncio.sleep(PAUSE_S)


@pytest.fixture
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    with running_cluster(tmp_path_factory.mktemp("source"), quorum=1, brokers=1) as cluster:
        yield cluster


@pytest.fixture
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    with running_cluster(tmp_path_factory.mktemp("target"), quorum=1, brokers=3) as cluster:
        yield cluster


async def create_topics(bootstrap: str) -> None:
    async with Admin(bootstrap_servers=bootstrap) as admin:
        topics = [NewTopic(topic, PARTITIONS) for topic in (READ, WRITTEN)]
        await admin.create_topics([*topics, NewTopic(STUCK, 1)])


async def values_of(bootstrap: str, topic: str) -> Counter[bytes]:
    """Return the values that a read-committed consumer finds."""
    found = await records_of(bootstrap, topic, "read_committed")
    return Counter(record[3] for records in found.values() for record in records)


async def cut_above(operator: Admin, cut: int) -> MirrorDescription:
    async def look() -> MirrorDescription | None:
        (mirror,) = await operator.describe_mirrors(["eo"])
        return mirror if mirror.cut is not None and mirror.cut.commit_index > cut else None

    found: MirrorDescription = await until(look, f"a cut above {cut}", WAIT_S)
    return found


async def committed(admin: Admin, group: str) -> dict[TopicPartition, int]:
    try:
        return await admin.committed_offsets(group)
    except KafkaError:
        return {}  # No place for offsets yet, or being moved.


async def has_committed(source: RunningCluster) -> bool:
    async with Admin(bootstrap_servers=source.bootstrap, request_timeout_ms=PATIENT_MS) as admin:
        return (await committed(admin, GROUP)).keys() == set(PLACES)


def kill(source: RunningCluster) -> None:
    for node in (*source.brokers, *source.quorum):
        node.kill9()


async def go_on_at(target: RunningCluster) -> None:
    """Restart the application at the target until it has copied everything."""
    writer = Writer(target.bootstrap, "here", 100)
    await writer.run()
    assert writer.written == writer.count
    application = Application(target.bootstrap, PATIENT_MS)
    running = asyncio.create_task(application.run())
    everything = await values_of(target.bootstrap, READ)

    async def is_level() -> bool:
        return sum((await values_of(target.bootstrap, WRITTEN)).values()) >= sum(everything.values())

    await until(is_level, "a copy of each record", WAIT_S)
    application.stopped.set()
    await running


async def check_exactly_once(target: RunningCluster) -> None:
    read, written = await values_of(target.bootstrap, READ), await values_of(target.bootstrap, WRITTEN)
    assert set(read.values()) == {1}
    lost, twice = read - written, written - read
    assert not lost, f"{len(lost)} of {len(read)} records were not copied, as {sorted(lost)[:5]}"
    assert not twice, f"{len(twice)} of {len(read)} records were copied twice, as {sorted(twice)[:5]}"


@pytest.mark.timeout(600)
async def test_an_application_copies_each_record_once_where_its_cluster_was_killed(
    source: RunningCluster, target: RunningCluster
) -> None:
    await create_topics(source.bootstrap)
    async with Admin(bootstrap_servers=target.bootstrap, request_timeout_ms=PATIENT_MS) as operator:
        await operator.create_mirror("eo", source=source.bootstrap, topics=r"eo\..*", groups="copier.*")
        writer, application = Writer(source.bootstrap, "there"), Application(source.bootstrap)
        tasks = [asyncio.create_task(program.run()) for program in (writer, application)]
        await until(lambda: has_committed(source), "offsets of all partitions", WAIT_S)
        await cut_above(operator, application.commit_index + 20)
        kill(source)
        application.stopped.set()
        promoted = await promote_while_a_broker_dies(operator, target)
        await asyncio.gather(*tasks)
    assert promoted.is_promoted_at_cut
    await go_on_at(target)
    await check_exactly_once(target)


@pytest.mark.timeout(600)
async def test_offsets_that_are_ahead_of_the_cut_are_set_back(
    source: RunningCluster, target: RunningCluster
) -> None:
    await create_topics(source.bootstrap)
    await write_stuck(source.bootstrap)
    async with (
        Admin(bootstrap_servers=source.bootstrap, request_timeout_ms=PATIENT_MS) as admin,
        Admin(bootstrap_servers=target.bootstrap, request_timeout_ms=PATIENT_MS) as operator,
    ):
        await operator.create_mirror("eo", source=source.bootstrap, topics=r"eo\..*", groups="copier.*")
        application = Application(source.bootstrap)
        tasks = [
            asyncio.create_task(program.run()) for program in (Writer(source.bootstrap, "there"), application)
        ]
        await until(lambda: has_committed(source), "offsets of all partitions", WAIT_S)
        await cut_above(operator, application.commit_index)
        await stop_rounds(admin, operator, source)
        await admin.alter_offsets(LATECOMER, {PLACES[0]: 1})
        later = await goes_on(admin)

        async def are_ahead() -> bool:
            here, late = await committed(operator, GROUP), await committed(operator, LATECOMER)
            return bool(late) and all(here.get(place, -1) >= offset for place, offset in later.items())

        await until(are_ahead, "offsets that were committed after the cut", WAIT_S)
        await operator.alter_offsets(LOCAL, {PLACES[0]: 1})
        kill(source)
        application.stopped.set()
        assert (await operator.promote_mirror("eo", at_cut=True)).is_promoted_at_cut
        await asyncio.gather(*tasks)
        here = await operator.committed_offsets(GROUP)
        assert here.keys() == later.keys()
        assert all(here[place] < offset for place, offset in later.items())
        assert await operator.committed_offsets(LATECOMER) == {}
        assert await operator.committed_offsets(LOCAL) == {PLACES[0]: 1}

        async def is_gone() -> bool:
            return offsets_copy("eo") not in await operator.list_topics()

        await until(is_gone, "the end of the copy of offsets", WAIT_S)
    await go_on_at(target)
    await check_exactly_once(target)


async def goes_on(admin: Admin) -> dict[TopicPartition, int]:
    """Return the group's committed offsets once they have advanced in all partitions."""
    before = await admin.committed_offsets(GROUP)

    async def look() -> dict[TopicPartition, int]:
        now = await admin.committed_offsets(GROUP)
        return now if all(now.get(place, -1) > offset for place, offset in before.items()) else {}

    later: dict[TopicPartition, int] = await until(look, "the application goes on", WAIT_S)
    return later


async def stop_rounds(admin: Admin, operator: Admin, source: RunningCluster) -> None:
    """Give copies faults, so that they reach no cut; other copies and offsets go on."""
    await operator.pause_mirror("eo")
    await write_stuck(source.bootstrap)
    await admin.delete_records({TopicPartition(STUCK, 0): 15})
    await operator.resume_mirror("eo")
    await fault_of(operator, "eo", STUCK)


async def write_stuck(bootstrap: str) -> None:
    async with Producer(bootstrap_servers=bootstrap) as producer:
        for number in range(10):
            await producer.send_and_wait(STUCK, b"%d" % number)


async def promote_while_a_broker_dies(operator: Admin, target: RunningCluster) -> MirrorDescription:
    """Promote the mirror, and kill a broker that leads some of the copies and coordinates some of the groups."""
    leader = await asyncio.to_thread(target.leader, READ, 0)
    assert leader is not None
    victim = target.broker(leader)

    def strike(_: MirrorDescription) -> None:
        if victim.alive:
            victim.kill9()

    return await operator.promote_mirror("eo", at_cut=True, progress=strike)
