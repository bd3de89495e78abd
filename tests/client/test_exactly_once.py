"""`ExactlyOnce` with a real cluster: its output equals its input, despite failures, joins, leaves and kills."""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, get_type_hints

import pytest

import ottla
import ottla.sync
from ottla import (
    Admin,
    Consumer,
    ConsumerRecord,
    ExactlyOnce,
    KafkaError,
    NewRecord,
    OutOfTurn,
    Producer,
    ProducerFenced,
    TopicPartition,
    TransactionFailed,
)
from ottla.client.consuming.membership.group import Group
from ottla.client.consuming.options import ConsumerOptions
from ottla.client.declared_options import declared_options
from ottla.client.exactly_once.options import EXACTLY_ONCE_OPTIONS, ExactlyOnceOptions, ProcessingOptions
from ottla.client.producing.large_messages.splitter import Splitter
from ottla.client.producing.options import WriterOptions
from ottla.testing import LocalCluster

pytestmark = pytest.mark.cluster

PARTITIONS = 4
PROGRAM = "tests.client.copying_program"
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(settings={"group.min.session.timeout.ms": "1000"}) as running:
        yield running


@pytest.fixture
def topics(cluster: LocalCluster, request: pytest.FixtureRequest) -> tuple[str, str]:
    """Return a new input topic and a new output topic."""
    name = request.node.name.translate({ord("["): "-", ord("]"): None})[:150]
    for kind in ("in", "out"):
        cluster.create_topic(f"{name}.{kind}", partitions=PARTITIONS)
    return f"{name}.in", f"{name}.out"


def copier(cluster: LocalCluster, topics: tuple[str, str], **options: Any) -> ExactlyOnce:
    defaults: dict[str, Any] = {
        "max_batch_records": 20,
        "max_batch_ms": 20,
        "session_timeout_ms": 3_000,
        "heartbeat_interval_ms": 100,
        "transaction_timeout_ms": 5_000,
        "fetch_max_wait_ms": 50,
    }
    return ExactlyOnce(
        topics[0],
        group_id=topics[0],
        bootstrap_servers=cluster.bootstrap_servers,
        **(defaults | options),
    )


def copying(topics: tuple[str, str]) -> Callable[[ConsumerRecord], NewRecord]:
    return lambda record: NewRecord(topics[1], record.value, record.key, partition=record.partition)


async def fill(cluster: LocalCluster, topic: str, numbers: range) -> None:
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for number in numbers:
            await producer.send(topic, b"%d" % number, partition=number % PARTITIONS)


async def found(cluster: LocalCluster, topic: str, at_least: int = 0) -> dict[int, list[int]]:
    """Return all values that read-committed consumers see, once there are `at_least` that many."""
    seen: defaultdict[int, list[int]] = defaultdict(list)
    async with (
        Consumer(
            topic,
            bootstrap_servers=cluster.bootstrap_servers,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            fetch_max_wait_ms=50,
        ) as reader,
        asyncio.timeout(60),
    ):
        while sum(map(len, seen.values())) < at_least:
            take(await reader.getmany(timeout_ms=100), seen)
        for partition, end in (await reader.end_offsets(reader.assignment())).items():
            while await reader.position(partition) < end:
                take(await reader.getmany(timeout_ms=100), seen)
    return dict(sorted(seen.items()))


def take(read: dict[TopicPartition, list[ConsumerRecord]], seen: dict[int, list[int]]) -> None:
    for partition, records in read.items():
        seen[partition.partition] += [int(record.value or b"") for record in records]


def wanted(count: int) -> dict[int, list[int]]:
    return {partition: list(range(partition, count, PARTITIONS)) for partition in range(PARTITIONS)}


