"""Ownerless transactions on a real cluster: tasks that begin, join and crash, and the process that decides."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from ottla import Admin, BegunTransaction, Consumer, KafkaError, Producer, TransactionWriter
from ottla.protocol.errors import ErrorCode
from ottla.testing.local_cluster import LocalCluster

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("begun transactions")]


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(1) as cluster:
        yield cluster


def admin(cluster: LocalCluster) -> Admin:
    return Admin(bootstrap_servers=cluster.bootstrap_servers)


async def work(cluster: LocalCluster, begun: BegunTransaction, topic: str, value: bytes) -> str:
    async with TransactionWriter.join(begun.token, bootstrap_servers=cluster.bootstrap_servers) as writer:
        await writer.send(topic, value)
        return str(await writer.finish())


async def committed(cluster: LocalCluster, topic: str) -> list[bytes]:
    async with (
        Producer(bootstrap_servers=cluster.bootstrap_servers) as producer,
        Consumer(
            topic,
            bootstrap_servers=cluster.bootstrap_servers,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
        ) as consumer,
    ):
        await producer.send_and_wait(topic, b"end")
        found: list[bytes] = []
        async with asyncio.timeout(60):
            async for record in consumer:
                if record.value == b"end":
                    return found
                found.append(record.value)
    raise AssertionError("the consumer ended")


async def test_tasks_that_know_no_more_than_a_name_write_in_one_transaction(cluster: LocalCluster) -> None:
    cluster.create_topic("tasks")
    async with admin(cluster) as client, admin(cluster) as other:
        asked = await asyncio.gather(
            *(each.begin_transaction("tasks", app_version=0) for each in (client, other) * 4)
        )
        assert len(set(asked)) == 1
        begun = asked[0]
        assert begun is not None
        receipts = await asyncio.gather(*(work(cluster, begun, "tasks", b"%d" % n) for n in range(4)))
        result = await other.commit_transaction(begun, receipts[:3])
        assert not result.was_committed
        assert sorted(await committed(cluster, "tasks")) == [b"0", b"1", b"2"]
        assert await client.begin_transaction("tasks", app_version=0) is None


async def test_who_commits_what_was_committed_is_told_so(cluster: LocalCluster) -> None:
    """Two drivers commit at once, and another lost the answer until the next transaction had begun."""
    cluster.create_topic("drivers")
    async with admin(cluster) as client:
        begun = await client.begin_transaction("drivers", app_version=5)
        assert begun is not None
        receipts = [await work(cluster, begun, "drivers", b"%d" % n) for n in range(2)]
        first = await client.commit_transaction(begun, receipts[:1])
        assert await client.commit_transaction(begun, receipts[1:]) == first
        following = await client.begin_transaction("drivers", app_version=6)
        assert following is not None
        assert following.number == begun.number + 1
        assert (await client.commit_transaction(begun, receipts[:1])).was_committed
        await client.abort_begun_transaction(following)
        assert await committed(cluster, "drivers") == [b"0"]
        with pytest.raises(KafkaError) as caught:
            await client.commit_transaction(following)
        assert caught.value.code is ErrorCode.INVALID_TXN_STATE


async def test_a_transaction_without_a_version_can_be_committed_once_only(cluster: LocalCluster) -> None:
    cluster.create_topic("plain")
    async with admin(cluster) as client:
        begun = await client.begin_transaction("plain")
        assert begun is not None
        receipt = await work(cluster, begun, "plain", b"v")
        await client.commit_transaction(begun, [receipt])
        following = await client.begin_transaction("plain")
        assert following is not None
        with pytest.raises(KafkaError, match="nothing was committed: transaction 1 of 'plain'"):
            await client.commit_transaction(begun, [receipt])
        await client.abort_begun_transaction(begun)
        assert await client.begin_transaction("plain") == following, "it is another one, and goes on"
        await client.abort_begun_transaction(following)


async def test_a_transaction_ends_when_nobody_has_asked_for_it_for_its_time(cluster: LocalCluster) -> None:
    async with admin(cluster) as client:
        begun = await client.begin_transaction("short", timeout_ms=4000)
        assert begun is not None
        for _ in range(5):
            await asyncio.sleep(1)
            assert await client.begin_transaction("short", timeout_ms=4000) == begun, "its timeout restarts"

        async with asyncio.timeout(60):
            while (await client.begin_transaction("other", timeout_ms=1000)) is None or (
                await client.describe_transactions(["short"])
            )["short"].state == "Ongoing":  # type: ignore[union-attr]
                await asyncio.sleep(0.1)
        following = await client.begin_transaction("short", timeout_ms=1000)
        assert following is not None
        assert following.number == begun.number + 1
        with pytest.raises(KafkaError, match="is over"):
            await work(cluster, begun, "tasks", b"late")


async def test_a_transaction_that_the_cluster_has_aborted_is_over(cluster: LocalCluster) -> None:
    """The id had an owner before, which might go on after an abort (KIP-588), unlike the writers here."""
    async with Producer(bootstrap_servers=cluster.bootstrap_servers, transactional_id="owned"):
        pass
    async with admin(cluster) as client:
        begun = await client.begin_transaction("owned")
        assert begun is not None
        await client.abort_transaction("owned")
        with pytest.raises(KafkaError, match="nothing was committed") as caught:
            await client.commit_transaction(begun)
        assert caught.value.code is ErrorCode.INVALID_TXN_STATE
        await client.abort_begun_transaction(begun)
        assert await client.begin_transaction("owned") != begun


async def test_what_cannot_be_is_said_by_name(cluster: LocalCluster) -> None:
    async with admin(cluster) as client:
        with pytest.raises(ValueError, match="app_version is 0 or more, not -3"):
            await client.begin_transaction("wrong", app_version=-3)
        with pytest.raises(ValueError, match="transactional_id is a text that is not empty, not ''"):
            await client.begin_transaction("")
        with pytest.raises(ValueError, match="timeout_ms is 1 to 2147483647, not 0"):
            await client.begin_transaction("wrong", timeout_ms=0)
        with pytest.raises(KafkaError, match=r"transaction\.timeout\.ms is 2147483647"):
            await client.begin_transaction("wrong", timeout_ms=2147483647)
