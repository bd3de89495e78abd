"""`ottla.sync` with a real cluster: threads, interrupts, forks, the end of the interpreter, and forbidden uses."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import closing, contextmanager
from itertools import islice
from typing import Any

import pytest

from ottla import (
    ClientClosed,
    ClientError,
    ConsumerRecord,
    KafkaError,
    NewTopic,
    OutOfTurn,
    RecordMetadata,
    RequestTimedOut,
    TopicPartition,
    TransactionAborted,
    TransactionFailed,
)
from ottla.client.sync.handover import Delivery, Sent
from ottla.client.sync.loop_thread import _Call, shared_loop
from ottla.sync import Admin, Consumer, ExactlyOnce, Producer, TransactionWriter
from tests.cluster import RunningCluster, running_cluster, wait_until

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    settings = {"group.initial.rebalance.delay.ms": "0"}
    directory = tmp_path_factory.mktemp("sync")
    with running_cluster(
        directory, quorum=1, brokers=1, settings=settings, arguments=("--combined",)
    ) as running:
        yield running


@pytest.fixture
def topic(cluster: RunningCluster, request: pytest.FixtureRequest) -> str:
    """Return a new topic of two partitions."""
    name = request.node.name.translate({ord("["): "-", ord("]"): None})[:200]
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topics([NewTopic(name, 2, 1)])
    return name


def reader(cluster: RunningCluster, topic: str, group_id: str | None = None, **options: bool) -> Consumer:
    return Consumer(
        topic,
        bootstrap_servers=cluster.bootstrap,
        group_id=group_id,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        heartbeat_interval_ms=100,
        **options,  # type: ignore[arg-type]
    )


def read(cluster: RunningCluster, topic: str, count: int) -> list[ConsumerRecord]:
    with reader(cluster, topic) as consumer:
        return [consumer.getone(timeout_ms=30_000) for _ in range(count)]


@contextmanager
def silent(cluster: RunningCluster) -> Iterator[None]:
    """Make the cluster silent until the block ends."""
    node = cluster.brokers[0]
    node.pause()
    try:
        yield
    finally:
        node.resume()


@pytest.fixture(autouse=True)
def interrupts() -> Iterator[None]:
    """Enable interrupts, also where a shell has started the tests in the background, and so without them."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupt_when(condition: Callable[[], bool]) -> None:
    """Send Control-C as soon as the condition holds."""
    wait_until(condition, "a call to interrupt")
    os.kill(os.getpid(), signal.SIGINT)


@contextmanager
def interrupt_once(condition: Callable[[], bool]) -> Iterator[None]:
    """Send Control-C as soon as the condition holds, and expect it to end the block."""

    thread = threading.Thread(target=interrupt_when, args=(condition,))
    with pytest.raises(KeyboardInterrupt):
        thread.start()
        yield
    thread.join()


def under_way(name: str) -> Callable[[], bool]:
    """Return a function that is true while a coroutine of this name runs on the clients' loop."""
    loop = shared_loop()._loop
    return lambda: any(name in str(task.get_coro()) for task in asyncio.all_tasks(loop))


# producing and consuming


def test_records_come_back_as_they_were_sent(cluster: RunningCluster, topic: str) -> None:
    with Producer(bootstrap_servers=cluster.bootstrap) as producer:
        futures = [producer.send(topic, b"%d" % number, partition=0) for number in range(5_000)]
        first = producer.send_and_wait(
            topic, b"v", key=b"k", partition=1, headers=[("h", b"1")], timestamp_ms=17
        )
        producer.flush()
        assert [future.result(0).offset for future in futures] == list(range(5_000))
        assert first == (topic, 1, 0, 17)
        assert producer.partitions_for(topic) == [0, 1]
    with reader(cluster, topic) as consumer:
        found = list(islice(consumer, 5_001))
    assert [record.value for record in found if record.partition == 0] == [
        b"%d" % number for number in range(5_000)
    ]
    (other,) = (record for record in found if record.partition == 1)
    assert (other.key, other.value, other.timestamp_ms, list(other.headers)) == (
        b"k",
        b"v",
        17,
        [("h", b"1")],
    )


