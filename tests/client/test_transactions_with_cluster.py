"""Transactions with a real cluster: committed records are visible whole, once, and on return; others never are."""

from __future__ import annotations

import ast
import asyncio
import inspect
import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import aclosing, suppress
from functools import partial, partialmethod
from pathlib import Path
from typing import Any

import pytest

import ottla
from ottla.client.admin import Admin, NewTopic
from ottla.client.connections.cluster import Cluster
from ottla.client.connections.coordinator import OF_TRANSACTION, Coordinator
from ottla.client.consumer import Consumer
from ottla.client.failures import ProducerFenced, TransactionFailed
from ottla.client.producer import Producer
from ottla.client.records import ConsumerRecord, TopicPartition
from ottla.client.transactions import transactions
from ottla.client.transactions.transaction import WriterReceipt
from ottla.client.transactions.whole_transactions import CommittedTransaction
from ottla.client.transactions.writer import TransactionWriter
from ottla.protocol.errors import ErrorCode, KafkaError
from tests.cluster import RunningCluster, running_cluster

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    settings = {"group.initial.rebalance.delay.ms": "0", "broker.session.timeout.ms": "1000"}
    with running_cluster(
        tmp_path_factory.mktemp("transactions"), quorum=1, brokers=3, settings=settings
    ) as running:
        yield running


async def create(cluster: RunningCluster, name: str, partitions: int = 1) -> None:
    async with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        await admin.create_topics([NewTopic(name, partitions, 3, configs={"min.insync.replicas": "2"})])


async def committed(cluster: RunningCluster, topic: str) -> list[bytes]:
    """Return the values below the current end that a new read-committed consumer sees."""
    found: list[bytes] = []
    async with Consumer(
        topic,
        bootstrap_servers=cluster.bootstrap,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    ) as consumer:
        ends = await consumer.end_offsets(consumer.assignment())
        async with asyncio.timeout(60):
            for partition, end in ends.items():
                while await consumer.position(partition) < end:
                    for records in (await consumer.getmany(timeout_ms=200)).values():
                        found += [record.value or b"" for record in records]
    return found


def transactional(cluster: RunningCluster, name: str, **options: int) -> Producer:
    return Producer(bootstrap_servers=cluster.bootstrap, transactional_id=name, **options)


async def write(cluster: RunningCluster, token: str, topic: str, *values: bytes) -> WriterReceipt:
    async with TransactionWriter.join(token, bootstrap_servers=cluster.bootstrap) as writer:
        for value in values:
            await writer.send(topic, value)
        return await writer.finish()


async def test_commits_are_seen_on_return_and_aborts_never(cluster: RunningCluster) -> None:
    await create(cluster, "seen", 3)
    expected: list[bytes] = []
    async with transactional(cluster, "seen") as producer:
        for number in range(12):
            values = [b"%d-%d" % (number, index) for index in range(6)]
            try:
                async with producer.transaction():
                    for index, value in enumerate(values):
                        await producer.send("seen", value, partition=index % 3)
                    if number % 3 == 2:
                        raise LookupError
            except LookupError:
                continue
            expected += values
            assert sorted(await committed(cluster, "seen")) == sorted(expected)


