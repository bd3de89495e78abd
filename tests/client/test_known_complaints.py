"""Frequent complaints about other Python clients: each test shows that a symptom does not occur here.

The numbers name the reports: aiokafka #727 (an endless rebalance), #1126 (no cooperative rebalancing), #623 (a thin
admin), faststream #1414 (a consumer that stops reading after a refused commit), confluent-kafka #2211 (clients bound to
another loop, a blocked loop), librdkafka #3928 (a lone producer that is fenced), and growing memory.
"""

from __future__ import annotations

import ast
import asyncio
import gc
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from ottla import Admin, Consumer, KafkaError, NewTopic, Producer, RebalanceListener, TopicPartition
from ottla.testing import LocalCluster
from tests.client.fake_cluster import Fault, fake_cluster
from tests.client.fake_transactions import Trouble, transactional_cluster

pytestmark = pytest.mark.cluster
DEADLINE_S = 60
CLI = Path(__file__).resolve().parents[2] / "cli"


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster() as cluster:
        yield cluster


def member(cluster: LocalCluster, topic: str, **options: Any) -> Consumer:
    chosen: dict[str, Any] = {
        "group_id": topic,
        "auto_offset_reset": "earliest",
        "heartbeat_interval_ms": 50,
        "session_timeout_ms": 6_000,
        "partition_assignment_strategy": ("cooperative-sticky",),
    }
    return Consumer(topic, bootstrap_servers=cluster.bootstrap_servers, **(chosen | options))


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():
            await asyncio.sleep(0.01)


# rebalances


async def test_a_group_comes_to_rest_though_members_come_and_go_all_the_time(cluster: LocalCluster) -> None:
    """aiokafka #727: generation and member id were reset in the middle of a join, which began another, for ever."""
    cluster.create_topic("restless", partitions=6)
    async with member(cluster, "restless") as stays:
        for number in range(10):
            async with member(cluster, "restless"):
                await asyncio.sleep(
                    0.01 * (number % 4)
                )  # gone in the middle of a rebalance, more often than not
        async with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin, asyncio.timeout(DEADLINE_S):
            while True:
                (group,) = await admin.describe_groups(["restless"])
                if group.state == "Stable" and len(group.members) == 1:
                    break
                await asyncio.sleep(0.01)
        await until(lambda: len(stays.assignment()) == 6)
        generation = stays.group_metadata().generation
        for _ in range(10):
            await asyncio.sleep(0.05)  # as many heartbeats
            assert stays.group_metadata().generation == generation


async def test_a_member_that_dies_is_replaced_when_its_session_ends(cluster: LocalCluster) -> None:
    cluster.create_topic("dies", partitions=4)
    async with member(cluster, "dies") as stays:
        dying = member(cluster, "dies")
        await dying.start()
        await until(lambda: len(stays.assignment()) == len(dying.assignment()) == 2)
        await dying._cluster.close()  # as if its process were gone: it says no goodbye
        # Were it not for the session, max_poll_interval_ms would end it, in five minutes.
        await until(lambda: len(stays.assignment()) == 4)
        await dying.stop()


async def test_a_slow_member_holds_up_the_others_only_for_what_it_gives_up(cluster: LocalCluster) -> None:
    """aiokafka #1126: without cooperative rebalances all stand still until the slowest is done."""
    cluster.create_topic("slow", partitions=4)
    let_go = asyncio.Event()

    class Slow(RebalanceListener):
        async def on_partitions_revoked(self, partitions: set[TopicPartition]) -> None:
            await let_go.wait()

    slow = member(cluster, "slow")
    slow.subscribe(["slow"], listener=Slow())
    async with slow, Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        await until(lambda: len(slow.assignment()) == 4)
        async with member(cluster, "slow") as new:
            read = set[int]()
            async with asyncio.timeout(DEADLINE_S):
                while len(read) < 2:  # two it keeps, and reads of them while the listener takes its time
                    for partition in range(4):
                        await producer.send("slow", b"v", partition=partition)
                    for partition in await slow.getmany(timeout_ms=50):
                        read.add(partition.partition)
            assert not let_go.is_set()
            assert not new.assignment()
            let_go.set()
            await until(lambda: len(new.assignment()) == 2)