@asynccontextmanager
async def running(work: Awaitable[None]) -> AsyncIterator[asyncio.Future[None]]:
    """Run work in the background, cancel it at the end, and check that it has not failed."""
    task = asyncio.ensure_future(work)
    try:
        yield task
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_what_fails_now_and_then_is_copied_exactly(
    cluster: LocalCluster, topics: tuple[str, str]
) -> None:
    seed = random.randrange(1 << 30)
    print("seed", seed)
    chance = random.Random(seed)
    await fill(cluster, topics[0], range(600))
    copy = copying(topics)

    def sometimes(record: ConsumerRecord) -> NewRecord:
        if chance.random() < 0.01:
            raise ConnectionResetError
        return copy(record)

    failures: list[ConnectionResetError] = []
    async with copier(cluster, topics, idle_timeout_ms=1_000) as exactly_once:
        while True:
            try:
                await exactly_once.run(sometimes)
                break
            except ConnectionResetError as failure:
                failures.append(failure)
    assert failures
    assert failures[0].__notes__[0].startswith(f"The record is {topics[0]}-")
    assert await found(cluster, topics[1]) == wanted(600)


async def test_what_a_record_becomes(cluster: LocalCluster, topics: tuple[str, str]) -> None:
    """A record may become no, one or several records, by a function, a generator, or their async kinds."""
    await fill(cluster, topics[0], range(40))
    target = topics[1]

    def plain(record: ConsumerRecord) -> Any:
        number = int(record.value or b"")
        if number < 10:
            return None
        if number < 20:
            return [NewRecord(target, b"%d" % number, partition=0)] * 2
        if number < 30:
            return later(record)
        return steps(record)

    async def later(record: ConsumerRecord) -> NewRecord:
        await asyncio.sleep(0)
        return NewRecord(target, record.value, partition=1, headers=[("a", b"b")], timestamp_ms=1)

    async def steps(record: ConsumerRecord) -> AsyncIterator[NewRecord]:
        yield NewRecord(target, record.value, partition=2)
        await asyncio.sleep(0)
        yield NewRecord(target, record.value, partition=3)

    async with copier(cluster, topics, idle_timeout_ms=500) as exactly_once:
        await exactly_once.run(plain)
        with pytest.raises(ValueError, match="'ignore'"):
            await exactly_once.run(plain, on_error="ignore")  # type: ignore[arg-type]
    seen = await found(cluster, target)
    assert sorted(seen[0]) == sorted([*range(10, 20)] * 2)
    assert sorted(seen[1]) == [*range(20, 30)]
    assert sorted(seen[2]) == sorted(seen[3]) == [*range(30, 40)]


