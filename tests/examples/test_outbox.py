"""The example `outbox`: relays and readers are killed while rows are written, and each row counts once, in order."""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from examples.outbox.database import Database, opened
from examples.outbox.reader import MovedMeanwhile, apply
from examples.outbox.relay import committed, relay
from ottla import Consumer, ConsumerRecord, ProducerFenced, TopicPartition
from ottla.testing import LocalCluster
from tests.spark_integration.outside.postgresql_server import running_server

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]
ROOT = Path(__file__).parents[2]
PARTITIONS = 3
CUSTOMERS = 7
ORDERS = 400
KILLS = 6
STEPS = {"relay": (120, 330), "reader": (80, 110)}
"""The steps of the event loop at which programs are killed. A relay starts in some 140 steps, and sends a batch in 14;
a reader starts in some 85 steps."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(brokers=1) as running:
        yield running


@pytest.fixture(params=["sqlite", "postgresql"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Return the address of an empty database."""
    if request.param == "sqlite":
        yield str(tmp_path / "shop.db")
        return
    with running_server() as server:
        yield server.address


@pytest.fixture
def topic(cluster: LocalCluster, request: pytest.FixtureRequest) -> str:
    name = "outbox-" + "".join(letter for letter in request.node.name if letter.isalnum())[-100:]
    cluster.create_topic(name, partitions=PARTITIONS)
    return name


def killed_somewhere(chance: random.Random, program: str, *words: str) -> None:
    """Run a program until it kills itself at a random step of its event loop, or has no more work."""
    step = chance.randrange(*STEPS[program])
    argv = [sys.executable, "-m", "tests.examples.killed_at_a_step", str(step), f"examples.outbox.{program}"]
    done = subprocess.run([*argv, *words, "--once"], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode in (0, -signal.SIGKILL), done.stderr


def completed(program: str, *words: str) -> None:
    """Run a program until it has no more work."""
    argv = [sys.executable, "-m", f"examples.outbox.{program}", *words, "--once"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def place_orders(address: str, first: int, count: int) -> None:
    """Place orders of `CUSTOMERS` customers, whose cents are the number of the order; some transactions fail."""
    with opened(address) as shop:
        for number in range(first, first + count):
            customer = f"c{number % CUSTOMERS}"
            if number % 10 == 3:
                with pytest.raises(ZeroDivisionError), shop.transaction():
                    shop.put(customer, "1000000")
                    _ = number // 0
            shop.place_order(customer, number)


async def records_of(cluster: LocalCluster, topic: str) -> dict[int, list[ConsumerRecord]]:
    """Return the committed records of each partition."""
    found: defaultdict[int, list[ConsumerRecord]] = defaultdict(list)
    places = [TopicPartition(topic, index) for index in range(PARTITIONS)]
    async with (
        Consumer(bootstrap_servers=cluster.bootstrap_servers, isolation_level="read_committed") as reader,
        asyncio.timeout(60),
    ):
        reader.assign(places)
        for place in places:
            reader.seek(place, 0)
        for place, end in (await reader.end_offsets(places)).items():
            while await reader.position(place) < end:
                for partition, records in (await reader.getmany(timeout_ms=100)).items():
                    found[partition.partition] += records
    return found


def totals_of(numbers: range) -> dict[str, tuple[int, int]]:
    found: defaultdict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for number in numbers:
        orders, cents = found[f"c{number % CUSTOMERS}"]
        found[f"c{number % CUSTOMERS}"] = (orders + 1, cents + number)
    return dict(found)


def test_each_row_arrives_once_and_in_order_though_relays_and_readers_are_killed(
    cluster: LocalCluster, topic: str, address: str
) -> None:
    seed = random.randrange(1 << 30)
    print("seed", seed)
    chance = random.Random(seed)
    words = ("--database", address, "--bootstrap", cluster.bootstrap_servers, "--topic", topic)
    relay_words = (*words, "--name", topic, "--batch", "5")
    with opened(address):
        pass  # All programs find the tables.
    halves = [
        threading.Thread(target=place_orders, args=(address, first, ORDERS // 2))
        for first in (0, ORDERS // 2)
    ]
    for half in halves:
        half.start()
    for _ in range(KILLS):
        killed_somewhere(chance, "relay", *relay_words)
    for half in halves:
        half.join(120)
    completed("relay", *relay_words)

    found = asyncio.run(records_of(cluster, topic))
    ids = {
        partition: [int(record.headers[0][1] or b"") for record in some] for partition, some in found.items()
    }
    assert all(some == sorted(some) for some in ids.values())
    values = [int(record.value) for some in found.values() for record in some]
    assert sorted(values) == list(range(ORDERS))
    by_customer: defaultdict[bytes, list[int]] = defaultdict(list)
    for some in found.values():
        for record in some:
            by_customer[record.key].append(int(record.value))
    for (
        numbers
    ) in by_customer.values():  # Two writers have the same customers, each with an order of its own.
        for half_of in (range(ORDERS // 2), range(ORDERS // 2, ORDERS)):
            own = [number for number in numbers if number in half_of]
            assert own == sorted(own)
    with opened(address) as shop:
        assert shop.rows_from(0, 10) == []

    for _ in range(KILLS):
        killed_somewhere(chance, "reader", *words, "--batch", "5")
    completed("reader", *words)
    with opened(address) as shop:
        assert shop.totals() == totals_of(range(ORDERS))


async def test_a_second_relay_fences_the_first(cluster: LocalCluster, topic: str, tmp_path: Path) -> None:
    with opened(str(tmp_path / "shop.db")) as shop, opened(str(tmp_path / "shop.db")) as again:

        async def run(database: Database, *, is_once: bool) -> None:
            await relay(database, cluster.bootstrap_servers, topic, topic, batch=5, is_once=is_once)

        shop.place_order("ann", 1)
        first = asyncio.create_task(run(shop, is_once=False))
        await until(lambda: not again.rows_from(0, 1))
        await run(again, is_once=True)
        again.place_order("ann", 2)
        with pytest.raises(ProducerFenced):
            await asyncio.wait_for(first, 60)
        await run(again, is_once=True)
        again.place_order("ann", 3)
        await run(again, is_once=True)
        place = TopicPartition(topic, 0)
        assert await committed(cluster.bootstrap_servers, topic, place) == 4
        found = [record.value for some in (await records_of(cluster, topic)).values() for record in some]
        assert found == [b"1", b"2", b"3"]


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():
            await asyncio.sleep(0.02)


def test_a_second_reader_changes_nothing(address: str) -> None:
    place = TopicPartition("orders", 0)
    records = [ConsumerRecord("orders", 0, offset, 0, b"ann", b"5") for offset in range(3)]
    with opened(address) as first, opened(address) as second:
        apply(first, place, None, records[:2])
        for position in (None, 1):
            with pytest.raises(MovedMeanwhile, match="orders-0"):
                apply(second, place, position, records)
        apply(second, place, 2, records[2:])
        assert (first.totals(), first.position(*place)) == ({"ann": (3, 15)}, 3)


def test_numbers_of_deleted_rows_are_not_used_again(address: str) -> None:
    with opened(address) as shop:
        for cents in range(3):
            shop.place_order("ann", cents)
        numbers = [row.id for row in shop.rows_from(0, 10)]
        shop.delete_before(numbers[-1] + 1)
        shop.place_order("ann", 9)
        assert shop.rows_from(0, 10)[0].id > numbers[-1]
