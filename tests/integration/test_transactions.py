"""Transactions of stock clients, each read by all of them: only committed records count."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests import java
from tests.cluster import wait_until
from tests.integration.conftest import create
from tests.integration.history import Read
from tests.integration.transactional_clients import (
    CLIENTS,
    Failed,
    Fenced,
    Producer,
    TransactionalClient,
    open_client,
)

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]

NAMES = [
    pytest.param(name, marks=[java.needs_java, pytest.mark.java] if name == "java" else [])
    for name in CLIENTS
]
MANY_PARTITIONS = 1_000


@pytest.fixture(scope="module")
def clients(bootstrap: str) -> Iterator[dict[str, TransactionalClient]]:
    """Open all clients of this machine, by name."""
    names = [name for name in CLIENTS if name != "java" or java.available()]
    opened = {name: open_client(name, bootstrap) for name in names}
    yield opened
    for client in opened.values():
        client.close()


@pytest.fixture
def transactional_id() -> str:
    return f"id-{uuid.uuid4().hex[:10]}"


def by_partition(read: list[Read]) -> dict[int, list[bytes]]:
    """Return values in the order of their offsets, by partition."""
    found: dict[int, list[bytes]] = {}
    for record in sorted(read):
        found.setdefault(record.place.partition, []).append(record.value)
    return found


def values(read: list[Read]) -> list[bytes]:
    return sorted(record.value for record in read)


def at_once(*work: Callable[[], None]) -> None:
    """Run all in threads; raise the first error."""
    with ThreadPoolExecutor(len(work)) as pool:
        for done in [pool.submit(task) for task in work]:
            done.result()


def say(producer: Producer, topic: str, *wanted: bytes, partition: int = 0) -> None:
    for value in wanted:
        producer.send(topic, partition, value)


@pytest.mark.parametrize("name", NAMES)
def test_every_reader_sees_what_is_committed(
    clients: dict[str, TransactionalClient], name: str, admin: AdminClient, transactional_id: str
) -> None:
    client, topic = clients[name], create(admin, 2)
    plain, producer = client.producer(None), client.producer(transactional_id)
    other = client.producer(f"{transactional_id}-other")

    def write(commits: bool, word: bytes) -> None:
        producer.begin()
        say(producer, topic, word + b" 0", word + b" 1")
        say(producer, topic, word, partition=1)
        producer.flush()
        say(plain, topic, b"plain during " + word)
        plain.flush()
        (producer.commit if commits else producer.abort)()

    write(True, b"A")
    write(False, b"x")
    other.begin()
    say(other, topic, b"other")
    other.flush()
    write(True, b"B")
    other.commit()
    write(False, b"y")
    write(True, b"C")
    say(plain, topic, b"plain in the end")
    plain.flush()
    producer.begin()
    say(producer, topic, b"open")
    producer.flush()
    say(plain, topic, b"plain behind what is open")
    plain.flush()

    committed = [b"A 0", b"A 1", b"plain during A", b"plain during x", b"other", b"B 0", b"B 1"]
    committed += [
        b"plain during B",
        b"plain during y",
        b"C 0",
        b"C 1",
        b"plain during C",
        b"plain in the end",
    ]
    everything = [b"A 0", b"A 1", b"plain during A", b"x 0", b"x 1", b"plain during x", b"other"]
    everything += [b"B 0", b"B 1", b"plain during B", b"y 0", b"y 1", b"plain during y", b"C 0", b"C 1"]
    everything += [b"plain during C", b"plain in the end", b"open", b"plain behind what is open"]
    for reader in clients.values():
        assert by_partition(reader.read(topic, committed=True)) == {0: committed, 1: [b"A", b"B", b"C"]}
        assert by_partition(reader.read(topic, committed=False)) == {
            0: everything,
            1: [b"A", b"x", b"B", b"y", b"C"],
        }
    producer.commit()
    whole = [*committed, b"open", b"plain behind what is open"]
    for reader in clients.values():
        assert by_partition(reader.read(topic, committed=True))[0] == whole


@pytest.mark.parametrize("name", NAMES)
def test_who_reads_after_a_commit_sees_all_of_it_in_ten_partitions(
    clients: dict[str, TransactionalClient], name: str, admin: AdminClient, transactional_id: str
) -> None:
    topic, rounds = create(admin, 10), 4
    producer = clients[name].producer(transactional_id)
    expected: list[bytes] = []
    for number in range(rounds):
        for commits in (True, False):
            producer.begin()
            for partition in range(10):
                value = b"%d %d %d" % (number, partition, commits)
                producer.send(topic, partition, value)
                expected += [value] * commits
            producer.flush()
            (producer.commit if commits else producer.abort)()
            # A reader each: nothing may be settled only by the one before.
            reader = [*clients.values()][number % len(clients)]
            assert values(reader.read(topic, committed=True)) == sorted(expected)


@pytest.mark.parametrize("name", NAMES)
def test_empty_transactions(
    clients: dict[str, TransactionalClient], name: str, one_partition: str, transactional_id: str
) -> None:
    client = clients[name]
    producer = client.producer(transactional_id)
    for commits in (True, False, True):
        producer.begin()
        (producer.commit if commits else producer.abort)()
    producer.begin()
    say(producer, one_partition, b"real")
    producer.commit()
    for commits in (False, True):
        producer.begin()
        (producer.commit if commits else producer.abort)()
    assert values(client.read(one_partition, committed=True)) == [b"real"]


@pytest.mark.parametrize("name", NAMES)
def test_an_instance_that_was_replaced_is_fenced(
    clients: dict[str, TransactionalClient], name: str, one_partition: str, transactional_id: str
) -> None:
    client = clients[name]
    zombie = client.producer(transactional_id)
    zombie.begin()
    say(zombie, one_partition, b"first")
    zombie.commit()
    zombie.begin()
    say(zombie, one_partition, b"of the zombie")
    zombie.flush()
    successor = client.producer(transactional_id)
    successor.begin()
    say(successor, one_partition, b"second")
    successor.flush()
    with pytest.raises(Fenced):
        zombie.commit()
    with pytest.raises(Fenced):
        zombie.begin()
    successor.commit()

    idle, third = successor, client.producer(transactional_id)
    third.begin()
    say(third, one_partition, b"third")
    third.flush()

    def write_and_commit() -> None:
        idle.begin()
        say(idle, one_partition, b"of another zombie")
        idle.commit()

    with pytest.raises(Fenced):
        write_and_commit()
    third.commit()
    assert values(client.read(one_partition, committed=True)) == [b"first", b"second", b"third"]
    seen = values(client.read(one_partition, committed=False))
    assert seen == [b"first", b"of the zombie", b"second", b"third"]


def test_what_takes_too_long_is_aborted(clients: dict[str, TransactionalClient], admin: AdminClient) -> None:
    def run_out(client: TransactionalClient) -> None:
        topic, name = create(admin, 1), f"slow-{uuid.uuid4().hex[:10]}"
        slow, plain = client.producer(name, timeout_ms=1_000), client.producer(None)
        slow.begin()
        say(slow, topic, b"too late")
        slow.flush()
        say(plain, topic, b"behind it")
        plain.flush()
        assert values(client.read(topic, committed=True)) == []
        wait_until(
            lambda: client.read(topic, committed=True), "the end of a transaction that ran out of time", 60
        )
        with pytest.raises(Failed):
            slow.commit()
        again = client.producer(name, timeout_ms=1_000)
        again.begin()
        say(again, topic, b"in time")
        again.commit()
        assert values(client.read(topic, committed=True)) == [b"behind it", b"in time"]

    at_once(*(lambda client=client: run_out(client) for client in clients.values()))


WAYS: dict[str, Callable[[Producer, str], None]] = {
    "sends to the same partition": lambda slow, topic: say(slow, topic, b"on"),
    "sends to another partition": lambda slow, topic: say(slow, topic, b"on", partition=1),
    "sends offsets": lambda slow, topic: slow.send_offsets(f"of {topic}", topic, {0: 1}),
    "commits": lambda slow, topic: None,
    "aborts": lambda slow, topic: None,
}
"""First actions of a producer after the cluster has aborted its transaction."""


@pytest.mark.parametrize(
    "name", ["confluent-kafka", *(parameters for parameters in NAMES if "java" in parameters.values)]
)
def test_a_producer_whose_transaction_took_too_long_goes_on_after_an_abort(
    clients: dict[str, TransactionalClient], name: str, admin: AdminClient
) -> None:
    client, others = clients[name], clients[name].producer(None)
    topics = {way: create(admin, 2) for way in WAYS}
    slow = {way: client.producer(f"slow-{topic}", timeout_ms=1_000) for way, topic in topics.items()}
    for way, topic in topics.items():
        slow[way].begin()
        say(slow[way], topic, b"too late")
        slow[way].flush()
        say(others, topic, b"behind it")
        others.flush()
    for way, topic in topics.items():
        wait_until(lambda topic=topic: client.read(topic, committed=True), "the records after it", 60)  # type: ignore[misc]
        if way != "aborts":
            with pytest.raises(Failed):
                WAYS[way](slow[way], topic)
                slow[way].commit()
        slow[way].abort()
        for value in (b"in time", b"and again"):
            slow[way].begin()
            say(slow[way], topic, value)
            slow[way].commit()
        assert values(client.read(topic, committed=True)) == [b"and again", b"behind it", b"in time"], way


def test_a_thousand_partitions_in_one_transaction(
    clients: dict[str, TransactionalClient], admin: AdminClient, transactional_id: str
) -> None:
    client, topic = clients["confluent-kafka"], f"wide-{uuid.uuid4().hex[:10]}"
    admin.create_topics([NewTopic(topic, MANY_PARTITIONS, 1)])[topic].result(60)

    def led() -> bool:
        found = admin.list_topics(topic, 10).topics[topic].partitions
        return sum(partition.leader >= 0 for partition in found.values()) == MANY_PARTITIONS

    wait_until(led, f"leaders of {topic}", 60)
    try:
        producer = client.producer(transactional_id)
        for commits in (True, False):
            producer.begin()
            for partition in range(MANY_PARTITIONS):
                producer.send(topic, partition, b"%d" % commits)
            producer.flush()
            (producer.commit if commits else producer.abort)()
            assert values(client.read(topic, committed=True)) == [b"1"] * MANY_PARTITIONS
    finally:
        admin.delete_topics([topic])[topic].result(60)