@pytest.mark.parametrize("version", [1, 2])
async def test_aborts_with_batches_under_way_leave_nothing_behind(
    cluster: RunningCluster, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if version == 1:  # as clusters of before speak
        monkeypatch.setattr("ottla.client.transactions.transactions.VERSION_FEATURE", "unknown")
    topic, chance = f"under-way-{version}", random.Random(version)
    await create(cluster, topic, 3)
    expected: list[bytes] = []
    async with transactional(cluster, topic, batch_size=200) as producer:
        for number in range(100):
            values = [b"%d-%d" % (number, index) for index in range(chance.randrange(1, 40))]
            await producer.begin_transaction()
            for index, value in enumerate(values):
                await producer.send(topic, value, partition=index % 3)
                if chance.random() < 0.05:
                    await asyncio.sleep(chance.choice([0, 0.001, 0.003]))
            if chance.random() < 0.5:
                await producer.abort_transaction()
            else:
                await producer.commit_transaction()
                expected += values
    assert sorted(await committed(cluster, topic)) == sorted(expected)


async def test_records_and_offsets_are_copied_together(cluster: RunningCluster) -> None:
    await create(cluster, "originals", 2)
    await create(cluster, "copies", 2)
    async with Producer(bootstrap_servers=cluster.bootstrap) as producer:
        for number in range(200):
            await producer.send("originals", b"%d" % number, partition=number % 2)

    async def copy_until(count: int, *, crashes: bool) -> None:
        copied = 0
        async with (
            Consumer(
                "originals",
                bootstrap_servers=cluster.bootstrap,
                group_id="copiers",
                auto_offset_reset="earliest",
                heartbeat_interval_ms=100,
                max_poll_records=17,
            ) as consumer,
            transactional(cluster, "copier") as producer,
        ):
            while copied < count:
                batches = await consumer.getmany(timeout_ms=5_000)
                async with producer.transaction():
                    for records in batches.values():
                        for record in records:
                            await producer.send("copies", record.value, partition=record.partition)
                    offsets = {partition: records[-1].offset + 1 for partition, records in batches.items()}
                    await producer.send_offsets_to_transaction(offsets, consumer)
                    if crashes and copied:
                        raise ConnectionAbortedError
                copied += sum(map(len, batches.values()))

    async with asyncio.timeout(60):
        with pytest.raises(ConnectionAbortedError):
            await copy_until(200, crashes=True)
        done = len(await committed(cluster, "copies"))
        assert 0 < done < 200
        await copy_until(200 - done, crashes=False)
    assert sorted(await committed(cluster, "copies")) == sorted(b"%d" % number for number in range(200))


async def test_a_second_producer_fences_the_first(cluster: RunningCluster) -> None:
    await create(cluster, "fenced")
    async with transactional(cluster, "taken over") as first:
        await first.begin_transaction()
        await first.send_and_wait("fenced", b"old")
        async with transactional(cluster, "taken over") as second:
            with pytest.raises(ProducerFenced, match="replaced by another one"):
                await first.send_and_wait("fenced", b"late")
            offsets = {TopicPartition("fenced", 0): 1}
            for call in (
                first.commit_transaction,
                first.abort_transaction,
                first.begin_transaction,
                lambda: first.send("fenced", b"later"),
                lambda: first.send_offsets_to_transaction(offsets, "g"),
            ):
                with pytest.raises(ProducerFenced):
                    await call()
            async with second.transaction():
                await second.send("fenced", b"new")
    assert await committed(cluster, "fenced") == [b"new"]


async def test_a_group_member_that_was_replaced_commits_nothing(cluster: RunningCluster) -> None:
    await create(cluster, "members")
    options = {"bootstrap_servers": cluster.bootstrap, "group_id": "members", "heartbeat_interval_ms": 100}
    here = TopicPartition("members", 0)
    async with transactional(cluster, "zombie") as producer:
        async with Consumer("members", **options) as consumer:
            async with asyncio.timeout(60):
                while not consumer.assignment():
                    await asyncio.sleep(0.01)
            former = consumer.group_metadata()
        async with Consumer("members", **options) as successor:
            async with asyncio.timeout(60):
                while not successor.assignment():
                    await asyncio.sleep(0.01)
            with pytest.raises(TransactionFailed):
                async with producer.transaction():
                    await producer.send("members", b"by a zombie")
                    await producer.send_offsets_to_transaction({here: 1}, former)
            assert await successor.committed(here) is None
            async with producer.transaction():
                await producer.send("members", b"by a member")
                await producer.send_offsets_to_transaction({here: 1}, successor)
            assert await successor.committed(here) == 1
    assert await committed(cluster, "members") == [b"by a member"]


async def _sends_on(producer: Producer, topic: str) -> None:
    await producer.send_and_wait(topic, b"on")


async def _sends_elsewhere(producer: Producer, topic: str) -> None:
    await producer.send_and_wait(topic, b"on", partition=1)


async def _sends_offsets(producer: Producer, topic: str) -> None:
    await producer.send_offsets_to_transaction({TopicPartition(topic, 0): 1}, f"of {topic}")


async def _commits(producer: Producer, topic: str) -> None:
    await producer.commit_transaction()


@pytest.mark.parametrize("adds_by_writing", [True, False])
async def test_after_a_transaction_that_was_open_for_too_long_its_producer_goes_on(
    cluster: RunningCluster, monkeypatch: pytest.MonkeyPatch, *, adds_by_writing: bool
) -> None:
    if not adds_by_writing:
        monkeypatch.setattr(transactions, "VERSION_FEATURE", "not there")

    async def goes_on(mishap: Callable[[Producer, str], Awaitable[None]] | None) -> None:
        topic = f"slow-{mishap.__name__ if mishap else 'aborts'}-{adds_by_writing}"
        await create(cluster, topic, 2)
        async with transactional(cluster, topic, transaction_timeout_ms=2_000) as producer:
            await producer.begin_transaction()
            await producer.send_and_wait(topic, b"too slow", partition=0)
            async with asyncio.timeout(60):
                while not await _ended(cluster, topic):
                    await asyncio.sleep(0.1)
            if mishap is not None:
                with pytest.raises(TransactionFailed):
                    await mishap(producer, topic)
            await producer.abort_transaction()
            if mishap is None and not adds_by_writing:  # It could not learn the next epoch.
                with pytest.raises(TransactionFailed):
                    async with producer.transaction():
                        await producer.send_and_wait(topic, b"under the old epoch")
            for value in (b"in time", b"and again"):
                async with producer.transaction():
                    await producer.send(topic, value, partition=0)
        assert await committed(cluster, topic) == [b"in time", b"and again"]

    async with asyncio.TaskGroup() as group:
        for mishap in (_sends_on, _sends_elsewhere, _sends_offsets, _commits, None):
            group.create_task(goes_on(mishap))


async def test_others_who_wrote_in_a_transaction_that_took_too_long_are_of_no_more_use(
    cluster: RunningCluster,
) -> None:
    """The owner of the transaction goes on."""
    await create(cluster, "shared-and-slow")
    async with transactional(cluster, "shared-and-slow", transaction_timeout_ms=2_000) as producer:
        transaction = await producer.begin(app_version=1)
        async with TransactionWriter.join(transaction.token, bootstrap_servers=cluster.bootstrap) as writer:
            await writer.send_and_wait("shared-and-slow", b"too slow")
            async with asyncio.timeout(60):
                while not await _ended(cluster, "shared-and-slow"):
                    await asyncio.sleep(0.1)
            with pytest.raises(TransactionFailed):
                await transaction.commit()
            await transaction.abort()
        async with producer.transaction(app_version=1):
            await producer.send("shared-and-slow", b"in time")
    assert await committed(cluster, "shared-and-slow") == [b"in time"]


async def _ended(cluster: RunningCluster, topic: str) -> bool:
    """Return whether no transaction is open on a topic that has a record and its marker."""
    here = TopicPartition(topic, 0)
    async with Consumer(bootstrap_servers=cluster.bootstrap, isolation_level="read_committed") as consumer:
        return (await consumer.end_offsets([here]))[here] == 2


async def test_exactly_the_chosen_writers_count(cluster: RunningCluster) -> None:
    await create(cluster, "shared", 2)
    async with transactional(cluster, "shared") as producer:
        for number in range(3):
            transaction = await producer.begin(app_version=number)
            receipts = await asyncio.gather(
                *(
                    write(
                        cluster,
                        transaction.token,
                        "shared",
                        *(b"%d-%d-%d" % (number, writer, i) for i in range(10)),
                    )
                    for writer in range(4)
                )
            )
            await producer.send("shared", b"%d-owner" % number)
            result = await transaction.commit(writers=[str(receipt) for receipt in receipts[:2]])
            assert not result.was_committed
            assert result.commit_index >= 0
    async with transactional(cluster, "shared") as restarted:
        assert restarted.last_app_version == 2
        async with restarted.transaction(app_version=2) as again:
            await restarted.send("shared", b"again")
        assert again.result is not None
        assert again.result.was_committed
        transaction = await restarted.begin()
        await transaction.abort()
        with pytest.raises(KafkaError) as refused:
            await write(cluster, transaction.token, "shared", b"late")
        assert refused.value.code is ErrorCode.INVALID_TXN_STATE
        with pytest.raises(KafkaError, match="token"):
            await write(cluster, "v1.no.token", "shared", b"never")
    expected = [b"%d-%d-%d" % (a, b, c) for a in range(3) for b in range(2) for c in range(10)]
    expected += [b"%d-owner" % number for number in range(3)]
    assert sorted(await committed(cluster, "shared")) == sorted(expected)


async def test_who_still_has_a_deleted_id_writes_nothing_more(cluster: RunningCluster) -> None:
    await create(cluster, "deleted")
    async with (
        transactional(cluster, "deleted") as former,
        Admin(bootstrap_servers=cluster.bootstrap) as admin,
    ):
        async with former.transaction(app_version=4):
            await former.send("deleted", b"before")
        transaction = await former.begin()
        with pytest.raises(KafkaError, match="'deleted' is open: abort it first") as refused:
            await admin.delete_transactional_id("deleted")
        assert refused.value.code is ErrorCode.CONCURRENT_TRANSACTIONS
        await transaction.abort()
        await admin.delete_transactional_id("deleted")
        with pytest.raises(KafkaError) as refused:
            await admin.delete_transactional_id("deleted")
        assert refused.value.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        async with transactional(cluster, "deleted") as anew:
            assert anew.last_app_version is None
            with pytest.raises(TransactionFailed):
                async with former.transaction():
                    await former.send_and_wait("deleted", b"by the former")
            async with anew.transaction(app_version=4) as repeated:
                await anew.send("deleted", b"after")
            assert repeated.result is not None
            assert not repeated.result.was_committed
        with pytest.raises(KafkaError) as refused:
            await write(cluster, transaction.token, "deleted", b"late")
        assert refused.value.code is ErrorCode.INVALID_TXN_STATE
    assert await committed(cluster, "deleted") == [b"before", b"after"]


async def test_nothing_is_lost_or_torn_when_a_broker_is_killed(cluster: RunningCluster) -> None:
    await create(cluster, "killed", 3)
    expected: list[bytes] = []
    async with transactional(cluster, "killed") as producer:
        for number in range(60):
            values = [b"%d-%d" % (number, partition) for partition in range(3)]
            if number == 20:
                leader = await asyncio.to_thread(cluster.leader, "killed", 0)
                assert leader is not None
                victim = cluster.broker(leader)
                await asyncio.to_thread(victim.kill9)
            try:
                async with asyncio.timeout(60), producer.transaction():
                    for partition, value in enumerate(values):
                        await producer.send("killed", value, partition=partition)
                    if number % 5 == 4:
                        raise LookupError
            except LookupError:
                continue
            expected += values
    assert sorted(await committed(cluster, "killed")) == sorted(expected)
    victim.restart()
    await asyncio.to_thread(cluster.wait_until_in_sync, "killed")


async def test_a_broker_that_hangs_does_not_keep_a_commit_waiting(cluster: RunningCluster) -> None:
    await create(cluster, "paused")
    async with transactional(cluster, "paused") as producer, Cluster(cluster.bootstrap) as client:
        coordinator = Coordinator(client, "paused", OF_TRANSACTION, "")
        await coordinator.connection()
        assert coordinator.broker_id is not None
        await producer.begin_transaction()
        await producer.send_and_wait("paused", b"x")
        victim = cluster.broker(coordinator.broker_id)
        victim.pause()
        try:
            async with asyncio.timeout(15):  # request_timeout_ms is 30 s
                await producer.commit_transaction()
        finally:
            victim.resume()
        async with producer.transaction():
            await producer.send("paused", b"y")
    assert await committed(cluster, "paused") == [b"x", b"y"]
    await asyncio.to_thread(cluster.wait_until_in_sync, "paused")


async def whole(consumer: Consumer, count: int, **options: int) -> list[CommittedTransaction]:
    """Return the next `count` transactions."""
    found: list[CommittedTransaction] = []
    async with asyncio.timeout(60), aclosing(consumer.transactions(**options)) as transactions:
        async for transaction in transactions:
            found.append(transaction)
            if len(found) == count:
                break
    return found


def values(found: list[CommittedTransaction]) -> list[list[bytes]]:
    return [
        sorted(r.value or b"" for some in transaction.records.values() for r in some) for transaction in found
    ]


async def test_transactions_are_read_whole_and_in_order(cluster: RunningCluster) -> None:
    await create(cluster, "whole", 3)
    options = {"bootstrap_servers": cluster.bootstrap}
    expected: list[list[bytes]] = []
    async with (
        transactional(cluster, "hanging") as hanging,
        transactional(cluster, "whole a") as first,
        transactional(cluster, "whole b") as second,
        Consumer("whole", auto_offset_reset="latest", **options) as late,
    ):
        await hanging.begin_transaction()
        await asyncio.gather(*[await hanging.send("whole", b"open", partition=p) for p in range(3)])
        live = asyncio.create_task(whole(late, 15))
        await asyncio.sleep(0.3)
        for number in range(15):
            producer = (first, second)[number % 2]
            some = [b"%d-%d" % (number, partition) for partition in range(3)]
            await producer.begin_transaction()
            for partition, value in enumerate(some):
                await producer.send("whole", value, partition=partition)
            if number % 5 == 4:
                await producer.abort_transaction()
                continue
            await producer.commit_transaction()
            expected.append(some)
        transaction = await first.begin()
        receipts = [await write(cluster, transaction.token, "whole", b"w%d" % number) for number in range(3)]
        committed_at = (await transaction.commit(writers=receipts[:2])).commit_index
        expected.append([b"w0", b"w1"])
        async with Consumer("whole", auto_offset_reset="earliest", **options) as consumer:
            found = await whole(consumer, 13)
            assert values(found) == expected
            indexes = [read_transaction.commit_index for read_transaction in found]
            assert indexes == sorted(set(indexes), key=lambda index: index or 0)
            assert indexes[-1] == committed_at
            assert values(await whole(consumer, 3, after=indexes[9])) == expected[10:]
            await hanging.commit_transaction()
            last = (await whole(consumer, 1, after=committed_at))[0]
            assert {partition.partition for partition in last.records} == {0, 1, 2}
        async with transactional(cluster, "whole c") as third, third.transaction():
            await third.send("whole", b"last")
        assert values(await live) == [*expected, [b"open"] * 3, [b"last"]]
    async with Producer(**options) as plain:
        await plain.send("whole", b"plain", partition=1)
    async with Consumer("whole", auto_offset_reset="earliest", **options) as consumer:
        outside = [
            read_transaction
            for read_transaction in await whole(consumer, 16)
            if read_transaction.commit_index is None
        ]
        assert values(outside) == [[b"plain"]]
        read_on = consumer.transactions()
        async with asyncio.timeout(60):
            first_again = await anext(read_on)
        assert first_again.commit_index in (None, indexes[0])
    assert [read_transaction async for read_transaction in read_on] == [], "it ends with the consumer"
    async with Consumer("whole", group_id="some", **options) as member:
        with pytest.raises(ValueError, match="group"):
            await whole(member, 1)


async def test_transactions_stay_whole_while_a_broker_is_killed(cluster: RunningCluster) -> None:
    """Each record states its transaction's number of records, so that a torn transaction is detected."""
    await create(cluster, "torn", 3)
    wanted: set[bytes] = set()

    async def write_on(name: str, count: int) -> None:
        chance = random.Random(name)
        async with transactional(cluster, f"torn {name}") as producer:
            for number in range(count):
                size = chance.randrange(1, 8)
                try:
                    async with producer.transaction():
                        for index in range(size):
                            value = f"{name}-{number} {size}".encode()
                            await producer.send("torn", value, partition=chance.randrange(3))
                            if index % 3 == 2:
                                await asyncio.sleep(chance.choice([0, 0.005]))
                        if chance.random() < 0.2:
                            raise LookupError
                except LookupError:
                    continue
                wanted.add(f"{name}-{number} {size}".encode())

    async with Consumer("torn", bootstrap_servers=cluster.bootstrap, auto_offset_reset="latest") as consumer:
        found: list[CommittedTransaction] = []

        async def read_on() -> None:
            async with aclosing(consumer.transactions()) as transactions:
                async for transaction in transactions:
                    (some,) = values([transaction])
                    assert len(set(some)) == 1
                    assert len(some) == int(some[0].split()[1]), "torn"
                    found.append(transaction)

        reading = asyncio.create_task(read_on())
        await asyncio.sleep(0.3)
        writing = asyncio.gather(*(write_on(name, 60) for name in "abc"))
        while len(wanted) < 40:
            await asyncio.sleep(0.01)
        leader = await asyncio.to_thread(cluster.leader, "torn", 0)
        assert leader is not None
        victim = cluster.broker(leader)
        await asyncio.to_thread(victim.kill9)
        async with asyncio.timeout(60):
            await writing
            while len(found) < len(wanted) and not reading.done():
                await asyncio.sleep(0.02)
        reading.cancel()
        with suppress(asyncio.CancelledError):
            await reading
    assert sorted(read_values[0] for read_values in values(found)) == sorted(wanted)
    indexes = [transaction.commit_index or 0 for transaction in found]
    assert indexes == sorted(indexes)
    victim.restart()
    await asyncio.to_thread(cluster.wait_until_in_sync, "torn")


async def test_a_reader_is_told_how_far_it_is(cluster: RunningCluster) -> None:
    await create(cluster, "how-far", 2)
    await create(cluster, "elsewhere")
    async with (
        transactional(cluster, "how-far") as producer,
        Consumer("how-far", bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest") as consumer,
        aclosing(consumer.transactions(cuts=True)) as elements,
        asyncio.timeout(60),
    ):
        first = await anext(elements)
        assert not first.records
        async with producer.transaction(app_version=1) as transaction:
            await producer.send("how-far", b"x", partition=1)
        assert transaction.result is not None
        index = transaction.result.commit_index
        progress = [await anext(elements)]
        while (progress[-1].commit_index or 0) < (index or 0) or progress[-1].records:
            progress.append(await anext(elements))
        assert [element for element in progress if element.records] == progress[-2:-1], (
            "between cuts, and before its own"
        )
        assert progress[-2].commit_index == index == progress[-1].commit_index
        async with producer.transaction():
            await producer.send("elsewhere", b"y")
        while (await anext(elements)).commit_index == index:
            pass


async def test_identities_rise_with_every_owner_and_transaction(cluster: RunningCluster) -> None:
    await create(cluster, "identities")
    seen = []
    for _ in range(2):
        async with transactional(cluster, "identities") as producer:
            seen.append(producer.identity)
            for _ in range(2):
                async with producer.transaction():
                    await producer.send("identities", b"x")
                seen.append(producer.identity)
    assert seen == sorted(set(seen))


class Enough(Exception):
    """A signal that the example's reader has seen everything."""


async def test_the_example_in_the_documentation_works(
    cluster: RunningCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The example runs as printed, except for the address and the start of the reads."""
    page = (Path(__file__).parents[2] / "docs" / "TRANSACTIONS.md").read_text()
    example = page.partition("## In Python\n\n```python\n")[2].partition("```")[0]
    for topic in ("payments", "ledger"):
        await create(cluster, topic)
    for name in ("Producer", "TransactionWriter"):
        own = getattr(ottla, name)
        at_cluster = type(
            name, (own,), {"__init__": partialmethod(own.__init__, bootstrap_servers=cluster.bootstrap)}
        )
        monkeypatch.setattr(ottla, name, at_cluster)
    from_the_start = partial(Consumer, bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest")
    monkeypatch.setattr(ottla, "Consumer", from_the_start)
    printed: list[tuple[int, list[bytes | None]]] = []
    names: dict[str, Any] = {}

    async def run_everywhere(token: str) -> list[str]:
        return await asyncio.gather(*(names["work"](token) for _ in range(3)))

    def note(commit_index: int, records: dict[TopicPartition, list[ConsumerRecord]]) -> None:
        printed.append((commit_index, [record.value for some in records.values() for record in some]))
        if len(printed) == 2:
            raise Enough

    names |= {"run_everywhere": run_everywhere, "print": note}
    for node in sorted(ast.parse(example).body, key=lambda statement: isinstance(statement, ast.AsyncWith)):
        code = compile(ast.Module([node], []), "example", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        with suppress(Enough):
            result = eval(code, names)
            if inspect.isawaitable(result):
                async with asyncio.timeout(60):
                    await result
    assert [sorted(values) for _, values in printed] == [[b"4711: -12 EUR", b"4711: 12 EUR"], [b"..."] * 3]
    assert printed[0][0] < printed[1][0]
