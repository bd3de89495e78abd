"""The short way of a record into a batch, in Python and in C: the same results, and all or nothing."""

from __future__ import annotations

import asyncio
import gc
import importlib
import random
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from types import ModuleType
from typing import Any

import pytest

from ottla.client.producing import appending, appending_in_python
from ottla.client.producing.partitioner import murmur2_partition
from ottla.client.producing.pending import BATCH_OVERHEAD, RECORD_OVERHEAD
from ottla.client.producing.record_metadata import RecordMetadata
from ottla.protocol.errors import ErrorCode, KafkaError

IN_PYTHON = appending_in_python
try:
    IN_C: ModuleType | None = importlib.import_module("ottla.client.producing._appending")
except ImportError:
    IN_C = None
needs_c = pytest.mark.skipif(IN_C is None, reason="the extension was not built")
both = pytest.mark.parametrize("kind", [IN_PYTHON, pytest.param(IN_C, marks=needs_c)], ids=["Python", "C"])
BATCH_BYTES, BUFFER_BYTES = 2_000, 20_000


def appender_of(kind: Any, *, hashes_keys: bool = True, clock: Callable[[], float] = time.time) -> Any:
    class Delivery(kind.DeliveryFields):  # type: ignore[misc]
        __slots__ = ()

    return kind.Appender(Delivery, BUFFER_BYTES, hashes_keys, clock)


def opened(kind: Any, appender: Any, *, partitions: int = 3) -> Any:
    """Return topic "t" with an open batch in each partition; partition 1 is for records without key."""
    topic = appender.topic("t", partitions)
    for partition in range(partitions):
        topic.by_partition[partition] = kind.RecordBuffer(f"result of {partition}", BATCH_BYTES)
    topic.sticky, topic.sticky_left = 1, 1_000
    return topic


def append(appender: Any, topic: Any = "t", **given: Any) -> Any:
    record = {"value": b"v", "key": None, "partition": None, "timestamp_ms": None, "headers": ()} | given
    return appender.append(topic, *record.values())


def state(appender: Any, topic: Any) -> tuple[Any, ...]:
    batches = [
        (batch.size, batch.is_open, [(record[0], record[1], record[3]) for record in batch.records])
        for batch in topic.by_partition
    ]
    return topic.sticky, topic.sticky_left, appender.buffered_bytes, appender.turn_left, batches


@both
def test_a_record_takes_its_place_behind_those_that_are_there(kind: Any) -> None:
    appender = appender_of(kind)
    topic = opened(kind, appender)
    before_ms = int(time.time() * 1000)
    deliveries = [append(appender, value=value) for value in (b"a", b"bb", None)]
    assert [(delivery.batch, delivery.index) for delivery in deliveries] == [
        ("result of 1", n) for n in range(3)
    ]
    batch = topic.by_partition[1]
    assert [record[:2] + record[3:] for record in batch.records] == [
        (None, value, ()) for value in (b"a", b"bb", None)
    ]
    for delivery, record in zip(deliveries, batch.records, strict=True):
        assert before_ms <= delivery.timestamp_ms == record[2] <= int(time.time() * 1000)
    taken = 3 * RECORD_OVERHEAD + 3
    assert (batch.size, appender.buffered_bytes) == (BATCH_OVERHEAD + taken, taken)
    assert (topic.sticky_left, appender.turn_left) == (1_000 - taken, appending.TURN_RECORDS - 3)


@both
@pytest.mark.parametrize(
    "given",
    [
        {"value": "text"},
        {"value": bytearray(b"v")},
        {"value": type("Bytes", (bytes,), {})(b"v")},
        {"key": "text"},
        {"partition": 3},
        {"partition": -1},
        {"partition": 1 << 70},
        {"partition": True},
        {"partition": "0"},
        {"timestamp_ms": 5},
        {"timestamp_ms": -1},
        {"headers": (("h", b""),)},
        {"headers": []},
        {"topic": "unknown"},
        {"topic": ["unhashable"]},
        {"value": bytes(BATCH_BYTES)},
    ],
    ids=repr,
)
def test_what_needs_more_than_a_place_is_left_to_the_long_way(kind: Any, given: dict[str, Any]) -> None:
    appender = appender_of(kind)
    topic = opened(kind, appender)
    before = state(appender, topic)
    assert append(appender, **given) is None
    assert state(appender, topic) == before


