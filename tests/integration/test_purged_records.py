"""librdkafka purges records when it aborts, although the leader may have some of them.

Records committed afterwards are there, and none of the purged ones.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from ottla.protocol.errors import ErrorCode
from tests.cluster import RunningCluster, running_cluster, wait_for, wait_until
from tests.integration.history import SMALL_CLUSTER, make_topic
from tests.integration.raw_transactions import RawTransactions

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]

CALL_S = 20.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    """Run three brokers; each test leaves all of them running."""
    with running_cluster(tmp_path_factory.mktemp("purged"), quorum=1, settings=SMALL_CLUSTER) as running:
        yield running


class Purging:
    """A transactional producer that retries a batch only after seconds, so that unanswered records are in its queue at
    an abort, and are purged there.
    """

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._topic = topic
        self.told: dict[bytes | None, str | None] = {}
        self._in_flight = 0
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": topic,
                "request.timeout.ms": 400,
                "retry.backoff.ms": 10_000,
                "retry.backoff.max.ms": 10_000,
                "linger.ms": 0,
                "statistics.interval.ms": 20,
                "stats_cb": self._counted,
                "log_level": 0,
            }
        )
        self._producer.init_transactions(CALL_S)

    def begin(self) -> None:
        self._producer.begin_transaction()

    def produce(self, *values: bytes) -> None:
        """Produce values without waiting for their answers."""
        for value in values:
            self._producer.produce(self._topic, value, partition=0, on_delivery=self._told)
        self._producer.poll(0)

    def flush(self) -> None:
        assert self._producer.flush(CALL_S) == 0

    def wait_sent_and_queued_again(self, count: int) -> None:
        """Wait until this number of records was sent, got no final answer, and is queued again."""

        def in_flight(records: int) -> bool:
            self._producer.poll(0.02)
            return self._in_flight == records and len(self._producer) == count

        wait_until(lambda: in_flight(count), f"{count} records on their way")
        wait_until(lambda: in_flight(0), f"{count} records in the queue again")

    def commits(self) -> bool:
        """Return True if the transaction is committed, False if it must be aborted."""
        try:
            self._producer.commit_transaction(CALL_S)
        except KafkaException as error:
            if error.args[0].txn_requires_abort():
                return False
            raise
        return True

    def abort(self) -> None:
        """Abort, with retries."""
        deadline = time.monotonic() + 60
        while True:
            try:
                return self._producer.abort_transaction(CALL_S)
            except KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() > deadline:
                    raise

    def _counted(self, statistics: str) -> None:
        partition = json.loads(statistics)["topics"].get(self._topic, {}).get("partitions", {}).get("0", {})
        self._in_flight = partition.get("msgs_inflight", 0)

    def _told(self, error: KafkaError | None, message: Message) -> None:
        self.told[message.value()] = None if error is None else error.name()


@pytest.mark.parametrize(("purged", "following"), [(1, 1), (3, 1)])
def test_a_committed_record_is_there_though_its_sequence_was_used_before(
    cluster: RunningCluster, purged: int, following: int
) -> None:
    """The followers are asleep, and a batch has no answer in time.

    It is purged by the abort, and the next transaction uses its sequence.
    """
    topic = f"purged-{purged}-{following}"
    make_topic(cluster.bootstrap, topic, 1, min_insync_replicas=2)
    cluster.wait_until_in_sync(topic)
    leader = wait_for(lambda: cluster.leader(topic, 0), "a leader")
    followers = [broker for broker in cluster.brokers if broker.id != leader]
    producer = Purging(cluster.bootstrap, topic)
    producer.begin()
    producer.produce(b"first")
    assert producer.commits()

    lost = [b"purged-%d" % number for number in range(purged)]
    producer.begin()
    producer.produce(b"aborted")
    producer.flush()
    for follower in followers:
        follower.pause()
    try:
        producer.produce(*lost)
        producer.wait_sent_and_queued_again(purged)
    finally:
        for follower in followers:
            follower.resume()
    producer.abort()
    assert all(producer.told[value] == "_PURGE_QUEUE" for value in lost), producer.told

    values = [b"committed-%d" % number for number in range(following)]
    for _ in range(3):
        producer.begin()
        producer.produce(*values)
        if producer.commits():
            break
        producer.abort()
    else:
        pytest.fail("no transaction could be committed")
    assert committed(cluster.bootstrap, topic) == [b"first", *values]


def test_whose_sequences_were_used_goes_on_under_the_next_epoch(cluster: RunningCluster) -> None:
    make_topic(cluster.bootstrap, "reused", 1)
    with RawTransactions(cluster.bootstrap) as raw:
        who = raw.init("reused", version=4)
        raw.add(who, "reused", [0])
        assert raw.produce(who, "reused", 0, b"aborted") is ErrorCode.NONE
        assert raw.end(who, commit=False, version=3).code is ErrorCode.NONE
        raw.add(who, "reused", [0])
        assert raw.produce(who, "reused", 0, b"another") is ErrorCode.UNKNOWN_PRODUCER_ID
        assert raw.end(who, commit=False, version=3).code is ErrorCode.NONE
        who = raw.try_init(who, version=4).who
        raw.add(who, "reused", [0])
        assert raw.produce(who, "reused", 0, b"committed") is ErrorCode.NONE
        assert raw.produce(who, "reused", 0, b"committed") is ErrorCode.NONE, (
            "a duplicate in its own transaction"
        )
        assert raw.end(who, commit=True, version=3).code is ErrorCode.NONE
    assert committed(cluster.bootstrap, "reused") == [b"committed"]


def committed(bootstrap: str, topic: str) -> list[bytes]:
    """Return the values that a read-committed consumer sees up to the end."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": topic, "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    seen: list[bytes] = []
    deadline = time.monotonic() + CALL_S
    try:
        while True:
            assert time.monotonic() < deadline, f"the end was not reached: {seen}"
            message = consumer.poll(0.5)
            if message is None:
                continue
            if message.error() is not None:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                return seen
            seen.append(message.value() or b"")
    finally:
        consumer.close()