async def test_reading_goes_on_after_a_commit_was_refused(cluster: LocalCluster) -> None:
    """faststream #1414, on aiokafka: a commit fails in a rebalance, and no record is read from then on."""
    cluster.create_topic("refused", partitions=2)
    async with (
        Producer(bootstrap_servers=cluster.bootstrap_servers) as producer,
        member(cluster, "refused", partition_assignment_strategy=("range",)) as first,
    ):
        await until(lambda: len(first.assignment()) == 2)
        refused = False
        async with asyncio.timeout(DEADLINE_S):
            while not refused:
                async with member(cluster, "refused", partition_assignment_strategy=("range",)):
                    for number in range(20):
                        try:
                            await first.commit({TopicPartition("refused", 0): number})
                        except KafkaError:
                            refused = True
                        await asyncio.sleep(0.005)
        await producer.send_and_wait("refused", b"v")
        async with asyncio.timeout(DEADLINE_S):
            assert (await first.getone()).value == b"v"
            await first.commit()


# asyncio


def test_clients_may_be_made_where_no_loop_runs(cluster: LocalCluster) -> None:
    """confluent-kafka #2211: the loop at construction is not the loop in which the client is used."""
    servers = cluster.bootstrap_servers
    producer, admin = Producer(bootstrap_servers=servers), Admin(bootstrap_servers=servers)
    consumer = Consumer("made-early", bootstrap_servers=servers, auto_offset_reset="earliest")

    async def use() -> None:
        async with asyncio.timeout(DEADLINE_S):
            async with admin, producer:
                await admin.create_topics([NewTopic("made-early", 1)])
                await producer.send_and_wait("made-early", b"v", headers=[("h", b"1")])
            async with consumer:
                assert list((await consumer.getone()).headers) == [("h", b"1")]

    asyncio.run(use())


async def test_the_loop_never_stands_still(cluster: LocalCluster) -> None:
    """confluent-kafka #2211: while records are sent and read, members come, and brokers do not answer."""
    cluster.create_topic("lively", partitions=3)
    turns, longest = 0, 0.0

    async def tick() -> None:
        nonlocal turns, longest
        loop = asyncio.get_running_loop()
        while True:
            before = loop.time()
            await asyncio.sleep(0.001)
            turns, longest = turns + 1, max(longest, loop.time() - before)

    ticking = asyncio.create_task(tick())
    async with (
        Producer(bootstrap_servers=cluster.bootstrap_servers) as producer,
        member(cluster, "lively") as first,
        member(cluster, "lively") as two,
    ):
        for number in range(5_000):
            await producer.send("lively", b"x" * 500, partition=number % 3)
        await producer.flush()
        read = 0
        async with asyncio.timeout(DEADLINE_S):
            while read < 5_000:
                for consumer in (first, two):
                    read += sum(map(len, (await consumer.getmany(timeout_ms=20)).values()))
    with suppress(KafkaError):
        async with Producer(bootstrap_servers="127.0.0.1:1", request_timeout_ms=200):
            pass
    while_used = turns
    while turns < while_used + 2:  # the turn in progress is measured, too
        await asyncio.sleep(0)
    ticking.cancel()
    assert while_used > 1
    assert longest < 2.0  # a blocking call would last until its timeout


# transactions


