"""A cluster copies the topics of another at equal offsets, without silent losses, until it is promoted."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer as StockConsumer

from ottla import Admin, KafkaError, NewTopic, Producer, TopicPartition
from ottla.client.connections.cluster import Cluster
from ottla.protocol.cluster.mirror_table import FaultKind
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.testing import LocalCluster
from tests.cluster import PAUSE_S, RunningCluster, running_cluster, wait_until
from tests.integration.mirroring import ends_of, fault_of, is_level, records_of, until

pytestmark = pytest.mark.xdist_group("mirrors")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    with running_cluster(tmp_path_factory.mktemp("source"), quorum=1, brokers=3) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    with running_cluster(tmp_path_factory.mktemp("target"), quorum=1, brokers=3) as cluster:
        yield cluster


async def create(bootstrap: str, name: str, partitions: int = 1, **configs: str) -> None:
    settings = {key.replace("_", "."): value for key, value in configs.items()}
    async with Admin(bootstrap_servers=bootstrap) as admin:
        await admin.create_topics([NewTopic(name, partitions, 3, configs=settings)])


async def write(bootstrap: str, topic: str, count: int, first: int = 0) -> None:
    async with Producer(bootstrap_servers=bootstrap) as producer:
        for number in range(first, first + count):
            key, value = b"k%d" % (number % 7), b"v%d" % number
            await producer.send(topic, value, key=key, headers=[("number", b"%d" % number)])


async def test_a_copy_has_the_same_records_at_the_same_offsets(
    source: RunningCluster, target: RunningCluster
) -> None:
    await create(source.bootstrap, "same.plain", 3, retention_ms="7200000")
    await create(source.bootstrap, "same.compacted", cleanup_policy="compact")
    await create(source.bootstrap, "same.exact", 2)
    await write(source.bootstrap, "same.plain", 2000)
    await write(source.bootstrap, "same.compacted", 200)
    async with Admin(bootstrap_servers=target.bootstrap) as operator:
        await operator.create_mirror("same", source=source.bootstrap, topics=r"same\..*")
        async with Producer(bootstrap_servers=source.bootstrap, transactional_id="same") as producer:
            for number in range(6):
                try:
                    async with producer.transaction():
                        for index in range(2):
                            await producer.send("same.exact", b"%d" % number, partition=index)
                        if number % 3 == 2:
                            raise RuntimeError("this one is aborted")
                except RuntimeError:
                    pass
        topics = ("same.plain", "same.compacted", "same.exact")
        await until(lambda: is_level(source.bootstrap, target.bootstrap, *topics), "copies of all records")
        for topic in topics:
            theirs, ours = [await records_of(cluster.bootstrap, topic) for cluster in (source, target)]
            assert ours == theirs
        committed = await records_of(target.bootstrap, "same.exact", "read_committed")
        assert committed == await records_of(source.bootstrap, "same.exact", "read_committed")
        assert [record[3] for record in committed[0]] == [b"0", b"1", b"3", b"4"]
    async with (
        Admin(bootstrap_servers=source.bootstrap) as theirs_,
        Admin(bootstrap_servers=target.bootstrap) as ours_,
    ):
        (there,), (here,) = (
            await theirs_.describe_topics(["same.plain"]),
            await ours_.describe_topics(["same.plain"]),
        )
        assert here.id == there.id
        settings = {config.name: config.value for config in await ours_.describe_configs(2, "same.plain")}
        assert settings["retention.ms"] == "7200000"
        await theirs_.create_partitions("same.plain", 5)

        async def has_grown() -> bool:
            (info,) = await ours_.describe_topics(["same.plain"])
            return len(info.partitions) == 5

        await until(has_grown, "more partitions")


async def test_nobody_writes_to_a_copy(source: RunningCluster, target: RunningCluster) -> None:
    await create(source.bootstrap, "closed")
    await write(source.bootstrap, "closed", 10)
    async with Admin(bootstrap_servers=target.bootstrap) as operator:
        await operator.create_mirror("closed", source=source.bootstrap, topics="closed")
        await until(lambda: is_level(source.bootstrap, target.bootstrap, "closed"), "the copy")
    async with Producer(bootstrap_servers=target.bootstrap) as producer:
        with pytest.raises(KafkaError, match="copy of mirror closed") as refusal:
            await (await producer.send("closed", b"mine"))
        assert refusal.value.code is ErrorCode.POLICY_VIOLATION
    async with Producer(bootstrap_servers=target.bootstrap, transactional_id="closed") as producer:
        with pytest.raises(KafkaError):
            async with producer.transaction():
                await (await producer.send("closed", b"mine"))
    async with Admin(bootstrap_servers=target.bootstrap) as admin:
        place = TopicPartition("closed", 0)
        trimmed = (await admin.delete_records({place: 5}))[place]
        assert isinstance(trimmed, KafkaError)
        assert trimmed.code is ErrorCode.POLICY_VIOLATION
        for change in (admin.create_partitions("closed", 4), admin.delete_topics(["closed"])):
            with pytest.raises(KafkaError) as refusal:
                await change
            assert refusal.value.code is ErrorCode.POLICY_VIOLATION
    assert await ends_of(target.bootstrap, "closed") == {0: 10}


async def test_a_promoted_copy_takes_records_and_ends_what_was_open(
    source: RunningCluster, target: RunningCluster
) -> None:
    """No producer of the target could end a transaction that is open at the source.

    Producers of both clusters may have equal ids, since both clusters assign the same first ids.
    """
    await create(source.bootstrap, "promoted", 2)
    async with (
        Admin(bootstrap_servers=target.bootstrap) as operator,
        Producer(bootstrap_servers=target.bootstrap) as early,
        Producer(bootstrap_servers=source.bootstrap, transactional_id="open") as theirs,
    ):
        await create(target.bootstrap, "elsewhere")
        await (await early.send("elsewhere", b"has its id"))
        await write(source.bootstrap, "promoted", 100)
        async with theirs.transaction():
            await (await theirs.send("promoted", b"open", partition=0))
            await operator.create_mirror("promoted", source=source.bootstrap, topics="promoted")
            await until(lambda: is_level(source.bootstrap, target.bootstrap, "promoted"), "the copy")
            copied = await ends_of(target.bootstrap, "promoted")
            await operator.promote_mirror("promoted")
            places = [
                await (await early.send("promoted", b"ours %d" % number, partition=number % 2))
                for number in range(20)
            ]
        assert [place.offset for place in places if place.partition == 1] == list(
            range(copied[1], copied[1] + 10)
        )
        seen = await records_of(target.bootstrap, "promoted", "read_committed")
        values = [record[3] for record in seen[0]]
        assert b"open" not in values
        assert values[-10:] == [b"ours %d" % number for number in range(0, 20, 2)]
        async with (
            Producer(bootstrap_servers=target.bootstrap, transactional_id="here") as producer,
            producer.transaction(),
        ):
            for index in range(2):
                await producer.send("promoted", b"exactly once", partition=index)
        seen = await records_of(target.bootstrap, "promoted", "read_committed")
        assert [some[-1][3] for some in seen.values()] == [b"exactly once"] * 2
        await write(source.bootstrap, "promoted", 10)  # no longer copied
        assert await ends_of(target.bootstrap, "promoted") != await ends_of(source.bootstrap, "promoted")


async def has_groups(cluster: RunningCluster) -> bool:
    """Return whether the offsets topic exists; a request about a group would create it."""
    async with Cluster(cluster.bootstrap) as asked:
        metadata = await asked.ask_any(MetadataRequest(topics=None, allow_auto_topic_creation=False))
    return "__consumer_offsets" in {topic.name for topic in metadata.topics}


async def test_consumers_that_move_go_on_where_they_were(
    source: RunningCluster, target: RunningCluster
) -> None:
    await create(source.bootstrap, "moving", 2)
    await write(source.bootstrap, "moving", 500)

    def consume(bootstrap: str, count: int) -> list[int]:
        consumer = StockConsumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "movers",
                "auto.offset.reset": "error",
                "enable.auto.commit": False,
            }
        )
        consumer.subscribe(["moving"])
        numbers: list[int] = []
        while len(numbers) < count:
            message = consumer.poll(60)
            assert message is not None
            assert message.error() is None, message.error()
            numbers.append(int((message.value() or b"")[1:]))
        consumer.commit(asynchronous=False)
        consumer.close()
        return numbers

    async with Admin(bootstrap_servers=source.bootstrap) as admin:
        await admin.alter_offsets("movers", {TopicPartition("moving", index): 0 for index in range(2)})
    first = await asyncio.to_thread(consume, source.bootstrap, 200)
    async with Admin(bootstrap_servers=target.bootstrap) as operator:
        await operator.create_mirror("moving", source=source.bootstrap, topics="moving", groups="mov.*")
        await until(lambda: is_level(source.bootstrap, target.bootstrap, "moving"), "the copy")
        async with Admin(bootstrap_servers=source.bootstrap) as theirs:
            wanted = await theirs.committed_offsets("movers")

        await until(lambda: has_groups(target), "a place for offsets")

        async def has_followed() -> bool:
            return await operator.committed_offsets("movers") == wanted

        await until(has_followed, "the offsets of the group")
        await operator.promote_mirror("moving")
    rest = await asyncio.to_thread(consume, target.bootstrap, 300)
    assert sorted(first + rest) == list(range(500))


async def test_what_the_source_has_dropped_is_told_and_not_passed_over(
    source: RunningCluster, target: RunningCluster
) -> None:
    await create(source.bootstrap, "dropped")
    await write(source.bootstrap, "dropped", 50)
    async with Admin(bootstrap_servers=target.bootstrap) as operator:
        await operator.create_mirror("dropped", source=source.bootstrap, topics="dropped")
        await until(lambda: is_level(source.bootstrap, target.bootstrap, "dropped"), "the copy")
        await operator.pause_mirror("dropped")
        await write(source.bootstrap, "dropped", 50, 50)
        async with Admin(bootstrap_servers=source.bootstrap) as admin:
            await admin.delete_records({TopicPartition("dropped", 0): 80})
        await operator.resume_mirror("dropped")
        fault = await fault_of(operator, "dropped", "dropped")
        assert (fault.kind, fault.first, fault.end) == (FaultKind.GAP, 50, 80)
        await write(source.bootstrap, "dropped", 10, 100)
        assert await ends_of(target.bootstrap, "dropped") == {0: 50}
        await operator.resume_mirror("dropped", accept_gap=True)
        await until(lambda: is_level(source.bootstrap, target.bootstrap, "dropped"), "the rest")
        ours, theirs = [await records_of(cluster.bootstrap, "dropped") for cluster in (target, source)]
        assert [record for record in ours[0] if record[0] >= 80] == theirs[0]


async def test_a_topic_that_is_made_anew_is_told_and_not_mixed_in(
    source: RunningCluster, target: RunningCluster
) -> None:
    await create(source.bootstrap, "anew")
    await write(source.bootstrap, "anew", 30)
    async with (
        Admin(bootstrap_servers=target.bootstrap) as operator,
        Admin(bootstrap_servers=source.bootstrap) as admin,
    ):
        await operator.create_mirror("anew", source=source.bootstrap, topics="anew")
        await until(lambda: is_level(source.bootstrap, target.bootstrap, "anew"), "the copy")
        before = await records_of(target.bootstrap, "anew")
        await admin.delete_topics(["anew"])
        await create(source.bootstrap, "anew")
        await write(source.bootstrap, "anew", 40, 1000)
        fault = await fault_of(operator, "anew", "anew")
        assert fault.kind == FaultKind.MADE_ANEW
        assert await records_of(target.bootstrap, "anew") == before
        await operator.alter_offsets("reads-anew", {TopicPartition("anew", 0): 20})
        await operator.resume_mirror("anew", accept_gap=True, topics=["anew"])
        await until(lambda: is_level(source.bootstrap, target.bootstrap, "anew"), "the new one")
        assert await records_of(target.bootstrap, "anew") == await records_of(source.bootstrap, "anew")

        async def has_no_offsets() -> bool:
            return not await operator.committed_offsets("reads-anew")

        await until(has_no_offsets, "the end of offsets in the former log")


async def test_records_that_the_source_has_lost_are_told_and_kept_until_a_person_decides(
    source: RunningCluster, target: RunningCluster
) -> None:
    """The new leader of the source lacks copied records after an unclean election, and has others at their offsets."""
    async with Admin(bootstrap_servers=source.bootstrap) as admin:
        rules = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
        await admin.create_topics([NewTopic("diverged", assignments={0: [1, 2]}, configs=rules)])
    await write(source.bootstrap, "diverged", 20)
    first, second = source.broker(1), source.broker(2)
    async with Admin(bootstrap_servers=target.bootstrap) as operator:
        await operator.create_mirror("diverged", source=source.bootstrap, topics="diverged")
        await until(lambda: is_level(source.bootstrap, target.bootstrap, "diverged"), "the copy")
        second.kill9()
        await asyncio.to_thread(wait_until, lambda: source.leader("diverged", 0) == 1, "broker 1 leads")
        await write(source.bootstrap, "diverged", 10, 20)
        await until(
            lambda: is_level(source.bootstrap, target.bootstrap, "diverged"),
            "the records that only broker 1 has",
        )
        first.kill9()
        await asyncio.to_thread(second.restart)
        await asyncio.to_thread(wait_until, lambda: source.leader("diverged", 0) == 2, "broker 2 leads")
        await write(source.bootstrap, "diverged", 15, 1000)
        fault = await fault_of(operator, "diverged", "diverged")
        assert (fault.kind, fault.first, fault.end) == (FaultKind.DIVERGED, 20, 30)
        kept = (await records_of(target.bootstrap, "diverged"))[0]
        assert [record[3] for record in kept] == [b"v%d" % number for number in range(30)]
        await operator.resume_mirror("diverged", accept_gap=True)
        await until(lambda: is_level(source.bootstrap, target.bootstrap, "diverged"), "the records of now")
        ours, theirs = [await records_of(cluster.bootstrap, "diverged") for cluster in (target, source)]
        assert ours == theirs
        assert [record[3] for record in ours[0][20:]] == [b"v%d" % number for number in range(1000, 1015)]
        await asyncio.to_thread(first.restart)
        await asyncio.to_thread(source.wait_until_in_sync, "diverged")
        await asyncio.to_thread(target.wait_until_in_sync, "diverged")


async def test_copies_begin_at_the_end_or_at_a_time(source: RunningCluster, target: RunningCluster) -> None:
    await create(source.bootstrap, "begins")
    async with Producer(bootstrap_servers=source.bootstrap) as producer:
        for number in range(100):
            await producer.send("begins", b"%d" % number, timestamp_ms=1_000_000 + number)
    async with Admin(bootstrap_servers=target.bootstrap) as operator:
        await operator.create_mirror("begins", source=source.bootstrap, topics="begins", start=1_000_060)
        await until(lambda: is_level(source.bootstrap, target.bootstrap, "begins"), "the copy")
        numbers = [int(record[3]) for record in (await records_of(target.bootstrap, "begins"))[0]]
        # A batch is copied as a whole, from the one on that holds the record.
        assert numbers == list(range(numbers[0], 100))
        assert numbers[0] <= 60


async def test_a_limit_of_bandwidth_holds_until_it_is_lifted(
    source: RunningCluster, target: RunningCluster
) -> None:
    """Each broker uses the rate, with an initial burst, and one excess batch from each broker of the source.

    A slow machine copies less.
    """
    rate, burst_s, batch_bytes, count, brokers = 100_000, 0.2, 20_000, 300, 3
    await create(source.bootstrap, "limited", 3)
    async with Producer(bootstrap_servers=source.bootstrap) as producer:
        for number in range(count):
            await producer.send("limited", random.randbytes(batch_bytes), partition=number % 3)
            await producer.flush()

    async def copied() -> int:
        return sum((await ends_of(target.bootstrap, "limited")).values())

    async with Admin(bootstrap_servers=target.bootstrap) as operator:
        began = time.monotonic()
        await operator.create_mirror("limited", source=source.bootstrap, topics="limited", bandwidth=rate)
        (mirror,) = await operator.describe_mirrors(["limited"])
        assert mirror.bandwidth == rate
        while time.monotonic() < began + 5:
            seen = await copied()
            taken_s = time.monotonic() - began + burst_s
            most = brokers * (rate * taken_s + 2 * brokers * batch_bytes)
            assert seen * batch_bytes <= most, f"{seen} records after {taken_s:.1f} s"
            await asyncio.sleep(0.1)
        await until(copied, "some records")
        await operator.limit_mirror("limited", 0)
        await until(lambda: is_level(source.bootstrap, target.bootstrap, "limited"), "the rest")


def contents_of(path: str) -> str:
    return Path(path).read_text()


async def test_a_source_is_reached_by_tls_and_a_password_that_nobody_can_read(target: RunningCluster) -> None:
    async with (
        LocalCluster(brokers=1, quorum_nodes=1, security="sasl_ssl") as secured,
        Admin(bootstrap_servers=target.bootstrap) as operator,
        Producer(**secured.client_options) as producer,
    ):
        await (await producer.send("secured", b"kept"))
        options = {name: str(value) for name, value in secured.client_options.items()}
        bootstrap = options.pop("bootstrap_servers")
        with pytest.raises(KafkaError, match=r"below mirror\.allowed\.paths alone"):
            await operator.create_mirror("secured", source=bootstrap, topics="secured", options=options)
        options["ssl_cadata"] = contents_of(options.pop("ssl_cafile"))
        password = options["sasl_plain_password"]
        wrong = options | {"sasl_plain_password": "not this one"}
        with pytest.raises(KafkaError) as refusal:
            await operator.create_mirror("secured", source=bootstrap, topics="secured", options=wrong)
        assert "The reason is in the log of broker" in str(refusal.value)
        assert "not this one" not in str(refusal.value)
        await operator.create_mirror("secured", source=bootstrap, topics="secured", options=options)

        async def is_copied() -> bool:
            return await ends_of(target.bootstrap, "secured") == {0: 1}

        await until(is_copied, "the copy")
        (mirror,) = await operator.describe_mirrors(["secured"])
        assert password not in repr(dict(mirror.options))
        assert not mirror.troubles
        for node in (*target.brokers, *target.quorum):
            assert password not in node.log()
        await operator.reconnect_mirror("secured", options=options)
        await (await producer.send("secured", b"after it was reached anew"))

        async def goes_on() -> bool:
            return await ends_of(target.bootstrap, "secured") == {0: 2}

        await until(goes_on, "the copy goes on")


async def test_kills_on_both_sides_lose_and_change_nothing(
    source: RunningCluster, target: RunningCluster
) -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    chance = random.Random(seed)
    await create(source.bootstrap, "killed", 3)
    stop = asyncio.Event()
    written = itertools.count()

    async def load() -> None:
        async with (
            Producer(bootstrap_servers=source.bootstrap) as plain,
            Producer(bootstrap_servers=source.bootstrap, transactional_id=f"killed {seed}") as exact,
        ):
            while not stop.is_set():
                await plain.send("killed", b"plain %d" % next(written))
                if chance.random() < 0.1:
                    async with exact.transaction():
                        for index in range(3):
                            await exact.send("killed", b"exact %d" % next(written), partition=index)
                await asyncio.sleep(PAUSE_S)

    async with Admin(bootstrap_servers=target.bootstrap) as operator:
        await operator.create_mirror("killed", source=source.bootstrap, topics="killed")
        writing = asyncio.create_task(load())
        try:
            for _ in range(4):
                cluster = chance.choice([source, target])
                node = chance.choice(cluster.brokers)
                await asyncio.sleep(chance.uniform(0.5, 1.5))
                node.kill9()
                await asyncio.sleep(chance.uniform(0.2, 1.5))
                await asyncio.to_thread(node.restart)
                await asyncio.to_thread(cluster.wait_until_in_sync, "killed")
        finally:
            stop.set()
            await writing
        await until(lambda: is_level(source.bootstrap, target.bootstrap, "killed"), f"the rest (seed {seed})")
        for isolation in ("read_uncommitted", "read_committed"):
            theirs, ours = [
                await records_of(side.bootstrap, "killed", isolation) for side in (source, target)
            ]
            assert ours == theirs, f"seed {seed}"
        (described,) = await operator.describe_mirrors(["killed"])
        assert not [topic.faults for topic in described.topics if topic.faults]