def test_many_threads_share_a_producer_and_a_consumer(cluster: RunningCluster, topic: str) -> None:
    with Producer(bootstrap_servers=cluster.bootstrap) as producer, ThreadPoolExecutor(8) as threads:

        def send(thread: int) -> None:
            futures = [
                producer.send(topic, b"%d" % number, key=b"%d" % thread, partition=thread % 2)
                for number in range(500)
            ]
            assert len({future.result(30).offset for future in futures}) == 500

        for done in [threads.submit(send, thread) for thread in range(8)]:
            done.result()
    with reader(cluster, topic) as consumer, ThreadPoolExecutor(4) as threads:
        taken = [
            threads.submit(lambda: [consumer.getone(timeout_ms=30_000) for _ in range(1_000)])
            for _ in range(4)
        ]
        found = sorted(
            (record for some in taken for record in some.result()), key=lambda record: record.offset
        )
    for thread in range(8):
        values = [record.value for record in found if record.key == b"%d" % thread]
        assert values == [b"%d" % number for number in range(500)]


def test_both_ways_into_a_batch_mix_from_many_threads(cluster: RunningCluster, topic: str) -> None:
    """Threads add to open batches themselves, while the loop sends and settles these, and handles slower sends."""
    before_s = sys.getswitchinterval()
    options: Any = {"bootstrap_servers": cluster.bootstrap, "batch_size": 2_000, "buffer_memory": 50_000}
    sys.setswitchinterval(1e-5)
    try:
        with Producer(**options) as producer, ThreadPoolExecutor(4) as threads:

            def send(thread: int) -> list[Future[RecordMetadata]]:
                futures = []
                for number in range(2_000):
                    headers = [("long", b"way")] if number % 50 == 0 else ()
                    value = b"%d-%d" % (thread, number)
                    futures.append(producer.send(topic, value, partition=0, headers=headers))
                return futures

            sent = [done.result() for done in [threads.submit(send, thread) for thread in range(4)]]
            offsets = [[future.result(30).offset for future in futures] for futures in sent]
            producer.flush()
            assert producer._client._appender.buffered_bytes == 0
    finally:
        sys.setswitchinterval(before_s)
    values = {record.offset: record.value for record in read(cluster, topic, 8_000)}
    for thread, places in enumerate(offsets):
        assert places == sorted(places)
        assert [values[place] for place in places] == [b"%d-%d" % (thread, n) for n in range(2_000)]


def test_only_records_that_were_seen_are_committed(cluster: RunningCluster, topic: str) -> None:
    here = TopicPartition(topic, 0)
    with Producer(bootstrap_servers=cluster.bootstrap) as producer:
        for number in range(100):
            producer.send(topic, b"%d" % number, partition=0)
    with reader(cluster, topic, "billing") as consumer:
        assert [record.offset for record in islice(consumer, 10)] == list(range(10))
        consumer.commit()
        assert consumer.committed(here) == 10
        assert consumer.position(here) == 10
    with reader(cluster, topic, "billing", enable_auto_commit=True) as consumer:
        assert [record.offset for record in islice(consumer, 5)] == list(range(10, 15))
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        assert admin.committed_offsets("billing")[here] == 15


def test_places_in_a_partition(cluster: RunningCluster, topic: str) -> None:
    here = TopicPartition(topic, 0)
    with Producer(bootstrap_servers=cluster.bootstrap) as producer:
        for number in range(5):
            producer.send(topic, b"%d" % number, partition=0, timestamp_ms=1_000 + number)
    with Consumer(bootstrap_servers=cluster.bootstrap) as consumer:
        consumer.assign([here])
        assert consumer.assignment() == {here}
        consumer.seek(here, 3)
        assert next(consumer).value == b"3"
        consumer.seek_to_beginning()
        assert consumer.getmany(timeout_ms=10_000, max_records=2)[here][1].offset == 1
        assert consumer.end_offsets([here]) == {here: 5}
        assert consumer.offsets_for_times({here: 1_002}) == {here: 2}
        with pytest.raises(ValueError, match="not assigned to this consumer"):
            consumer.seek(TopicPartition(topic, 1), 0)