@pytest.mark.parametrize("version", [1, 2])
async def test_a_lone_producer_is_never_fenced(version: int) -> None:
    """librdkafka #3928: after a disconnection it requested an epoch twice, and took itself for a newer instance."""
    troubles = [
        Trouble.DROP_AFTER,
        Trouble.BUSY,
        Trouble.MOVED,
        Trouble.DROP_BEFORE,
        Trouble.NONE,
        Trouble.NONE,
    ]
    asked = 0

    def trouble() -> Trouble:
        nonlocal asked
        asked += 1
        return troubles[asked * 7 % len(troubles)] if asked % 11 else Trouble.NONE

    async with transactional_cluster(version, brokers=2) as cluster:
        cluster.trouble = trouble
        async with Producer(bootstrap_servers=cluster.bootstrap, transactional_id="alone") as producer:
            async with asyncio.timeout(DEADLINE_S):
                for number in range(60):
                    await producer.begin_transaction()
                    await producer.send("t", b"%d" % number)
                    if number % 3:
                        await producer.commit_transaction()
                    else:
                        await producer.abort_transaction()
        assert cluster.committed(0) == [b"%d" % number for number in range(60) if number % 3]


# memory


async def grown(work: Callable[[], Awaitable[None]]) -> Counter[str]:
    """Return the numbers of Ottla's objects, tasks and futures that several rounds of `work` leave behind."""

    def census() -> Counter[str]:
        gc.collect()
        kinds = (type(tracked) for tracked in gc.get_objects())
        return Counter(
            kind.__qualname__
            for kind in kinds
            if str(kind.__module__).startswith(("ottla", "_asyncio", "asyncio"))
        )

    for _ in range(3):
        await work()
    before = census()
    for _ in range(20):
        await work()
    await asyncio.sleep(0.05)
    return Counter({name: count for name, count in (census() - before).items() if count >= 10})


async def test_clients_that_come_and_go_leave_nothing(cluster: LocalCluster) -> None:
    async def work() -> None:
        servers = cluster.bootstrap_servers
        async with Producer(bootstrap_servers=servers) as producer, Admin(bootstrap_servers=servers) as admin:
            await producer.send_and_wait("comes", b"v")
            await admin.list_topics()
            async with Consumer(
                "comes", bootstrap_servers=servers, group_id="comes", auto_offset_reset="earliest"
            ) as consumer:
                await consumer.getone()

    assert await grown(work) == {}


async def test_clients_that_reach_nobody_leave_nothing() -> None:
    async def work() -> None:
        for client in (
            Producer(bootstrap_servers="127.0.0.1:1"),
            Consumer("t", bootstrap_servers="127.0.0.1:1", group_id="g"),
            Admin(bootstrap_servers="127.0.0.1:1"),
        ):
            with pytest.raises(KafkaError):
                await client.start()

    assert await grown(work) == {}


async def test_records_that_fail_and_waits_that_are_given_up_leave_nothing() -> None:
    async with (
        fake_cluster(fault=lambda: Fault.REFUSED) as brokers,
        Producer(bootstrap_servers=brokers.bootstrap) as producer,
    ):

        async def work() -> None:
            sent = [await producer.send("t", b"v") for _ in range(50)]
            with suppress(TimeoutError):
                async with asyncio.timeout(0):
                    await producer.flush()
            await asyncio.wait(sent)
            assert all(isinstance(delivery.exception(), KafkaError) for delivery in sent)

        assert await grown(work) == {}


async def test_a_reader_that_is_asked_in_vain_leaves_nothing(cluster: LocalCluster) -> None:
    cluster.create_topic("empty", partitions=1)
    async with Consumer("empty", bootstrap_servers=cluster.bootstrap_servers) as consumer:

        async def work() -> None:
            for _ in range(20):
                with suppress(TimeoutError):
                    await asyncio.wait_for(consumer.getone(), 0.001)

        assert await grown(work) == {}


# the admin client


def test_whatever_the_command_line_does_programs_can_do() -> None:
    """aiokafka #623. Commands send no request themselves: all use `Admin`, `Producer` and `Consumer`."""
    for path in sorted((CLI / "commands").rglob("*.py")):
        if path.name == "security.py":
            continue  # it asks the quorum, by the cluster's secret, when brokers accept no user
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                assert not (node.module or "").startswith("protocol.messages"), path
                assert "client.connections.connection" not in (node.module or ""), path
