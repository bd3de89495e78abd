"""Share groups with a stock share consumer (librdkafka): each record is taken, acknowledged, and survives leaders."""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import AcknowledgeType, Consumer, Producer, ShareConsumer, TopicPartition
from confluent_kafka.admin import AdminClient

import ottla
from tests.cluster import RunningCluster, running_cluster, wait_until
from tests.integration.conftest import create
from tests.integration.share_groups import from_the_beginning, unfinished, wait_until_finished

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

DEADLINE_S = 90.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    settings = {"share.coordinator.state.topic.num.partitions": "3"}
    folder = tmp_path_factory.mktemp("queues")
    with running_cluster(folder, quorum=1, brokers=3, settings=settings) as cluster:
        yield cluster


def produce(cluster: RunningCluster, topic: str, count: int) -> set[bytes]:
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    values = {b"task %d" % number for number in range(count)}
    for number, value in enumerate(sorted(values)):
        producer.produce(topic, value, partition=number % 3)
    assert producer.flush(60) == 0
    return values


def consumer(cluster: RunningCluster, group: str, topic: str, mode: str) -> ShareConsumer:
    found = ShareConsumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": group, "share.acknowledgement.mode": mode}
    )
    found.subscribe([topic])
    return found


def poll(consumer: ShareConsumer, done: Callable[[], bool], taken: Callable[[object], None]) -> None:
    """Poll until `done`, and pass each record to `taken`."""
    deadline = time.monotonic() + DEADLINE_S
    while not done():
        assert time.monotonic() < deadline, "the records do not arrive"
        for record in consumer.poll(1.0) or ():
            assert record.error() is None, record.error()
            taken(record)


def test_each_record_is_accepted_once(cluster: RunningCluster) -> None:
    topic = create(AdminClient({"bootstrap.servers": cluster.bootstrap}), 3)
    group = from_the_beginning(cluster.bootstrap, "accept")
    values = produce(cluster, topic, 900)
    seen: Counter[bytes] = Counter()
    with consumer(cluster, group, topic, "implicit") as first:
        poll(first, lambda: len(seen) == len(values), lambda record: seen.update([record.value()]))
        first.commit_sync()
    assert set(seen) == values
    assert max(seen.values()) == 1
    more = produce(cluster, topic, 3)
    with consumer(cluster, group, topic, "implicit") as second:
        again: list[bytes] = []
        poll(second, lambda: len(again) >= 3, lambda record: again.append(record.value()))
    assert set(again) == more, "accepted records do not return"


def test_released_records_return_and_rejected_ones_do_not(cluster: RunningCluster) -> None:
    topic = create(AdminClient({"bootstrap.servers": cluster.bootstrap}), 3)
    group = from_the_beginning(cluster.bootstrap, "release")
    produce(cluster, topic, 30)
    seen: Counter[bytes] = Counter()
    accepted: set[bytes] = set()
    with consumer(cluster, group, topic, "explicit") as member:

        def taken(record: object) -> None:
            value = record.value()  # type: ignore[attr-defined]
            seen[value] += 1
            number = int(value.split()[1])
            if number % 3 == 0:
                kind = AcknowledgeType.REJECT
            elif seen[value] == 1:
                kind = AcknowledgeType.RELEASE
            else:
                kind = AcknowledgeType.ACCEPT
                accepted.add(value)
            member.acknowledge(record, kind)

        poll(member, lambda: len(accepted) == 20, taken)
        member.commit_sync()
    assert {value for value, times in seen.items() if times == 1} == {
        b"task %d" % number for number in range(0, 30, 3)
    }


def test_records_survive_the_leader_of_their_partition(cluster: RunningCluster) -> None:
    topic = create(AdminClient({"bootstrap.servers": cluster.bootstrap}), 3)
    group = from_the_beginning(cluster.bootstrap, "failover")
    values = produce(cluster, topic, 300)
    accepted: set[bytes] = set()
    with consumer(cluster, group, topic, "explicit") as member:

        def taken(record: object) -> None:
            member.acknowledge(record, AcknowledgeType.ACCEPT)
            accepted.add(record.value())  # type: ignore[attr-defined]

        poll(member, lambda: len(accepted) >= 1, taken)
        member.commit_sync()
        first = cluster.leader(topic, 0)
        cluster.broker(first).kill9()
        values |= produce(cluster, topic, 400)
        poll(member, lambda: accepted >= values, taken)
        member.commit_sync()
        cluster.broker(first).restart()
    assert accepted == values