def test_what_stands_in_the_way_of_a_record_is_raised_where_it_is_sent(
    cluster: RunningCluster, topic: str
) -> None:
    with Producer(bootstrap_servers=cluster.bootstrap, max_block_ms=100) as producer:
        producer.send(topic, b"")
        with pytest.raises(KafkaError, match="has 2 partitions, there is none numbered 9"):
            producer.send(topic, b"", partition=9)
        with pytest.raises(KafkaError, match="MESSAGE_TOO_LARGE"):
            producer.send(topic, bytes(2 << 20))
        with pytest.raises(TypeError, match="bytes or None, not str"):
            producer.send(topic, "text")  # type: ignore[arg-type]
        with pytest.raises(KafkaError, match="INVALID_TOPIC_EXCEPTION"):
            producer.send("no/topic", b"")
        assert not producer.send(topic, b"").cancel()


# transactions


def test_transactions_count_whole_or_not_at_all(cluster: RunningCluster, topic: str) -> None:
    with Producer(bootstrap_servers=cluster.bootstrap, transactional_id=topic) as producer:
        with producer.transaction() as transaction:
            for number in range(300):
                producer.send(topic, b"%d" % number, partition=number % 2)
        assert transaction.result is not None
        assert not transaction.result.was_committed
        with pytest.raises(ZeroDivisionError), producer.transaction():
            lost = [producer.send(topic, b"aborted", partition=number % 2) for number in range(300)]
            raise ZeroDivisionError
        wait(lost, 30)
        kinds = {type(future.exception(0)) for future in lost}
        assert kinds <= {TransactionAborted, type(None)}
        with pytest.raises(OutOfTurn, match="begin a transaction first"):
            producer.send(topic, b"outside")
        producer.begin_transaction()
        producer.send(topic, b"aborted", partition=0)
        producer.abort_transaction()
        producer.begin_transaction()
        producer.send(topic, b"300", partition=0)
        producer.commit_transaction()
    with reader(cluster, topic) as consumer:
        found = [consumer.getone(timeout_ms=10_000).value for _ in range(301)]
        assert sorted(found) == sorted(b"%d" % number for number in range(301))
        assert consumer.getmany(timeout_ms=100) == {}


def test_a_record_that_could_not_be_handed_on_keeps_its_transaction_from_being_committed(
    cluster: RunningCluster, topic: str
) -> None:
    def partitioner(key: bytes, count: int) -> int:
        if key == b"bad":
            raise ZeroDivisionError
        return 0

    with Producer(
        bootstrap_servers=cluster.bootstrap, transactional_id=topic, partitioner=partitioner
    ) as producer:
        with pytest.raises(TransactionFailed, match="ZeroDivisionError"), producer.transaction():
            producer.send(topic, b"good", key=b"good").result(30)
            bad = producer.send(topic, b"bad", key=b"bad")
        assert isinstance(bad.exception(0), ClientError)
        with producer.transaction():
            producer.send(topic, b"better", key=b"good")
    assert [record.value for record in read(cluster, topic, 1)] == [b"better"]


