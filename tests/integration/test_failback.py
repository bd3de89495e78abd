"""A mirrored cluster comes back as the copy of its copy; no record is lost silently."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from ottla import Admin, ErrorCode, KafkaError, NewTopic, Producer, TopicPartition
from ottla.protocol.cluster.mirror_table import FaultKind
from tests.cluster import RunningCluster, running_cluster, wait_until
from tests.integration.mirroring import ends_of, fault_of, is_level, records_of, until

pytestmark = pytest.mark.xdist_group("failback")


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    """Run the cluster that clients use at first."""
    with running_cluster(tmp_path_factory.mktemp("first"), quorum=1, brokers=3) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def second(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    """Run the cluster that takes over."""
    with running_cluster(tmp_path_factory.mktemp("second"), quorum=1, brokers=3) as cluster:
        yield cluster


async def create(bootstrap: str, name: str, partitions: int = 1, replicas: int = 3) -> None:
    async with Admin(bootstrap_servers=bootstrap) as admin:
        await admin.create_topics([NewTopic(name, partitions, replicas)])


async def write(bootstrap: str, topic: str, count: int, what: str, partition: int | None = None) -> None:
    async with Producer(bootstrap_servers=bootstrap) as producer:
        for number in range(count):
            await producer.send(topic, f"{what} {number}".encode(), partition=partition)


async def mirrored_and_promoted(source: RunningCluster, target: RunningCluster, topic: str) -> None:
    """Copy a topic, and promote the copy, which takes records then."""
    async with Admin(bootstrap_servers=target.bootstrap) as operator:
        await operator.create_mirror(topic, source=source.bootstrap, topics=topic)
        await until(lambda: is_level(source.bootstrap, target.bootstrap, topic), "the copy")
        await operator.promote_mirror(topic)


async def assert_equal(first: RunningCluster, other: RunningCluster, topic: str) -> None:
    for isolation in ("read_uncommitted", "read_committed"):
        theirs, ours = [await records_of(cluster.bootstrap, topic, isolation) for cluster in (first, other)]
        assert ours == theirs


async def test_a_cluster_that_comes_back_under_load_becomes_the_copy_and_takes_over_again(
    first: RunningCluster, second: RunningCluster
) -> None:
    await create(first.bootstrap, "round", 3)
    stop = asyncio.Event()

    async def load() -> None:
        async with (
            Producer(
                bootstrap_servers=first.bootstrap, request_timeout_ms=2000, delivery_timeout_ms=4000
            ) as plain,
            Producer(bootstrap_servers=first.bootstrap, transactional_id="round") as exact,
        ):
            number = 0
            while not stop.is_set():
                await plain.send("round", b"plain %d" % number)
                if number % 10 == 0:
                    async with exact.transaction():
                        for index in range(3):
                            await exact.send("round", b"exact %d" % number, partition=index)
                number += 1
                await asyncio.sleep(0.002)

    async with Admin(bootstrap_servers=second.bootstrap) as operator:
        await operator.create_mirror("round", source=first.bootstrap, topics="round", groups="round.*")
        writing = asyncio.create_task(load())

        async def has_many() -> bool:
            return sum((await ends_of(second.bootstrap, "round")).values()) > 500

        await until(has_many, "some records")
        async with Admin(bootstrap_servers=first.bootstrap) as admin:
            await admin.alter_offsets("round", {TopicPartition("round", index): 5 for index in range(3)})
        await operator.pause_mirror("round")  # gives the first cluster additional records
        await write(first.bootstrap, "round", 60, "only here")
        for node in first.brokers:
            node.kill9()
        stop.set()
        writing.cancel()
        await asyncio.wait([writing])
        await operator.promote_mirror("round")
    promoted = await ends_of(second.bootstrap, "round")
    await write(second.bootstrap, "round", 90, "at the second")
    async with (
        Producer(bootstrap_servers=second.bootstrap, transactional_id="round") as producer,
        producer.transaction(),
    ):
        for index in range(3):
            await producer.send("round", b"whole", partition=index)
    for node in first.brokers:
        await asyncio.to_thread(node.restart)
    await asyncio.to_thread(first.wait_until_in_sync, "round")
    async with Admin(bootstrap_servers=first.bootstrap) as operator:
        failback = await operator.failback_mirror(
            "back", source=second.bootstrap, topics="round", validate_only=True
        )
        assert failback.lost >= 60
        (topic,) = failback.topics
        assert {partition.partition for partition in topic.partitions} == {0, 1, 2}
        for partition in topic.partitions:
            # The promotion at the second cluster begins with aborts: these are after the common offset.
            assert partition.common_offset <= promoted[partition.partition]
            assert partition.lost == partition.log_end_offset - partition.common_offset
        with pytest.raises(KafkaError) as refusal:
            await operator.failback_mirror("back", source=second.bootstrap, topics="round")
        assert refusal.value.code is ErrorCode.POLICY_VIOLATION
        assert f"{failback.lost:,} records" in refusal.value.message
        for partition in topic.partitions:
            assert (f"round-{partition.partition} {partition.lost} (" in refusal.value.message) == (
                partition.lost > 0
            )
        assert await operator.describe_mirrors() == []
        done = await operator.failback_mirror(
            "back", source=second.bootstrap, topics="round", groups="round.*", discard=True
        )
        assert done.lost == failback.lost
        with pytest.raises(KafkaError, match="ottla mirror status back") as again:  # as after a lost answer
            await operator.failback_mirror("back", source=second.bootstrap, topics="round", discard=True)
        assert again.value.code is ErrorCode.DUPLICATE_RESOURCE
        await until(lambda: is_level(second.bootstrap, first.bootstrap, "round"), "the copy of the second")
        await assert_equal(second, first, "round")
        async with Producer(bootstrap_servers=first.bootstrap) as producer:
            with pytest.raises(KafkaError, match="copy of mirror back"):
                await (await producer.send("round", b"mine"))
        async with Admin(bootstrap_servers=second.bootstrap) as theirs:
            await theirs.alter_offsets("round", {TopicPartition("round", index): 7 for index in range(3)})
            wanted = await theirs.committed_offsets("round")

        async def has_followed() -> bool:
            return await operator.committed_offsets("round") == wanted

        await until(has_followed, "the offsets of the group")
        # And forth: the first cluster takes over again, and the second follows it.
        await operator.promote_mirror("back")
    await write(first.bootstrap, "round", 30, "at the first again")
    async with Admin(bootstrap_servers=second.bootstrap) as operator:
        failback = await operator.failback_mirror("forth", source=first.bootstrap, topics="round")
        assert failback.lost == 0
        await until(lambda: is_level(first.bootstrap, second.bootstrap, "round"), "the copy of the first")
    await assert_equal(first, second, "round")
    values = [record[3] for some in (await records_of(second.bootstrap, "round")).values() for record in some]
    assert sum(value.startswith(b"at the second") for value in values) == 90
    assert sum(value.startswith(b"at the first again") for value in values) == 30
    assert not any(value.startswith(b"only here") for value in values)


async def test_a_transaction_that_is_open_where_the_copy_begins_is_over(
    first: RunningCluster, second: RunningCluster
) -> None:
    """The first cluster waits for no marker, and writes none into the copy."""
    await create(first.bootstrap, "open", 2)
    await create(first.bootstrap, "beside")
    async with Producer(bootstrap_servers=first.bootstrap, transactional_id="open") as producer:
        with pytest.raises(KafkaError):
            async with producer.transaction():
                await (await producer.send("open", b"open", partition=0))
                await (await producer.send("beside", b"open"))
                await mirrored_and_promoted(first, second, "open")
                await write(second.bootstrap, "open", 10, "later", partition=0)
                async with Admin(bootstrap_servers=first.bootstrap) as operator:
                    failback = await operator.failback_mirror("open", source=second.bootstrap, topics="open")
                    assert failback.lost == 0
                    await until(lambda: is_level(second.bootstrap, first.bootstrap, "open"), "the copy")
    await assert_equal(second, first, "open")
    committed = await records_of(first.bootstrap, "open", "read_committed")
    assert [record[3] for record in committed[0]] == [b"later %d" % number for number in range(10)]
    async with Admin(bootstrap_servers=first.bootstrap) as operator:

        async def is_over() -> bool:
            (described,) = (await operator.describe_transactions(["open"])).values()
            return described.state in ("CompleteAbort", "Empty")

        await until(is_over, "the end of the transaction")
        assert (await records_of(first.bootstrap, "beside", "read_committed"))[0] == []
    async with (
        Producer(bootstrap_servers=first.bootstrap, transactional_id="open") as producer,
        producer.transaction(),
    ):
        await producer.send("beside", b"the next one")
    assert [record[3] for record in (await records_of(first.bootstrap, "beside", "read_committed"))[0]] == [
        b"the next one"
    ]


async def test_what_cannot_become_a_copy_is_refused_by_name(
    first: RunningCluster, second: RunningCluster
) -> None:
    for name in ("named.anew", "named.alone", "named.other", "named.still"):
        await create(first.bootstrap, name)
        await write(first.bootstrap, name, 5, "old")
    await create(second.bootstrap, "named.other")
    await mirrored_and_promoted(first, second, "named.anew")
    async with (
        Admin(bootstrap_servers=first.bootstrap) as here,
        Admin(bootstrap_servers=second.bootstrap) as there,
    ):
        await there.create_mirror("still", source=first.bootstrap, topics="named.still")
        await until(lambda: is_level(first.bootstrap, second.bootstrap, "named.still"), "the copy")
        await here.delete_topics(["named.anew"])
        await create(first.bootstrap, "named.anew")
        reasons = {
            "named.anew": "deleted here, and made anew",
            "named.alone": "has no topic",
            "named.other": "never was a copy",
            "named.still": "still the copy of its mirror 'still'",
        }
        failback = await here.failback_mirror(
            "named", source=second.bootstrap, topics=r"named\..*", validate_only=True
        )
        assert {topic.name for topic in failback.topics} == set(reasons)
        for topic in failback.topics:
            assert reasons[topic.name] in str(topic.refusal)
        with pytest.raises(KafkaError, match="never was a copy"):
            await here.failback_mirror("named", source=second.bootstrap, topics=r"named\..*", discard=True)
        with pytest.raises(KafkaError, match="no topic here matches"):
            await here.failback_mirror("named", source=second.bootstrap, topics="nothing")
        assert "named" not in {mirror.name for mirror in await here.describe_mirrors()}
        # Nor is a copy copied back while it is one.
        with pytest.raises(KafkaError, match=r"named\.still.* is itself a copy of this cluster"):
            await here.create_mirror("loop", source=second.bootstrap, topics=r"named\.still")


async def test_records_that_the_first_has_lost_come_from_the_second(
    first: RunningCluster, second: RunningCluster
) -> None:
    """The first cluster lacks copied records after an unclean election, and has others at their offsets."""
    async with Admin(bootstrap_servers=first.bootstrap) as admin:
        rules = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
        await admin.create_topics([NewTopic("unclean", assignments={0: [1, 2]}, configs=rules)])
    await write(first.bootstrap, "unclean", 20, "both")
    leader, two = first.broker(1), first.broker(2)
    two.kill9()
    await asyncio.to_thread(wait_until, lambda: first.leader("unclean", 0) == 1, "broker 1 leads")
    await write(first.bootstrap, "unclean", 10, "broker 1")
    await mirrored_and_promoted(first, second, "unclean")
    await write(second.bootstrap, "unclean", 5, "promoted")
    leader.kill9()
    await asyncio.to_thread(two.restart)
    await asyncio.to_thread(wait_until, lambda: first.leader("unclean", 0) == 2, "broker 2 leads")
    await write(first.bootstrap, "unclean", 7, "broker 2")
    await asyncio.to_thread(leader.restart)
    await asyncio.to_thread(first.wait_until_in_sync, "unclean")
    async with Admin(bootstrap_servers=first.bootstrap) as operator:
        with pytest.raises(KafkaError, match=r"7 records .*unclean-0 7 \(offsets 20 to 26\)"):
            await operator.failback_mirror("unclean", source=second.bootstrap, topics="unclean")
        await operator.failback_mirror("unclean", source=second.bootstrap, topics="unclean", discard=True)
        await until(lambda: is_level(second.bootstrap, first.bootstrap, "unclean"), "the copy")
    await assert_equal(second, first, "unclean")


async def test_what_is_written_after_the_count_stays_until_a_person_decides(
    first: RunningCluster, second: RunningCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await create(first.bootstrap, "raced")
    await write(first.bootstrap, "raced", 20, "both")
    await mirrored_and_promoted(first, second, "raced")
    await write(second.bootstrap, "raced", 10, "second")
    async with Admin(bootstrap_servers=first.bootstrap) as operator:
        count = operator._describe_logs

        async def and_then_somebody_writes(topics: str) -> object:
            counted = await count(topics)
            await write(first.bootstrap, "raced", 3, "late")
            return counted

        monkeypatch.setattr(operator, "_describe_logs", and_then_somebody_writes)
        failback = await operator.failback_mirror("raced", source=second.bootstrap, topics="raced")
        assert failback.lost == 0
        fault = await fault_of(operator, "raced", "raced")
        assert (fault.kind, fault.first, fault.end) == (FaultKind.DIVERGED, 20, 23)
        kept = (await records_of(first.bootstrap, "raced"))[0]
        assert [record[3] for record in kept[20:]] == [b"late 0", b"late 1", b"late 2"]
        await operator.resume_mirror("raced", accept_gap=True)
        await until(lambda: is_level(second.bootstrap, first.bootstrap, "raced"), "the copy")
    await assert_equal(second, first, "raced")
