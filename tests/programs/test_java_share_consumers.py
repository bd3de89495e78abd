"""Kafka's share consumers for Java: every type of acknowledgement, limits of polls, lost locks, and killed brokers."""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from tests import java
from tests.cluster import RunningCluster, running_cluster, wait_until
from tests.integration.conftest import create
from tests.integration.history import SMALL_CLUSTER
from tests.integration.share_groups import (
    from_the_beginning,
    state_coordinator,
    unfinished,
    wait_until_finished,
)
from tests.programs.jvm import needs_jdk

pytestmark = [pytest.mark.java, pytest.mark.short, needs_jdk, pytest.mark.timeout(300)]
PARTITIONS = 3
LOCK_MS = 2_000
WAIT_S = 90.0
POLL_MS = 1_000


class Taken(NamedTuple):
    """A record of a poll."""

    partition: int
    offset: int
    value: str
    delivery: int


class Clients:
    """Share consumers in one JVM."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._program = java.Clients("ShareClients")

    def call(self, name: str, do: str, **arguments: object) -> Any:
        """Return the value of a call of a consumer. Raises java.Refused."""
        return self._program.call(do, name=name, **arguments)

    def open(self, name: str, group: str, topic: str, **settings: str) -> Member:
        """Open a consumer whose settings have `_` for a dot."""
        given = {name.replace("_", "."): value for name, value in settings.items()}
        given |= {"bootstrap.servers": self._bootstrap, "group.id": group}
        self.call(name, "open", topic=topic, settings=given)
        return Member(self, name)

    def close(self) -> None:
        """Kill the JVM, with consumers that are open."""
        self._program.close()


class Member:
    """A share consumer."""

    def __init__(self, clients: Clients, name: str) -> None:
        self._clients, self._name = clients, name

    def poll(self) -> list[Taken]:
        """Return the records of a poll; none after a second."""
        return [Taken(*row) for row in self._clients.call(self._name, "poll", ms=POLL_MS)]

    def take(self) -> list[Taken]:
        """Return the records of the first poll with some."""
        deadline = time.monotonic() + WAIT_S
        while not (found := self.poll()):
            assert time.monotonic() < deadline, "the records do not arrive"
        return found

    def acknowledge(self, records: list[Taken], kind: str) -> None:
        """Acknowledge records with the next poll or commit."""
        places = [record[:2] for record in records]
        self._clients.call(self._name, "acknowledge", places=places, type=kind)

    def commit(self) -> dict[int, str]:
        """Send acknowledgements. Returns the name of an error by partition; empty for success."""
        found = self._clients.call(self._name, "commit")
        return {int(partition): error for partition, error in found.items()}

    def told(self) -> list[tuple[int, int, str]]:
        """Return partition, offset and error of the acknowledgements whose outcome the callback has told."""
        return [tuple(row) for row in self._clients.call(self._name, "told")]

    def lock_ms(self) -> int:
        """Return the duration of locks that the broker has told; -1 before."""
        return int(self._clients.call(self._name, "lock"))

    def close(self) -> None:
        """Close the consumer, which sends its acknowledgements."""
        self._clients.call(self._name, "close")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    settings = SMALL_CLUSTER | {
        "share.coordinator.state.topic.num.partitions": "3",
        "group.share.min.record.lock.duration.ms": "1000",
        "broker.session.timeout.ms": "1000",
    }
    folder = tmp_path_factory.mktemp("queues")
    with running_cluster(folder, quorum=1, brokers=3, settings=settings) as running:
        yield running


@pytest.fixture(scope="module")
def clients(cluster: RunningCluster) -> Iterator[Clients]:
    started = Clients(cluster.bootstrap)
    yield started
    started.close()


class Queue(NamedTuple):
    """A topic and a share group that begins with its first record."""

    topic: str
    group: str


def new_queue(cluster: RunningCluster, partitions: int) -> Queue:
    topic = create(AdminClient({"bootstrap.servers": cluster.bootstrap}), partitions)
    return Queue(topic, from_the_beginning(cluster.bootstrap, f"g{uuid.uuid4().hex[:10]}"))


@pytest.fixture
def queue(cluster: RunningCluster) -> Queue:
    return new_queue(cluster, PARTITIONS)


@pytest.fixture
def narrow_queue(cluster: RunningCluster) -> Queue:
    """A queue with one partition, of which all members get records."""
    return new_queue(cluster, 1)


def produce(cluster: RunningCluster, topic: str, numbers: range) -> set[str]:
    """Write a record for each number, and return their values."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    partitions = len(producer.list_topics(topic, 60).topics[topic].partitions)
    for number in numbers:
        producer.produce(topic, str(number), partition=number % partitions)
    assert producer.flush(60) == 0
    return {str(number) for number in numbers}