async def test_poison_is_skipped_or_goes_where_a_function_says(
    cluster: LocalCluster, topics: tuple[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    await fill(cluster, topics[0], range(40))
    copy = copying(topics)

    def poisoned(record: ConsumerRecord) -> Iterator[NewRecord]:
        number = int(record.value or b"")
        yield copy(record)  # must not count where what follows fails
        if number == 8:
            raise ArithmeticError
        if number == 9:
            yield NewRecord(topics[1], b"x" * 2_000_000)
        if number == 10:
            yield "no record"  # type: ignore[misc]

    async with copier(cluster, topics, idle_timeout_ms=500) as exactly_once:
        with pytest.raises((ArithmeticError, KafkaError, TypeError)):
            await exactly_once.run(poisoned)
        await exactly_once.run(poisoned, on_error="skip")
    left_out = {8, 9, 10}
    assert await found(cluster, topics[1]) == {
        partition: [number for number in numbers if number not in left_out]
        for partition, numbers in wanted(40).items()
    }
    assert len([record for record in caplog.records if "skipped" in record.message]) == 3
    cluster.create_topic(f"{topics[1]}.dead")

    def bury(record: ConsumerRecord, error: Exception) -> NewRecord:
        return NewRecord(f"{topics[1]}.dead", record.value, headers=[("error", repr(error).encode())])

    async with copier(cluster, topics, idle_timeout_ms=500) as exactly_once:
        await fill(cluster, topics[0], range(8, 12))
        await exactly_once.run(poisoned, on_error=bury)
    assert sorted((await found(cluster, f"{topics[1]}.dead"))[0]) == [8, 9, 10]
    assert (await found(cluster, topics[1]))[3][-1] == 11


async def test_members_join_and_leave_in_the_middle(cluster: LocalCluster, topics: tuple[str, str]) -> None:
    seed = random.randrange(1 << 30)
    print("seed", seed)
    chance = random.Random(seed)

    async def slow(record: ConsumerRecord) -> NewRecord:
        if chance.random() < 0.2:
            await asyncio.sleep(0.005)
        return copying(topics)(record)

    async def once() -> None:
        """Join, and leave: by request, or cancelled at any point."""
        async with copier(cluster, topics, partition_assignment_strategy=strategies) as exactly_once:
            with suppress(TimeoutError):
                async with asyncio.timeout(chance.uniform(0.3, 1.2)):
                    if chance.random() < 0.5:
                        asyncio.get_running_loop().call_later(0.3, exactly_once.finish)
                    await exactly_once.run(slow)

    async def again_and_again() -> None:
        while True:
            await once()

    for begin, strategies in ((0, ("range",)), (1_000, ("cooperative-sticky",))):
        await fill(cluster, topics[0], range(begin, begin + 1_000))
        async with (
            copier(cluster, topics, partition_assignment_strategy=strategies) as steady,
            running(steady.run(slow)),
            running(again_and_again()),
        ):
            await found(cluster, topics[1], begin + 1_000)
    assert await found(cluster, topics[1]) == wanted(2_000)


async def copied(exactly_once: ExactlyOnce, topics: tuple[str, str], meanwhile: Awaitable[None]) -> bool:
    """Copy one batch, with `meanwhile` in the middle; return whether it is committed."""
    batch = await anext(exactly_once)
    async with batch:
        for record in batch.records:
            await batch.send(topics[1], record.value, partition=record.partition)
        await meanwhile
    return batch.committed


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
async def test_the_group_waits_for_the_end_of_a_batch(
    cluster: LocalCluster, topics: tuple[str, str], strategy: str
) -> None:
    await fill(cluster, topics[0], range(200))
    options = {"partition_assignment_strategy": (strategy,), "idle_timeout_ms": 1_000}
    exactly_once = copier(cluster, topics, max_batch_records=200, max_batch_ms=2_000, **options)
    other = copier(cluster, topics, **options)

    async def other_joins() -> None:
        await other.start()
        async with asyncio.timeout(40):
            while not exactly_once._source.releasing:
                await asyncio.sleep(0.01)
        assert not other._consumer.assignment()

    async with exactly_once:
        try:
            assert await copied(exactly_once, topics, other_joins())
            assert await found(cluster, topics[1]) == wanted(200)
            await fill(cluster, topics[0], range(200, 400))
            await asyncio.gather(exactly_once.run(copying(topics)), other.run(copying(topics)))
        finally:
            await other.stop()
    assert await found(cluster, topics[1]) == wanted(400)


async def test_a_batch_of_a_member_that_was_thrown_out_does_not_count(
    cluster: LocalCluster, topics: tuple[str, str]
) -> None:
    await fill(cluster, topics[0], range(200))
    async with copier(cluster, topics, session_timeout_ms=1_000) as exactly_once:
        group = exactly_once._source._consumer._subscriber.group
        assert isinstance(group, Group)
        group._options = replace(group._options, heartbeat_interval_ms=500_000)  # it falls silent

        async def others_do_its_work() -> None:
            async with copier(cluster, topics, idle_timeout_ms=1_500) as other:
                await other.run(copying(topics))

        assert not await copied(exactly_once, topics, others_do_its_work())
    assert await found(cluster, topics[1]) == wanted(200)


async def test_a_program_that_is_killed_is_taken_over_from(
    cluster: LocalCluster, topics: tuple[str, str]
) -> None:
    await fill(cluster, topics[0], range(2_000))

    def start() -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", PROGRAM, cluster.bootstrap_servers, *topics]
        return subprocess.Popen(command, cwd=ROOT)

    for at_least in (100, 500, 900):
        program = start()
        try:
            await found(cluster, topics[1], at_least)
        finally:
            program.send_signal(signal.SIGKILL)
            program.wait()
    async with copier(cluster, topics) as last, running(last.run(copying(topics))):
        await found(cluster, topics[1], 2_000)
    assert await found(cluster, topics[1]) == wanted(2_000)


async def test_a_broker_that_starts_anew_costs_nothing(topics: tuple[str, str]) -> None:
    with LocalCluster(brokers=3) as own:
        for topic in topics:
            own.create_topic(topic, PARTITIONS, 3)
        await fill(own, topics[0], range(1_000))

        async def slow(record: ConsumerRecord) -> NewRecord:
            await asyncio.sleep(0.001)
            return copying(topics)(record)

        async with (
            copier(own, topics, session_timeout_ms=10_000) as exactly_once,
            running(exactly_once.run(slow)) as work,
        ):
            for number, at_least in ((1, 50), (2, 400), (3, 700)):
                await found(own, topics[1], at_least)
                if number == 2:
                    await asyncio.to_thread(own.kill, number)
                await asyncio.to_thread(own.restart, number)
            seen = await found(own, topics[1], 1_000)
            assert not work.done()
        assert seen == wanted(1_000)


async def test_a_block_that_raises_or_is_left_counts_as_its_end_says(
    cluster: LocalCluster, topics: tuple[str, str]
) -> None:
    await fill(cluster, topics[0], range(80))
    async with copier(cluster, topics, max_batch_records=10, idle_timeout_ms=500) as exactly_once:
        with pytest.raises(LookupError):
            async for batch in exactly_once:
                async with batch:
                    await batch.send(topics[1], b"-1")
                    raise LookupError
        assert not batch.committed
        async for batch in exactly_once:
            with pytest.raises(OutOfTurn, match="block"):
                await batch.send(topics[1], b"-1")
            with pytest.raises(OutOfTurn, match="block"):
                await anext(exactly_once)
            break
        async for batch in exactly_once:
            async with batch:
                first = batch.records[0]
                assert first.offset == 0
                await batch.send(topics[1], first.value, partition=first.partition)
                batch.shorten(1)
                break
        assert batch.committed
        assert len(batch.offsets) == 1
        async with asyncio.timeout(60):
            async for batch in exactly_once:
                async with batch:
                    with pytest.raises(OutOfTurn, match="finish"):
                        await exactly_once.stop()
                    for record in batch.records:
                        await batch.send(topics[1], record.value, partition=record.partition)
        with pytest.raises(OutOfTurn):
            async with batch:
                pass
    assert await found(cluster, topics[1]) == wanted(80)


async def test_stopping_ends_the_batch_first_and_cancelling_aborts_it(
    cluster: LocalCluster, topics: tuple[str, str]
) -> None:
    await fill(cluster, topics[0], range(8))
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def waiting(record: ConsumerRecord) -> NewRecord:
        begun.set()
        await go_on.wait()
        return copying(topics)(record)

    async with copier(cluster, topics) as exactly_once:
        work = asyncio.create_task(exactly_once.run(waiting))
        await begun.wait()
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        assert await found(cluster, topics[1]) == {}
        begun.clear()
        work = asyncio.create_task(exactly_once.run(waiting))
        await begun.wait()
        stopping = asyncio.create_task(exactly_once.stop())
        while not exactly_once._finishing.is_set():
            await asyncio.sleep(0)
        assert not stopping.done()
        go_on.set()
        await asyncio.gather(work, stopping)
    seen = await found(cluster, topics[1])
    assert sum(map(len, seen.values())) == 1, "the batch ends with the record that was at work"
    async with copier(cluster, topics, idle_timeout_ms=500) as exactly_once:
        await exactly_once.run(copying(topics))
    assert await found(cluster, topics[1]) == wanted(8)


async def test_nothing_is_written_while_nothing_comes(cluster: LocalCluster, topics: tuple[str, str]) -> None:
    await fill(cluster, topics[0], range(4))
    async with copier(cluster, topics, transactional_id="idle", idle_timeout_ms=1_000) as exactly_once:
        await exactly_once.run(copying(topics))
        async with Consumer(bootstrap_servers=cluster.bootstrap_servers) as reader:
            places = [TopicPartition("__consumer_offsets", index) for index in range(4)]
            before = await reader.end_offsets(places)
            await exactly_once.run(copying(topics))
            assert await reader.end_offsets(places) == before


async def test_a_producer_that_was_too_slow_is_replaced_once_and_an_id_that_was_taken_is_not(
    cluster: LocalCluster, topics: tuple[str, str]
) -> None:
    await fill(cluster, topics[0], range(40))
    fencings = 1

    async def fenced(record: ConsumerRecord) -> NewRecord:
        nonlocal fencings
        if fencings:
            fencings -= 1
            async with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
                listed = {transaction.transactional_id for transaction in await admin.list_transactions()}
            ours = {name for name in listed if name.startswith(f"{topics[0]}-")}
            # As after a timeout of the transaction: its epoch is no longer the producer's.
            for mine in ours:
                async with Producer(bootstrap_servers=cluster.bootstrap_servers, transactional_id=mine):
                    pass
        return copying(topics)(record)

    async with copier(cluster, topics, idle_timeout_ms=1_000) as exactly_once:
        await exactly_once.run(fenced)
    assert await found(cluster, topics[1]) == wanted(40)
    await fill(cluster, topics[0], range(40, 80))
    fencings = 1_000
    async with copier(cluster, topics) as exactly_once:
        with pytest.raises(ProducerFenced):
            await exactly_once.run(fenced)
    async with (
        copier(cluster, topics, transactional_id="taken") as exactly_once,
        copier(cluster, topics, transactional_id="taken", idle_timeout_ms=1_000) as successor,
    ):
        with pytest.raises(ProducerFenced):
            async with asyncio.timeout(60):
                await exactly_once.run(copying(topics))
        await exactly_once.stop()
        await successor.run(copying(topics))
    assert await found(cluster, topics[1]) == wanted(80)


async def test_a_batch_that_takes_longer_than_a_transaction_may_is_tried_once_more(
    cluster: LocalCluster, topics: tuple[str, str]
) -> None:
    """The transaction begins with the first sent record, so the slow work comes after that."""
    await fill(cluster, topics[0], range(40))
    slow, attempts = 1, 0

    async def copy_slowly(exactly_once: ExactlyOnce) -> None:
        nonlocal slow, attempts
        async for batch in exactly_once:
            async with batch:
                for record in batch.records:
                    await batch.send(topics[1], record.value, partition=record.partition)
                if slow:
                    slow, attempts = slow - 1, attempts + 1
                    await asyncio.sleep(2.5)

    async with copier(cluster, topics, transaction_timeout_ms=1_500, idle_timeout_ms=1_000) as exactly_once:
        await copy_slowly(exactly_once)
    assert await found(cluster, topics[1]) == wanted(40)
    await fill(cluster, topics[0], range(40, 80))
    slow, attempts = 1_000, 0
    async with copier(cluster, topics, transaction_timeout_ms=1_500) as exactly_once:
        with pytest.raises(TransactionFailed):
            await copy_slowly(exactly_once)
    assert attempts == 2
    assert await found(cluster, topics[1]) == wanted(40)


async def test_a_large_message_that_lies_across_a_commit_is_copied_once(
    cluster: LocalCluster, topics: tuple[str, str]
) -> None:
    splitter = Splitter(100, 1 << 20, 1 << 20)
    first, second, third = splitter.split((b"k", b"l" * 300, 0, ()), bytes(16))

    def copied_to_one(record: ConsumerRecord) -> NewRecord:
        return NewRecord(topics[1], record.value, partition=0)

    options: dict[str, Any] = {"bootstrap_servers": cluster.bootstrap_servers}
    async with Producer(**options) as producer:

        async def write_and_copy(*records: tuple[bytes | None, bytes | None, int, Any]) -> None:
            for key, value, _, headers in records:
                await producer.send_and_wait(topics[0], value, key, partition=0, headers=headers)
            async with ExactlyOnce(
                topics[0], group_id=topics[0], idle_timeout_ms=500, **options
            ) as exactly_once:
                await exactly_once.run(copied_to_one)

        await write_and_copy(first, (None, b"between", 0, ()), second)
        await write_and_copy(third, (None, b"behind", 0, ()))
        await write_and_copy()
        await producer.send_and_wait(topics[1], b"end", partition=0)
    copies: list[bytes | None] = []
    async with (
        Consumer(
            topics[1], auto_offset_reset="earliest", isolation_level="read_committed", **options
        ) as consumer,
        asyncio.timeout(60),
    ):
        while b"end" not in copies:
            copies.append((await consumer.getone()).value)
    assert copies == [b"between", b"l" * 300, b"behind", b"end"]


def test_without_an_event_loop(cluster: LocalCluster, topics: tuple[str, str]) -> None:
    asyncio.run(fill(cluster, topics[0], range(40)))
    options: dict[str, Any] = {
        "group_id": topics[0],
        "bootstrap_servers": cluster.bootstrap_servers,
        "max_batch_records": 10,
        "max_batch_ms": 20,
    }
    with ottla.sync.ExactlyOnce(topics[0], **options) as exactly_once:
        for batch in exactly_once:
            with batch:
                for record in batch.records:
                    batch.send(topics[1], record.value, partition=record.partition)
                with pytest.raises(OutOfTurn, match="finish"):
                    exactly_once.stop()
            assert batch.committed
            break
    with ottla.sync.Consumer(bootstrap_servers=cluster.bootstrap_servers) as other:

        def by_generator(record: ConsumerRecord) -> Iterator[NewRecord]:
            other.partitions_for(topics[0])  # on the thread of the clients' loop it would be refused
            yield copying(topics)(record)
            if record.value == b"39":
                raise ArithmeticError

        with (
            ottla.sync.ExactlyOnce(topics[0], idle_timeout_ms=500, **options) as exactly_once,
            pytest.raises(ArithmeticError),
        ):
            exactly_once.run(by_generator)
        with ottla.sync.ExactlyOnce(topics[0], idle_timeout_ms=500, **options) as exactly_once:
            exactly_once.run(by_generator, on_error=lambda record, error: copying(topics)(record))
    assert asyncio.run(found(cluster, topics[1])) == wanted(40)


def test_options_are_those_of_the_two_clients() -> None:
    decided = {"group_id", "isolation_level", "max_poll_records"}
    decided |= {"enable_auto_commit", "auto_commit_interval_ms", "audit_tier"}
    consumer = get_type_hints(ConsumerOptions)
    hints = get_type_hints(WriterOptions) | {name: consumer[name] for name in consumer.keys() - decided}
    own = {option.name: option.type for option in declared_options(ProcessingOptions)}
    assert get_type_hints(ExactlyOnceOptions) == own | hints
    assert {option.name: option.type for option in EXACTLY_ONCE_OPTIONS} == own | hints
    for wrong, message in (
        ({"max_batch_ms": 10_000}, r"^max_batch_ms is below transaction_timeout_ms \(10000\), not 10000$"),
        ({"max_batch_ms": 0}, "^max_batch_ms is 1 to "),
        ({"max_batch_records": 0}, "1 or more"),
        ({"group_id": ""}, "group_id"),
    ):
        with pytest.raises(ValueError, match=message):
            ExactlyOnce("orders", **({"group_id": "g"} | wrong))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="no option 'isolation_level'"):
        ExactlyOnce("orders", group_id="g", isolation_level="read_uncommitted")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="ExactlyOnce needs the option 'group_id'"):
        ExactlyOnce("orders")  # type: ignore[call-arg]