@both
@pytest.mark.parametrize("hindrance", ["closed", "none", "full", "buffer", "turn", "sticky"])
def test_so_is_what_has_no_place(kind: Any, hindrance: str) -> None:
    appender = appender_of(kind)
    topic = opened(kind, appender)
    batch = topic.by_partition[1]
    if hindrance == "closed":
        batch.is_open = False
    elif hindrance == "none":
        topic.by_partition[1] = None
    elif hindrance == "full":
        batch.size = BATCH_BYTES - RECORD_OVERHEAD
    elif hindrance == "buffer":
        appender.buffered_bytes = BUFFER_BYTES - RECORD_OVERHEAD
    elif hindrance == "turn":
        appender.turn_left = 0
    else:
        topic.sticky_left = 0
    assert append(appender) is None
    assert not batch.records


@both
def test_a_key_goes_where_its_hash_says_unless_the_partitioner_is_another(kind: Any) -> None:
    appender = appender_of(kind)
    topic = opened(kind, appender, partitions=7)
    for length in range(40):
        key = bytes(range(length))
        assert append(appender, key=key).batch == f"result of {murmur2_partition(key, 7)}"
    assert topic.sticky_left == 1_000
    appender = appender_of(kind, hashes_keys=False)
    opened(kind, appender)
    assert append(appender, key=b"k") is None
    assert append(appender, key=b"k", partition=2).batch == "result of 2"


@both
def test_a_simulation_has_its_own_clock(kind: Any) -> None:
    appender = appender_of(kind, clock=lambda: 1.5)
    topic = opened(kind, appender)
    assert append(appender).timestamp_ms == topic.by_partition[1].records[0][2] == 1_500


@both
def test_a_topic_begins_anew_with_other_partitions_and_when_all_is_cleared(kind: Any) -> None:
    appender = appender_of(kind)
    topic = opened(kind, appender)
    assert appender.topic("t", 3) is topic
    assert appender.topic("t", 4) is not topic
    assert append(appender) is None
    opened(kind, appender)
    assert append(appender) is not None
    appender.clear()
    assert append(appender) is None


@needs_c
@pytest.mark.parametrize("seed", range(20))
def test_both_do_the_same(seed: int) -> None:
    chance = random.Random(seed)
    kinds = (IN_PYTHON, IN_C)
    appenders = [appender_of(kind) for kind in kinds]
    topics = [opened(kind, appender) for kind, appender in zip(kinds, appenders, strict=True)]
    for _ in range(300):
        given = {
            "value": chance.choice([None, b"", chance.randbytes(chance.randrange(200)), "no bytes"]),
            "key": chance.choice([None, None, chance.randbytes(chance.randrange(20)), 5]),
            "partition": chance.choice([None, None, chance.randrange(-1, 5)]),
            "headers": chance.choice([(), (), (("h", b"v"),)]),
        }
        places = [append(appender, **given) for appender in appenders]
        first, second = [place and (place.batch, place.index) for place in places]
        assert first == second, f"seed {seed}: {given}"
        if chance.random() < 0.05:
            at = chance.randrange(3)
            for kind, topic in zip(kinds, topics, strict=True):
                topic.by_partition[at].is_open = False
                topic.by_partition[at] = kind.RecordBuffer(f"result of {at}", BATCH_BYTES)
            for appender in appenders:
                appender.buffered_bytes = 0
        if chance.random() < 0.05:
            at = chance.randrange(3)
            for topic in topics:
                topic.sticky, topic.sticky_left = at, 500
        first, second = [state(*pair) for pair in zip(appenders, topics, strict=True)]
        assert first == second, f"seed {seed}: {given}"


@needs_c
def test_in_c_deliveries_and_batches_are_garbage_like_any_other() -> None:
    assert IN_C is not None
    import gc
    import weakref

    class Result:
        pass

    class Batch(IN_C.RecordBuffer):  # type: ignore[name-defined, misc]
        __slots__ = ("cycle",)

    appender = appender_of(IN_C)
    topic = appender.topic("t", 1)
    result = Result()
    gone = weakref.ref(result)
    batch = topic.by_partition[0] = Batch(result, BATCH_BYTES)
    result.delivery = append(appender, partition=0)  # type: ignore[attr-defined]
    batch.cycle = [batch, topic, appender]
    result.delivery._callbacks = [result]  # type: ignore[attr-defined]
    del appender, topic, result, batch
    gc.collect()
    assert gone() is None