def test_writers_in_threads_and_whole_transactions(cluster: RunningCluster, topic: str) -> None:
    options = {"bootstrap_servers": cluster.bootstrap}

    def work(token: str, number: int) -> str:
        with TransactionWriter.join(token, bootstrap_servers=cluster.bootstrap) as writer:
            for _ in range(50):
                writer.send(topic, b"%d" % number)
            return str(writer.finish())

    with (
        Producer(transactional_id=topic, bootstrap_servers=cluster.bootstrap) as owner,
        ThreadPoolExecutor(4) as threads,
    ):
        transaction = owner.begin(app_version=7)
        receipts = list(threads.map(work, [transaction.token] * 4, range(4)))
        assert not transaction.commit(writers=receipts[:3]).was_committed
        assert owner.last_app_version == 7
        with owner.transaction(app_version=7) as again:
            owner.send(topic, b"again")
        assert again.result is not None
        assert again.result.was_committed
    with Consumer(topic, auto_offset_reset="earliest", **options) as consumer:
        with closing(consumer.transactions()) as transactions:
            whole = next(transactions)
        assert sorted(r.value or b"" for some in whole.records.values() for r in some) == sorted(
            [b"0", b"1", b"2"] * 50
        )
        assert len(list(islice(consumer, 150))) == 150  # other reads go on


def test_offsets_of_a_blocking_consumer_are_part_of_a_transaction(
    cluster: RunningCluster, topic: str
) -> None:
    with Producer(bootstrap_servers=cluster.bootstrap) as producer:
        producer.send(topic, b"in", partition=0)
    with (
        reader(cluster, topic, "copying") as consumer,
        Producer(bootstrap_servers=cluster.bootstrap, transactional_id=topic) as producer,
    ):
        record = next(consumer)
        with producer.transaction():
            producer.send(topic, b"out", partition=1)
            producer.send_offsets_to_transaction({TopicPartition(topic, 0): record.offset + 1}, consumer)
        assert consumer.committed(TopicPartition(topic, 0)) == 1


# waiting: with an end, interrupted, in the wrong place


def test_a_wait_can_have_an_end(cluster: RunningCluster, topic: str) -> None:
    with (
        Producer(bootstrap_servers=cluster.bootstrap) as producer,
        reader(cluster, topic) as consumer,
    ):
        with pytest.raises(RequestTimedOut, match="no record came within 50 ms of timeout_ms"):
            consumer.getone(timeout_ms=50)
        producer.send_and_wait(topic, b"1")
        assert consumer.getone(timeout_ms=10_000).value == b"1"
        with silent(cluster):
            late = producer.send(topic, b"2")
            with pytest.raises(RequestTimedOut, match="longer than 50 ms of timeout_ms"):
                producer.flush(timeout_ms=50)
        assert late.result(30).offset >= 0
        assert next(consumer).value == b"2"
        with pytest.raises(RequestTimedOut, match="no record came within 0 ms of timeout_ms"):
            consumer.getone(timeout_ms=0)


def test_a_full_buffer_holds_senders_up_and_loses_nothing(cluster: RunningCluster, topic: str) -> None:
    with Producer(bootstrap_servers=cluster.bootstrap, buffer_memory=100_000, batch_size=10_000) as producer:
        producer.send_and_wait(topic, b"", partition=0)
        futures = []
        with silent(cluster), pytest.raises(RequestTimedOut, match="the buffer was full"):
            while True:
                futures.append(producer.send(topic, bytes(1_000), partition=0, timeout_ms=200))
                assert len(futures) < 1_000
        assert [future.result(30).offset for future in futures] == list(range(1, len(futures) + 1))


def test_a_record_that_was_taken_is_told_of_though_the_wait_has_an_end(
    cluster: RunningCluster, topic: str
) -> None:
    with Producer(bootstrap_servers=cluster.bootstrap, batch_size=100) as producer:
        producer.partitions_for(topic)
        record, size = producer._writer.steps.record(topic, b"v" * 200, None, 0, None, ())
        before, sent = (Sent(topic, 0, record, size, Delivery()) for _ in range(2))

        async def cancelled_in_its_second_step() -> bool:
            await producer._enqueue(before)
            taking = asyncio.ensure_future(producer._enqueue(sent))  # whose batch is another one
            await asyncio.sleep(0)
            taking.cancel()
            await asyncio.wait([taking])
            return taking.cancelled()

        assert not shared_loop().run(cancelled_in_its_second_step())
        assert sent.delivery.result(30).offset == 1