def explicit(clients: Clients, name: str, queue: Queue, **settings: str) -> Member:
    return clients.open(name, queue.group, queue.topic, share_acknowledgement_mode="explicit", **settings)


def test_a_poll_accepts_the_records_of_the_poll_before(
    cluster: RunningCluster, clients: Clients, queue: Queue
) -> None:
    values = produce(cluster, queue.topic, range(300))
    member = clients.open("implicit", queue.group, queue.topic)
    seen: Counter[str] = Counter()
    while len(seen) < len(values):
        seen.update(record.value for record in member.take())
    assert set(member.commit().values()) == {""}
    assert seen == Counter(values), "each record is delivered once"
    more = produce(cluster, queue.topic, range(300, 303))
    seen = Counter()
    while len(seen) < len(more):
        seen.update(record.value for record in member.take())
    assert seen == Counter(more)
    assert set(member.commit().values()) == {""}
    wait_until(lambda: len(member.told()) == 303 or member.poll(), "the outcomes of all acknowledgements")
    assert sorted(member.told()) == [
        (partition, offset, "") for partition in range(3) for offset in range(101)
    ]
    member.close()
    wait_until_finished(cluster.bootstrap, queue.group)


def test_records_are_released_rejected_and_accepted(
    cluster: RunningCluster, clients: Clients, queue: Queue
) -> None:
    produce(cluster, queue.topic, range(30))
    member = explicit(clients, "explicit", queue)
    seen: Counter[str] = Counter()
    accepted: set[str] = set()
    while len(accepted) < 20:
        records = member.take()
        assert [record.delivery for record in records] == [seen[record.value] + 1 for record in records]
        seen.update(record.value for record in records)
        rejected = [record for record in records if int(record.value) % 3 == 0]
        released = [record for record in records if record not in rejected and record.delivery == 1]
        done = [record for record in records if record not in rejected and record.delivery > 1]
        for kind, acknowledged in (("REJECT", rejected), ("RELEASE", released), ("ACCEPT", done)):
            member.acknowledge(acknowledged, kind)
        accepted |= {record.value for record in done}
        assert set(member.commit().values()) == {""}
    member.close()
    assert {value for value, times in seen.items() if times == 1} == {str(n) for n in range(0, 30, 3)}
    wait_until_finished(cluster.bootstrap, queue.group)


def test_a_member_must_acknowledge_before_it_polls_again(
    cluster: RunningCluster, clients: Clients, queue: Queue
) -> None:
    produce(cluster, queue.topic, range(1))
    member = explicit(clients, "forgetful", queue)
    records = member.take()
    with pytest.raises(java.Refused, match="IllegalStateException"):
        member.poll()
    member.acknowledge(records, "ACCEPT")
    member.close()
    wait_until_finished(cluster.bootstrap, queue.group)


def test_a_renewed_lock_keeps_a_record_from_other_members(
    cluster: RunningCluster, clients: Clients, narrow_queue: Queue
) -> None:
    from_the_beginning(
        cluster.bootstrap,
        narrow_queue.group,
        share__record__lock__duration__ms=str(LOCK_MS),
    )
    produce(cluster, narrow_queue.topic, range(1))
    slow, other = (explicit(clients, name, narrow_queue) for name in ("slow", "other"))
    (record,) = slow.take()
    assert slow.lock_ms() == LOCK_MS
    ends = time.monotonic() + 1.5 * LOCK_MS / 1000
    while time.monotonic() < ends:
        slow.acknowledge([record], "RENEW")
        assert slow.commit() == {record.partition: ""}
        assert other.poll() == []
        assert slow.poll() == [record], "a poll returns the renewed record again"
    slow.acknowledge([record], "ACCEPT")
    assert slow.commit() == {record.partition: ""}
    for member in (slow, other):
        member.close()
    wait_until_finished(cluster.bootstrap, narrow_queue.group)