WITHOUT_IT = """
import sys
sys.modules["ottla.client.producing._appending"] = None
import asyncio
from ottla.client.producer import Producer
from ottla.client.producing import appending, appending_in_python
from tests.client.fake_cluster import fake_cluster

async def main():
    async with fake_cluster(partitions=2) as cluster, Producer(bootstrap_servers=cluster.bootstrap) as producer:
        values = [b"%d" % number for number in range(3000)]
        deliveries = [await producer.send("t", value, partition=n % 2) for n, value in enumerate(values)]
        await producer.flush()
        assert [await delivery for delivery in deliveries] == [delivery.result() for delivery in deliveries]
        assert [log.values for log in cluster.logs] == [values[::2], values[1::2]]

assert appending.Appender is appending_in_python.Appender
asyncio.run(main())
"""


async def test_a_producer_does_without_the_extension() -> None:
    done = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", WITHOUT_IT], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr


def waiting_for(kind: Any, batch: Any, index: int, timestamp_ms: int) -> Any:
    class Delivery(kind.DeliveryFields):  # type: ignore[misc]
        __slots__ = ()

        def _wait(self) -> Generator[None, None, str]:
            yield
            return "waited"

    return Delivery(batch, index, timestamp_ms)


async def awaited(delivery: Any) -> Any:
    return await delivery


@both
@pytest.mark.parametrize(
    ("base_offset", "append_time_ms", "expected"),
    [
        (40, -1, ("t", 7, 42, 5)),
        (40, 1_000, ("t", 7, 42, 1_000)),
        (-1, -1, ("t", 7, -1, 5)),
        (2**62, 2**62, ("t", 7, 2**62 + 2, 2**62)),
    ],
)
def test_where_an_acknowledged_record_stands_is_told_without_a_turn_of_the_loop(
    kind: Any, base_offset: int, append_time_ms: int, expected: tuple[str, int, int, int]
) -> None:
    batch = kind.ResultFields("t", 7)
    delivery = waiting_for(kind, batch, 2, 5)
    batch.base_offset, batch.append_time_ms, batch.is_settled = base_offset, append_time_ms, True
    stands = delivery.metadata_if_acknowledged()
    assert type(stands) is RecordMetadata
    assert stands == expected == tuple(getattr(stands, name) for name in RecordMetadata._fields)
    if kind is IN_C:
        with pytest.raises(StopIteration) as raised:
            awaited(delivery).send(None)
        assert raised.value.value == stands
        with pytest.raises(StopIteration) as raised:
            next(iter(delivery))
        assert raised.value.value == stands


@both
@pytest.mark.parametrize("state", ["not settled", "failed", "cancelled"])
def test_what_was_not_acknowledged_is_waited_for(kind: Any, state: str) -> None:
    batch = kind.ResultFields("t", 0)
    assert (batch.base_offset, batch.append_time_ms, batch.error) == (-1, -1, None)
    batch.is_settled = state != "not settled"
    batch.error = KafkaError(ErrorCode.REQUEST_TIMED_OUT, "late") if state == "failed" else None
    delivery = waiting_for(kind, batch, 0, 5)
    delivery._cancelled = state == "cancelled"
    assert delivery.metadata_if_acknowledged() is None
    for waiting in (awaited(delivery), iter(delivery)):
        waiting.send(None)
        with pytest.raises(StopIteration, match="waited"):
            waiting.send(None)


@needs_c
def test_awaiting_millions_leaves_nothing_behind() -> None:
    batch = IN_C.ResultFields("t", 0)  # type: ignore[union-attr]
    batch.is_settled = True
    delivery = waiting_for(IN_C, batch, 0, 5)

    async def many() -> None:
        for _ in range(10_000):
            await delivery

    asyncio.run(many())
    before = sys.getrefcount(delivery), sys.getrefcount(batch), sys.getrefcount(RecordMetadata)
    asyncio.run(many())
    stands = delivery.metadata_if_acknowledged()
    assert not gc.is_tracked(stands)
    del stands
    assert before == (sys.getrefcount(delivery), sys.getrefcount(batch), sys.getrefcount(RecordMetadata))
