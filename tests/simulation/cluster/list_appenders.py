"""Clients that append to lists in some runs. Each transaction reads new committed records, and writes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from random import Random

from ottla.client.consumer import Consumer
from ottla.client.records import TopicPartition
from ottla.protocol.errors import KafkaError
from tests.histories.operations import Position, Reason, Transaction
from tests.simulation.cluster.own_writer import OwnProducer, OwnWriter
from tests.simulation.cluster.workload import POLL_MS, REQUEST_TIMEOUT_MS, Workload, note_polls, started

SHARE = 0.35
"""Share of the runs with transactions."""
APPENDERS = (2, 3)
WAITS_MS = (0, 0, 30)
"""Times to wait for new records, in milliseconds."""


def has_appenders(seed: int) -> bool:
    """Return whether a seed's run, which has transactions, has list appenders."""
    return Random(f"list appenders {seed}").random() < SHARE


def appenders(
    workload: Workload, seed: int, topics: Sequence[str]
) -> dict[str, Callable[[str], ListAppender]]:
    """Return the appenders by client name; all read and write all partitions of these topics."""
    places = [partition for partition in workload.partitions if partition.topic in topics]
    count = Random(f"number of list appenders {seed}").choice(APPENDERS)
    return {f"appender-{number}": _appender(workload, str(number), places) for number in range(count)}


def _appender(
    workload: Workload, member: str, places: Sequence[TopicPartition]
) -> Callable[[str], ListAppender]:
    return lambda name: ListAppender(workload, name, f"appender {member}", places)


class ListAppender(OwnWriter):
    """A process that alternates reads and writes within each transaction."""

    async def run(self) -> None:
        workload = self._workload
        consumer = self._consumer = await started(self._reader)
        for place in self._places:
            workload.history.add(Position(self._name, self._name, *place, None, Reason.START, workload.now()))
        consumer.assign(self._places)
        await super().run()
        await consumer.stop()

    def _reader(self) -> Consumer:
        return Consumer(
            bootstrap_servers=self._workload.cluster.bootstrap,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            fetch_max_wait_ms=POLL_MS,
        )

    async def _write(self, own: OwnProducer, transaction: Transaction, *, last: bool) -> None:
        chance = self._chance
        for _ in range(chance.randint(1, 3)):
            await self._read(transaction)
            chosen = self._places if last else self._some()
            await own.send([(partition, self._value()) for partition in chosen], transaction)

    async def _read(self, transaction: Transaction) -> None:
        """Read new records of some partitions; errors are ignored."""
        with suppress(KafkaError):
            taken = await self._consumer.getmany(*self._some(), timeout_ms=self._chance.choice(WAITS_MS))
            note_polls(
                self._workload, self._name, self._name, taken, committed=True, transaction=transaction.name
            )

    def _some(self) -> list[TopicPartition]:
        return self._chance.sample(self._places, self._chance.randint(1, len(self._places)))