def test_a_stock_consumer_gets_the_records_of_a_key_in_order(cluster: RunningCluster) -> None:
    topic = create(AdminClient({"bootstrap.servers": cluster.bootstrap}), 1)
    group = from_the_beginning(cluster.bootstrap, "ordered", ottla__share__ordering="key")
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "compression.type": "lz4"})
    for number in range(200):
        producer.produce(topic, b"%d" % number, key=None if number % 10 == 9 else b"%d" % (number % 10 % 4))
    assert producer.flush(60) == 0
    ended: list[tuple[bytes | None, int]] = []
    released: set[int] = set()
    with consumer(cluster, group, topic, "explicit") as member:

        def taken(record: object) -> None:
            key, number = record.key(), int(record.value())  # type: ignore[attr-defined]
            if number % 7 == 0 and number not in released:
                released.add(number)
                member.acknowledge(record, AcknowledgeType.RELEASE)
            else:
                ended.append((key, number))
                member.acknowledge(record, AcknowledgeType.ACCEPT)

        poll(member, lambda: len(ended) == 200, taken)
        member.commit_sync()
    assert sorted(number for _, number in ended) == list(range(200))
    for wanted in (b"0", b"1", b"2", b"3"):
        numbers = [number for key, number in ended if key == wanted]
        assert numbers == sorted(numbers)


class Ended(Exception):
    """The end of a program of the page, as by Ctrl-C."""


PAGE = (Path(__file__).resolve().parents[2] / "docs" / "QUEUES.md").read_text()
QUEUE, LIBRDKAFKA_QUEUE, DELAY, TRANSACTION = re.findall(
    r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL
)
"""The programs of the page."""


def example_of(text: str, *replacements: tuple[str, str]) -> str:
    """Return a program of the page with other names."""
    for old, new in replacements:
        assert old in text
        text = text.replace(old, new)
    return text


def queue_of(cluster: RunningCluster, *values: bytes) -> tuple[str, str]:
    """Return a new topic with these records, and a group that begins with the first one."""
    topic = create(AdminClient({"bootstrap.servers": cluster.bootstrap}), 3)
    group = from_the_beginning(cluster.bootstrap, f"page-{topic}")
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(60) == 0
    return topic, group


@pytest.mark.parametrize("text", [QUEUE, LIBRDKAFKA_QUEUE], ids=["ottla", "librdkafka"])
def test_the_queues_of_the_page_work(cluster: RunningCluster, text: str) -> None:
    topic, group = queue_of(cluster, b"", b"ann", b"bob")
    mailed: list[str] = []

    def print_in_place(*words: str) -> None:
        mailed.append(words[-1])
        if len(mailed) == 2:
            raise Ended

    example = example_of(
        text, ("localhost:9092", cluster.bootstrap), ('"mailers"', repr(group)), ('"tasks"', repr(topic))
    )
    with pytest.raises(Ended):
        exec(example, {"print": print_in_place})
    assert sorted(mailed) == ["ann", "bob"]


def test_the_delay_of_the_page_keeps_a_record_back(cluster: RunningCluster) -> None:
    topic, group = queue_of(cluster, b"ann", b"bob@home", b"eve@home")
    program: dict[str, Any] = {}
    exec(DELAY, program)

    async def scenario() -> None:
        async with ottla.ShareConsumer(topic, group_id=group, bootstrap_servers=cluster.bootstrap) as queue:
            working = asyncio.create_task(program["work"](queue))
            await asyncio.to_thread(
                wait_until,
                lambda: unfinished(cluster.bootstrap, group) == 1,
                "the delayed record alone is left",
            )
            working.cancel()

    asyncio.run(scenario())
    assert unfinished(cluster.bootstrap, group) == 1


def test_the_transaction_of_the_page_writes_an_output_for_each_task(cluster: RunningCluster) -> None:
    topic, group = queue_of(cluster, b"ann", b"bob")
    receipts = create(AdminClient({"bootstrap.servers": cluster.bootstrap}), 1)
    program: dict[str, Any] = {}
    names = ("localhost:9092", cluster.bootstrap), ('"mailers"', repr(group)), ('"tasks"', repr(topic))
    exec(example_of(TRANSACTION, *names, ('"receipts"', repr(receipts))), program)

    async def scenario() -> None:
        working = asyncio.create_task(program["work"]())
        await asyncio.to_thread(wait_until_finished, cluster.bootstrap, group)
        working.cancel()
        with suppress(asyncio.CancelledError):
            await working

    asyncio.run(scenario())
    reader = Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": receipts, "isolation.level": "read_committed"}
    )
    reader.assign([TopicPartition(receipts, 0, 0)])
    read = [message.value() for message in reader.consume(2, DEADLINE_S)]
    reader.close()
    assert sorted(filter(None, read)) == [b"ann", b"bob"]
