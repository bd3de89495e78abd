"""A group member is killed with SIGKILL, and the other member takes over its partitions, for every stock client.

All clients run at once, since most of the time is the session timeout.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from tests.integration.conftest import create
from tests.integration.stock_clients import NAMES, Process, StockClient, installed, number_of

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]

PARTITIONS = {0, 1, 2}
COUNT = 300


@dataclass
class Crash:
    """The course of one client's group."""

    survivor: Process
    crashed: Process
    went_wrong: str = ""
    """The first event that did not happen in time."""

    def go_on(self, condition_name: str, condition: object, timeout_s: float = 40) -> None:
        """Wait for the survivor unless something failed before."""
        if not self.went_wrong:
            try:
                self.survivor.wait_until(condition, condition_name, timeout_s)
            except AssertionError as error:
                self.went_wrong = str(error)


def write(bootstrap: str, topic: str, numbers: range) -> None:
    """Write numbered values to all partitions in turn."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in numbers:
        producer.produce(topic, b"%d" % number, partition=number % len(PARTITIONS))
    assert producer.flush(30) == 0


@pytest.fixture(scope="module")
def crashes(
    bootstrap: str, admin: AdminClient, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Crash]]:
    """Run all clients at once: two members share, one is killed, the other reads on from all partitions."""
    clients: dict[str, StockClient] = installed(tmp_path_factory.mktemp("clients"))
    topics = {name: create(admin, len(PARTITIONS)) for name in clients}
    with ExitStack() as stack:

        def member(name: str) -> Process:
            return stack.enter_context(clients[name].consumer(bootstrap, topics[name], f"crashes-{name}"))

        groups = {name: Crash(member(name), member(name)) for name in clients}
        for crash in groups.values():
            crash.go_on(
                "partitions are shared",
                lambda crash=crash: (
                    crash.survivor.assigned
                    and crash.crashed.assigned
                    and crash.survivor.assigned | crash.crashed.assigned == PARTITIONS
                    and not crash.survivor.assigned & crash.crashed.assigned
                ),
            )
        for name, crash in groups.items():
            write(bootstrap, topics[name], range(COUNT))
            crash.go_on(
                "both read",
                lambda crash=crash: len(numbers_read(crash.survivor) | numbers_read(crash.crashed)) == COUNT,
            )
        for name, crash in groups.items():
            crash.crashed.kill9()
            write(bootstrap, topics[name], range(COUNT, 2 * COUNT))
        for crash in groups.values():
            crash.go_on(
                "the crashed member's partitions", lambda crash=crash: crash.survivor.assigned == PARTITIONS
            )
            crash.go_on(
                "its records",
                lambda crash=crash: numbers_read(crash.survivor) >= set(range(COUNT, 2 * COUNT)),
            )
        yield groups


def numbers_read(process: Process) -> set[int]:
    return {number_of(record.value) for record in process.read}


@pytest.mark.parametrize("name", NAMES)
def test_the_partitions_of_a_crashed_member_are_taken_over(crashes: dict[str, Crash], name: str) -> None:
    crash = crashes[name]
    assert not crash.went_wrong, crash.went_wrong
    assert {record.place.partition for record in crash.crashed.read} < PARTITIONS
    everything = numbers_read(crash.survivor) | numbers_read(crash.crashed)
    assert everything == set(range(2 * COUNT))
