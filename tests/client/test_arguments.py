"""Invalid topics, partitions, offsets and times are refused at the call, with an error that states
the allowed values.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

import ottla.sync
from ottla.client.consumer import Consumer
from ottla.client.producer import Producer
from ottla.client.records import TopicPartition
from tests.client.fake_cluster import fake_cluster
from tests.client.fake_coordinator import PLACE, Coordinator, assigned, member

Call = Callable[[Any], Any]


def exactly(message: str) -> str:
    return f"^{re.escape(message)}$"


@pytest.mark.parametrize(
    ("topics", "kind", "message"),
    [
        (
            [["orders", "copies"]],
            TypeError,
            "topics are given one by one: Consumer('orders', 'copies'), not Consumer(['orders', 'copies'])",
        ),
        (
            [("orders",)],
            TypeError,
            "topics are given one by one: Consumer('orders'), not Consumer(('orders',))",
        ),
        ([b"orders"], TypeError, "a topic is named by a str, not b'orders'"),
        (["orders", 5], TypeError, "a topic is named by a str, not 5"),
        ([""], ValueError, "the name of a topic is not empty"),
    ],
)
def test_topics_of_a_consumer(topics: list[Any], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=exactly(message)):
        Consumer(*topics)
    with pytest.raises(kind, match=exactly(message)):
        ottla.sync.Consumer(*topics)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_poll_records": 0}, "max_poll_records is 1 or more, not 0"),
        ({"fetch_max_bytes": -1}, "fetch_max_bytes is 1 or more, not -1"),
        ({"request_timeout_ms": -5}, "request_timeout_ms is 1 to 2147483647, not -5"),
        ({"fetch_max_wait_ms": -1}, "fetch_max_wait_ms is 0 to 2147483647, not -1"),
        ({"max_poll_interval_ms": 0}, "max_poll_interval_ms is 1 to 2147483647, not 0"),
        ({"session_timeout_ms": 1 << 31}, "session_timeout_ms is 1 to 2147483647, not 2147483648"),
        (
            {"heartbeat_interval_ms": 6_000, "session_timeout_ms": 6_000},
            "heartbeat_interval_ms is less than session_timeout_ms (6000), a third of it at most to be safe, not 6000",
        ),
    ],
)
def test_numbers_among_the_options_of_a_consumer(options: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=exactly(message)):
        Consumer("t", **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("linger", [-1, float("nan"), float("inf")])
def test_numbers_among_the_options_of_a_producer(linger: float) -> None:
    with pytest.raises(ValueError, match=exactly(f"linger_ms is 0 to 2147483647, not {linger}")):
        Producer(linger_ms=linger)
    with pytest.raises(ValueError, match=exactly("buffer_memory is 1 or more, not 0")):
        Producer(buffer_memory=0)


NOT_TWO = "a partition is named by TopicPartition(topic, number), not "
NUMBER = "the number of a partition of 'orders' is "


@pytest.mark.parametrize(
    ("given", "kind", "message"),
    [
        ("orders", TypeError, NOT_TWO + "'orders'"),
        (("orders",), TypeError, NOT_TWO + "('orders',)"),
        (None, TypeError, NOT_TWO + "None"),
        (("orders", True), TypeError, NUMBER + "a whole number, not True"),
        (TopicPartition("orders", "0"), TypeError, NUMBER + "a whole number, not '0'"),  # type: ignore[arg-type]
        (("orders", 1.0), TypeError, NUMBER + "a whole number, not 1.0"),
        (("orders", -1), ValueError, NUMBER + "0 or more, not -1"),
        ((7, 0), TypeError, "a topic is named by a str, not 7"),
    ],
)
async def test_partitions(given: Any, kind: type[Exception], message: str) -> None:
    async with fake_cluster() as cluster, Consumer(bootstrap_servers=cluster.bootstrap) as consumer:
        consumer.assign([PLACE])
        calls: list[Call] = [
            lambda wrong: consumer.assign([PLACE, wrong]),
            lambda wrong: consumer.seek(wrong, 0),
            consumer.seek_to_beginning,
            consumer.seek_to_end,
            lambda wrong: consumer.seek_to_timestamp(0, wrong),
            lambda wrong: consumer.pause(PLACE, wrong),
            consumer.resume,
        ]
        for call in calls:
            with pytest.raises(kind, match=exactly(message)):
                call(given)
        waiting: list[Call] = [
            consumer.position,
            consumer.getmany,
            lambda wrong: consumer.end_offsets([wrong]),
            lambda wrong: consumer.offsets_for_times({wrong: 0}),
        ]
        for call in waiting:
            with pytest.raises(kind, match=exactly(message)):
                await call(given)
        assert consumer.assignment() == {PLACE}
        assert await consumer.getmany(PLACE) == {}, "it was not paused"


@pytest.mark.parametrize("given", ["orders", TopicPartition("orders", 0), 5])
async def test_one_partition_where_several_are_taken(given: Any) -> None:
    message = "assign takes several partitions, as in assign([TopicPartition('orders', 0)]), not " + repr(
        given
    )
    with pytest.raises(TypeError, match=exactly(message)):
        Consumer().assign(given)


async def test_a_plain_tuple_is_a_partition_too() -> None:
    async with fake_cluster() as cluster, Consumer(bootstrap_servers=cluster.bootstrap) as consumer:
        consumer.assign([("t", 0)])  # type: ignore[list-item]
        assert [partition.topic for partition in consumer.assignment()] == ["t"]
        consumer.seek(("t", 0), 3)  # type: ignore[arg-type]
        assert await consumer.position(("t", 0)) == 3  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("offset", "kind", "message"),
    [
        (-1, ValueError, "the offset to go on at in t-0 is 0 or more, not -1"),
        (1.0, TypeError, "the offset to go on at in t-0 is a whole number, not 1.0"),
        ("5", TypeError, "the offset to go on at in t-0 is a whole number, not '5'"),
        (True, TypeError, "the offset to go on at in t-0 is a whole number, not True"),
        (None, TypeError, "the offset to go on at in t-0 is a whole number, not None"),
    ],
)
async def test_offsets_to_seek(offset: Any, kind: type[Exception], message: str) -> None:
    consumer = Consumer()
    consumer.assign([PLACE])
    consumer.seek(PLACE, 9)
    with pytest.raises(kind, match=exactly(message)):
        consumer.seek(PLACE, offset)
    with pytest.raises(ValueError, match=exactly("orders-0 is not assigned to this consumer")):
        consumer.seek(TopicPartition("orders", 0), 0)


@pytest.mark.parametrize(
    ("offsets", "kind", "message"),
    [
        ({PLACE: "5"}, TypeError, "the offset to commit for t-0 is a whole number, not '5'"),
        ({PLACE: -1}, ValueError, "the offset to commit for t-0 is 0 or more, not -1"),
        ({"t": 5}, TypeError, NOT_TWO + "'t'"),
        (
            [(PLACE, 5)],
            TypeError,
            "offsets are given by partition, as in {TopicPartition('orders', 0): 5}, not "
            "[(TopicPartition(topic='t', partition=0), 5)]",
        ),
    ],
)
async def test_offsets_to_commit(
    coordinator: Coordinator, offsets: Any, kind: type[Exception], message: str
) -> None:
    async with member() as consumer:
        await assigned(consumer)
        with pytest.raises(kind, match=exactly(message)):
            await consumer.commit(offsets)
    assert not coordinator.commits
    async with fake_cluster() as cluster, Producer(bootstrap_servers=cluster.bootstrap) as producer:
        with pytest.raises(kind, match=exactly(message)):
            await producer.send_offsets_to_transaction(offsets, "g")


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"timeout_ms": -1}, ValueError, "timeout_ms is 0 or more, not -1"),
        ({"timeout_ms": "1"}, TypeError, "timeout_ms is a number of milliseconds or None, not '1'"),
        ({"max_records": 0}, ValueError, "max_records is 1 or more, not 0"),
        ({"max_records": -1}, ValueError, "max_records is 0 or more, not -1"),
    ],
)
async def test_limits_of_a_read(options: dict[str, Any], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=exactly(message)):
        await Consumer().getmany(**options)


async def test_what_is_subscribed_to() -> None:
    consumer = Consumer()
    with pytest.raises(
        TypeError, match=exactly("subscribe takes topics, as in subscribe(['orders']), not 5")
    ):
        consumer.subscribe(5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=exactly("a topic is named by a str, not 5")):
        consumer.subscribe(["orders", 5])  # type: ignore[list-item]
    consumer.subscribe("orders")
    assert consumer.subscription() == {"orders"}


async def test_one_value_where_several_are_taken() -> None:
    with pytest.raises(
        TypeError, match=exactly("subscribe takes topics, as in subscribe(['orders']), not b'ab'")
    ):
        Consumer().subscribe(b"ab")  # type: ignore[arg-type]
    async with fake_cluster() as cluster, Consumer(bootstrap_servers=cluster.bootstrap) as consumer:
        with pytest.raises(
            TypeError, match=r"^timestamps are given by partition, as in \{.*: 1700000000000\}, not 'ab'$"
        ):
            await consumer.offsets_for_times("ab")  # type: ignore[arg-type]
        with pytest.raises(
            TypeError, match=r"^stretches are given by partition, as in \{.*: \(0, 100\)\}, not \["
        ):
            await consumer.transaction_outcomes([PLACE])  # type: ignore[arg-type]
        with pytest.raises(TypeError, match=r"^transactions: passing_over is a list, as in \["):
            await anext(consumer.transactions(passing_over="ab"))  # type: ignore[arg-type]
    with pytest.raises(
        TypeError, match=exactly("partition_assignment_strategy is a list, as in [b'range'], not b'range'")
    ):
        Consumer("t", group_id="g", partition_assignment_strategy=b"range")  # type: ignore[arg-type]


@pytest.mark.parametrize("partition", [True, "0", 0.0])
async def test_the_partition_of_a_record(partition: Any) -> None:
    async with (
        fake_cluster(partitions=2) as cluster,
        Producer(bootstrap_servers=cluster.bootstrap) as producer,
    ):
        with pytest.raises(
            TypeError, match=exactly(f"partition is a whole number or None, not {partition!r}")
        ):
            await producer.send("t", b"", partition=partition)
        with pytest.raises(TypeError, match=exactly("a topic is named by a str, not b't'")):
            await producer.send(b"t", b"")  # type: ignore[arg-type]
        assert not any(log.values for log in cluster.logs)


async def test_times_of_blocking_calls() -> None:
    consumer, producer = ottla.sync.Consumer(), ottla.sync.Producer()
    calls: list[Callable[[], Any]] = [
        lambda: consumer.getone(timeout_ms=-1),
        lambda: consumer.commit(timeout_ms=-1),
        lambda: producer.flush(timeout_ms=-1),
        lambda: producer.send("t", b"", timeout_ms=-1),
    ]
    for call in calls:
        with pytest.raises(ValueError, match=exactly("timeout_ms is 0 or more, not -1")):
            call()