def test_an_interrupt_leaves_a_client_as_it_was(cluster: RunningCluster, topic: str) -> None:
    with (
        Producer(bootstrap_servers=cluster.bootstrap, transactional_id=topic) as producer,
        reader(cluster, topic) as consumer,
    ):
        with interrupt_once(under_way("refill")):
            for _ in consumer:
                pytest.fail("there is nothing to read")
        with interrupt_once(under_way("getmany")):
            consumer.getmany(timeout_ms=None)
        producer.begin_transaction()
        producer.send(topic, b"1")
        with interrupt_once(under_way("commit")), silent(cluster):
            producer.commit_transaction()
        producer.commit_transaction()  # asks again how it ended
        assert next(consumer).value == b"1"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("seed", range(3))
def test_an_interrupt_anywhere_in_sending_loses_nothing_that_was_promised(
    cluster: RunningCluster, topic: str, seed: int
) -> None:
    chance = random.Random(seed)
    with Producer(bootstrap_servers=cluster.bootstrap) as producer:
        producer.send_and_wait(topic, b"", partition=0)
        futures: list[Future[RecordMetadata]] = []
        for _ in range(15):
            due = len(futures) + chance.randrange(1, 500)
            thread = threading.Thread(target=interrupt_when, args=(lambda due=due: len(futures) > due,))
            try:
                thread.start()
                while (
                    len(futures) < due + 5_000
                ):  # Python itself drops an interrupt that comes within a finalizer
                    futures.append(producer.send(topic, b"", partition=0))
                thread.join()
            except KeyboardInterrupt:
                thread.join()
        producer.flush(timeout_ms=30_000)
        offsets = [future.result(0).offset for future in futures]
        assert offsets == sorted(set(offsets)), f"seed {seed}"