def test_a_lost_lock_is_an_error_of_the_acknowledgement(
    cluster: RunningCluster, clients: Clients, narrow_queue: Queue
) -> None:
    from_the_beginning(cluster.bootstrap, narrow_queue.group, share__record__lock__duration__ms="1000")
    produce(cluster, narrow_queue.topic, range(1))
    slow, other = (explicit(clients, name, narrow_queue) for name in ("late", "next"))
    (record,) = slow.take()
    (again,) = other.take()
    assert again == record._replace(delivery=2)
    slow.acknowledge([record], "ACCEPT")
    assert slow.commit() == {record.partition: "InvalidRecordStateException"}
    other.acknowledge([again], "ACCEPT")
    assert other.commit() == {record.partition: ""}
    for member in (slow, other):
        member.close()
    wait_until_finished(cluster.bootstrap, narrow_queue.group)


def test_a_poll_returns_no_more_records_than_allowed(
    cluster: RunningCluster, clients: Clients, narrow_queue: Queue
) -> None:
    values = produce(cluster, narrow_queue.topic, range(40))
    member = explicit(
        clients, "limited", narrow_queue, share_acquire_mode="record_limit", max_poll_records="7"
    )
    seen: list[str] = []
    while len(seen) < len(values):
        records = member.take()
        assert len(records) <= 7
        seen += [record.value for record in records]
        member.acknowledge(records, "ACCEPT")
    member.close()
    assert seen == sorted(values, key=int)
    wait_until_finished(cluster.bootstrap, narrow_queue.group)


def test_records_of_a_closed_member_go_to_another_one(
    cluster: RunningCluster, clients: Clients, queue: Queue
) -> None:
    produce(cluster, queue.topic, range(9))
    leaving = explicit(clients, "leaving", queue)
    held = leaving.take()
    leaving.close()
    member = explicit(clients, "staying", queue)
    seen: set[str] = set()
    while len(seen) < 9:
        records = member.take()
        seen |= {record.value for record in records}
        assert all(record.delivery == 2 for record in records if record[:2] in [each[:2] for each in held])
        member.acknowledge(records, "ACCEPT")
    member.close()
    wait_until_finished(cluster.bootstrap, queue.group)


@pytest.mark.parametrize("killed", ["leader", "state coordinator"])
def test_accepted_records_do_not_return_when_a_broker_is_killed(
    cluster: RunningCluster, clients: Clients, queue: Queue, killed: str
) -> None:
    from_the_beginning(cluster.bootstrap, queue.group, share__delivery__count__limit="10")
    values = produce(cluster, queue.topic, range(300))
    member = explicit(clients, "surviving", queue, share_acquire_mode="record_limit", max_poll_records="20")
    seen: set[str] = set()
    done: set[tuple[int, int]] = set()
    deadline = time.monotonic() + WAIT_S

    def take_and_accept() -> None:
        assert time.monotonic() < deadline, f"{len(seen)} of {len(values)} records were taken"
        records = member.poll()
        assert not done & {record[:2] for record in records}, "an accepted record returned"
        member.acknowledge(records, "ACCEPT")
        outcomes = member.commit()
        done.update(record[:2] for record in records if outcomes.get(record.partition) == "")
        seen.update(record.value for record in records)

    while len(seen) < 60:
        take_and_accept()
    broker = cluster.broker(
        state_coordinator(cluster, queue.group, queue.topic, 0)
        if killed == "state coordinator"
        else cluster.leader(queue.topic, 0) or 0
    )
    broker.kill9()
    values |= produce(cluster, queue.topic, range(300, 390))
    while not seen >= values:
        take_and_accept()
    broker.restart()
    while unfinished(cluster.bootstrap, queue.group):
        take_and_accept()
    member.close()