def test_what_an_interrupt_kept_from_being_taken_is_taken_for_whoever_waits(
    cluster: RunningCluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(callback: Callable[..., object], *args: object) -> None:
        raise KeyboardInterrupt

    with Producer(bootstrap_servers=cluster.bootstrap) as producer:
        producer.send_and_wait(topic, b"0", partition=0)
        record, size = producer._writer.steps.record(topic, b"1", None, 0, None, ())
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(shared_loop(), "soon", interrupted)
            producer._handover.put(Sent(topic, 0, record, size, Delivery()), None)
        producer._handover.wait_until_empty(30_000)
        assert producer.send_and_wait(topic, b"2", partition=0).offset == 2


def test_what_was_done_when_the_interrupt_came_is_told_to_who_can_take_it_back() -> None:
    finished, untouched = threading.Event(), []

    async def stubborn() -> int:
        try:
            await asyncio.sleep(3_600)
        except asyncio.CancelledError:
            return 5
        return 6

    def unseen(result: int) -> None:
        untouched.append(result)
        finished.set()

    with interrupt_once(under_way("stubborn")):
        shared_loop().run(stubborn(), unseen=unseen)
    assert finished.wait(30)
    assert untouched == [5]
    assert shared_loop().run(stubborn(), timeout_ms=10) == 5, "it was done all the same"


def interrupt_at_the_end_of_the_next_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Send Control-C when the call is done, and its thread has yet to wake."""
    wait_for = _Call.wait

    def wait_and_be_interrupted(call: _Call[Any], timeout_s: float | None) -> bool:
        assert wait_for(call, timeout_s)
        monkeypatch.setattr(_Call, "wait", wait_for)
        raise KeyboardInterrupt

    monkeypatch.setattr(_Call, "wait", wait_and_be_interrupted)


def test_what_had_begun_when_the_interrupt_came_is_ended(
    cluster: RunningCluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Producer(bootstrap_servers=cluster.bootstrap, transactional_id=topic) as producer:
        interrupt_at_the_end_of_the_next_call(monkeypatch)
        with pytest.raises(KeyboardInterrupt), producer.transaction():
            pytest.fail("the block is never entered")
        with producer.transaction():
            producer.send(topic, b"1")
    with reader(cluster, topic) as consumer:
        assert next(consumer).value == b"1"
    never_used = reader(cluster, topic)
    interrupt_at_the_end_of_the_next_call(monkeypatch)
    with pytest.raises(KeyboardInterrupt), never_used:
        pytest.fail("the block is never entered")
    with pytest.raises(ClientClosed):
        never_used.getmany()
    copier = ExactlyOnce(topic, group_id=topic, bootstrap_servers=cluster.bootstrap)
    with copier:
        for batch in copier:
            interrupt_at_the_end_of_the_next_call(monkeypatch)
            with pytest.raises(KeyboardInterrupt), batch:
                pytest.fail("the block is never entered")
            break
        copier.stop(timeout_ms=30_000)  # which waits for no batch


def test_a_read_that_nobody_saw_is_read_again(cluster: RunningCluster, topic: str) -> None:
    with Producer(bootstrap_servers=cluster.bootstrap) as producer:
        for number in range(10):
            producer.send(topic, b"%d" % number, partition=0)
    with reader(cluster, topic) as consumer:
        seen = consumer.getmany(timeout_ms=10_000, max_records=4)
        shared_loop().soon(consumer._read_again, seen)
        assert next(consumer).offset == 0


def test_calls_on_the_loop_s_own_thread_are_refused(cluster: RunningCluster, topic: str) -> None:
    raised: list[BaseException] = []
    # No record is sent before the flush. A completed delivery calls its callback in the thread that adds it.
    with Producer(bootstrap_servers=cluster.bootstrap, linger_ms=60_000) as producer:

        def misuse(_: object) -> None:
            for call in (producer.flush, lambda: producer.send(topic, b""), producer.stop):
                try:
                    call()  # type: ignore[operator]
                except RuntimeError as error:
                    raised.append(error)

        future = producer.send(topic, b"")
        future.add_done_callback(misuse)
        producer.flush()
        wait_until(lambda: len(raised) == 3, "three refusals")
    assert all("would wait for itself: call it from another thread" in str(error) for error in raised)


def test_a_callback_that_exits_does_not_end_the_loop(
    cluster: RunningCluster, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    with Producer(bootstrap_servers=cluster.bootstrap) as producer:
        for _ in range(100):
            producer.send(topic, b"", partition=0).add_done_callback(sys.exit)
        last = producer.send(topic, b"", partition=0)
        assert last.result(30).offset == 100
        assert producer.send_and_wait(topic, b"", partition=0).offset == 101
    assert "the callback of a record's future failed" in caplog.text
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        with pytest.raises(SystemExit):
            admin.describe_producers([TopicPartition(topic, 0)], progress=lambda done, total: sys.exit(3))
        assert topic in admin.list_topics()


async def test_a_thread_with_a_loop_of_its_own_may_call(cluster: RunningCluster, topic: str) -> None:
    with Producer(bootstrap_servers=cluster.bootstrap) as producer:
        assert producer.send_and_wait(topic, b"").offset == 0


# the end


def test_nothing_works_after_the_end(cluster: RunningCluster, topic: str) -> None:
    producer, consumer = Producer(bootstrap_servers=cluster.bootstrap), reader(cluster, topic)
    with producer, consumer:
        last = producer.send(topic, b"")
    assert last.result(0).offset == 0
    for call in (
        lambda: producer.send(topic, b""),
        lambda: producer.send_and_wait(topic, b""),
        consumer.getone,
    ):
        with pytest.raises(ClientClosed):
            call()  # type: ignore[operator]
    assert list(consumer) == []
    producer.stop()
    consumer.stop()


def test_stopping_ends_the_iteration_of_another_thread(cluster: RunningCluster, topic: str) -> None:
    with reader(cluster, topic) as consumer, ThreadPoolExecutor(1) as threads:
        reading = threads.submit(list, consumer)
        wait_until(under_way("refill"), "a thread that reads")
        consumer.stop()
        assert reading.result(30) == []


FORKING = """
import gc, os, sys
from ottla import MadeBeforeFork
from ottla.sync import Consumer, Producer

bootstrap, topic = sys.argv[1:]
producer = Producer(bootstrap_servers=bootstrap)
consumer = Consumer(topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest", group_id="forking")
with producer, consumer:
    producer.send_and_wait(topic, b"parent", partition=0)
    assert next(consumer).value == b"parent"
    child = os.fork()
    if child == 0:
        for call in (lambda: producer.send(topic, b"x"), producer.flush, consumer.getone, consumer.commit):
            try:
                call()
            except MadeBeforeFork as error:
                assert "make another one in the child" in str(error)
            else:
                sys.exit("a call went through")
        with Producer(bootstrap_servers=bootstrap) as new:
            new.send_and_wait(topic, b"child", partition=0)
        del producer, consumer
        gc.collect()
        sys.exit(0)
    assert os.waitpid(child, 0)[1] == 0
    producer.send_and_wait(topic, b"parent", partition=0)
    assert [next(consumer).value for _ in range(2)] == [b"child", b"parent"]
    consumer.commit()
print("done")
"""


def run_script(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    # Python 3.12 and later warns of every fork of a process with threads; the test shows that it is harmless.
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", script, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_a_fork_leaves_the_parent_s_clients_to_the_parent(cluster: RunningCluster, topic: str) -> None:
    done = run_script(FORKING, cluster.bootstrap, topic)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


FORKING_WHILE_BUSY = """
import os, sys, threading
from ottla.sync import Consumer, Producer

bootstrap, topic = sys.argv[1:]
with Producer(bootstrap_servers=bootstrap) as producer, Consumer(topic, bootstrap_servers=bootstrap) as consumer:
    futures, over = [producer.send(topic, b"")], threading.Event()
    futures[0].result()

    def send():
        while not over.wait(0.01):
            futures.extend(producer.send(topic, b"x") for _ in range(20))

    def read():
        while not over.is_set():
            consumer.getmany(timeout_ms=100)

    threads = [threading.Thread(target=send), threading.Thread(target=read)]
    for thread in threads:
        thread.start()
    for number in range(4):
        child = os.fork()
        if child == 0:
            with Producer(bootstrap_servers=bootstrap) as new:
                new.send_and_wait(topic, b"child")
            sys.exit(0)
        assert os.waitpid(child, 0)[1] == 0
    over.set()
    for thread in threads:
        thread.join()
    producer.flush()
    assert all(future.exception(0) is None for future in futures)
print("done")
"""


def test_forks_while_other_threads_send_and_read_disturb_nobody(cluster: RunningCluster, topic: str) -> None:
    done = run_script(FORKING_WHILE_BUSY, cluster.bootstrap, topic)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


CARELESS = """
import sys
from ottla.sync import Consumer, Producer

bootstrap, topic = sys.argv[1:]
producer = Producer(bootstrap_servers=bootstrap, linger_ms=1_000)
producer.start()
producer.partitions_for(topic)
consumer = Consumer(topic, bootstrap_servers=bootstrap, group_id="careless")
consumer.start()
producer.send(topic, b"1")
producer.send(topic, b"2")
print("sent", flush=True)
sys.stdin.readline()
"""


def test_clients_that_were_not_stopped_are_at_the_end(cluster: RunningCluster, topic: str) -> None:
    done = run_script(CARELESS, cluster.bootstrap, topic)
    assert (done.returncode, done.stdout, done.stderr) == (0, "sent\n", "")
    assert {record.value for record in read(cluster, topic, 2)} == {b"1", b"2"}


def test_a_cluster_that_is_silent_does_not_keep_the_interpreter(cluster: RunningCluster, topic: str) -> None:
    script = [sys.executable, "-c", CARELESS, cluster.bootstrap, topic]
    with subprocess.Popen(
        script, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "sent\n"
        with silent(cluster):
            began = time.monotonic()
            _, warning = running.communicate("\n", timeout=60)
            took_s = time.monotonic() - began
    assert running.returncode == 0
    assert "records may not be sent" in warning
    assert took_s < 30
