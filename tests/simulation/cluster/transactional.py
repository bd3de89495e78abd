"""Transactional load, in some runs: producers that commit, abort, hang, die, are replaced and come late."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from random import Random
from typing import Protocol

from ottla.client.connections.cluster import Cluster
from ottla.client.records import TopicPartition
from ottla.protocol.errors import ErrorCode, KafkaError
from tests.histories.operations import Commit, Copied, Leaderless, Send, Transaction
from tests.simulation.cluster.cluster import Node
from tests.simulation.cluster.exact_copying import ExactCopyist
from tests.simulation.cluster.own_writer import ABANDONED, COMMITTED, TIMEOUTS_MS, OwnWriter, all_of
from tests.simulation.cluster.stock_producer import StockProducer
from tests.simulation.cluster.workload import REQUEST_TIMEOUT_MS, Workload, started

SHARE, EXACT, WHOLE, TRIMMED = 0.3, 0.3, 0.3, 0.7
"""Shares: runs with transactions; and of these, runs with an exactly-once pipeline, with a reader of whole transactions
instead of a read-committed consumer, and with transactions in the short-retention topic."""
SOURCE, TARGET = "accounts", "copies"
TOPICS = {SOURCE: 2, "events": 1}
"""Topics and their partition counts; most faults hit the first by name."""
HELD, STRAYS, LOOKS, PURGES, LOWERS = 0.25, 0.12, 0.4, 0.2, 0.1
"""Probabilities: an EndTxn or a batch is held up; a consumer reads right after an end; a producer aborts and purges
unacknowledged batches; a producer aborts after a permanently refused batch whose sequence it reused."""


def is_transactional(seed: int) -> bool:
    """Return whether the run of a seed has transactions."""
    return Random(f"transactions {seed}").random() < SHARE


def copies_exactly(seed: int) -> bool:
    """Return whether the run has an exactly-once pipeline."""
    return is_transactional(seed) and Random(f"exact copies {seed}").random() < EXACT


def reads_whole(seed: int) -> bool:
    """Return whether the run's reader reads whole transactions."""
    return Random(f"whole transactions {seed}").random() < WHOLE


def writes_what_is_trimmed(seed: int) -> bool:
    """Return whether transactions write to the short-retention topic, if there is one."""
    return Random(f"transactions in what is trimmed {seed}").random() < TRIMMED


class StockWriter:
    """A process that writes in transactions under a transactional id, which other processes may use, too."""

    def __init__(
        self, workload: Workload, name: str, transactional_id: str, places: Sequence[TopicPartition]
    ) -> None:
        self._workload, self._name, self._transactional_id = workload, name, transactional_id
        self._chance: Random = workload.chance()
        self._places = list(places)
        self._transaction: Transaction | None = None
        self._count = 0
        self._timeout_ms = self._chance.choice(TIMEOUTS_MS)

    @property
    def waiting(self) -> list[Commit | Send | Transaction]:
        """Unanswered requests."""
        sends: list[Commit | Send | Transaction] = [*self._producer.waiting] if self._count else []
        return sends if self._transaction is None else [*sends, self._transaction]

    async def run(self) -> None:
        """Write transactions until the workload is over, and then until one more is committed."""
        workload = self._workload
        cluster = await started(
            lambda: Cluster(workload.cluster.bootstrap, request_timeout_ms=REQUEST_TIMEOUT_MS)
        )
        cluster.follow(self, workload.topics)
        self._producer = StockProducer(
            workload, cluster, self._name, self._transactional_id, self._timeout_ms
        )
        replaced = True
        while True:
            last = workload.over
            try:
                await self._producer.initialise(anew=replaced)
                replaced = False
                while not last and not workload.over:
                    await self._transact(last=False)
                if last:
                    await self._transact(last=True)
                    break
            except KafkaError:
                replaced = await self._give_up()
                await asyncio.sleep(self._chance.uniform(0.02, 0.3))
        await cluster.close()

    async def _give_up(self) -> bool:
        """Abort the open transaction, if possible; return whether the identity is lost."""
        transaction = self._transaction
        if transaction is None or transaction.completed_s is not None:
            return True
        try:
            if transaction.asked_s is None:
                transaction.ask(self._workload.now(), commits=False)
            await self._producer.end(transaction, holds=False)
        except KafkaError as error:
            # The cluster has aborted it by itself: the next epoch is to be had (KIP-360).
            return error.code is not ErrorCode.INVALID_PRODUCER_ID_MAPPING
        return False

    async def _transact(self, *, last: bool) -> None:
        """Do one transaction. Raises KafkaError if it is lost, or if its producer needs another identity."""
        chance, producer, workload = self._chance, self._producer, self._workload
        self._count += 1
        transaction = self._transaction = Transaction(
            f"{producer.actor}#{self._count}",
            self._transactional_id,
            producer.actor,
            producer.producer_id,
            producer.producer_epoch,
            workload.now(),
        )
        workload.history.add(transaction)
        places = self._places if last else chance.sample(self._places, chance.randint(1, len(self._places)))
        await producer.add(places)
        if chance.random() < 0.8:
            producer.release()
        for _ in range(chance.randint(1, 3)):
            chosen = places if last else chance.sample(places, chance.randint(1, len(places)))
            await all_of(
                *(producer.produce(partition, chance.randint(1, 3), transaction) for partition in chosen)
            )
            await asyncio.sleep(chance.uniform(0, 0.02))
        if not last and chance.random() < ABANDONED:
            await self._abandon(transaction, places)
        purges = not last and not workload.over and chance.random() < PURGES
        if not last and not workload.over and chance.random() < LOWERS:
            await producer.produce_behind_refused(chance.choice(places), chance.randint(1, 3), transaction)
        if purges:
            for place in chance.sample(places, chance.randint(1, len(places))):
                await producer.produce_and_purge(place, chance.randint(1, 3), transaction)
        commits = not purges and (last or chance.random() < COMMITTED)
        transaction.ask(workload.now(), commits=commits)
        await producer.end(transaction, holds=not last and chance.random() < HELD)
        if chance.random() < LOOKS:
            await producer.look(chance.choice(places))
        if not last and chance.random() < STRAYS:
            await self._come_late(transaction, chance.choice(places))
        await asyncio.sleep(chance.uniform(0, 0.05))

    async def _abandon(self, transaction: Transaction, places: list[TopicPartition]) -> None:
        """Hang until the transaction has timed out; then continue it, which is refused, or start over."""
        await self._workload.idle(self._timeout_ms / 1000 * self._chance.uniform(0.5, 2.0))
        if self._chance.random() < 0.6:
            await self._producer.produce(self._chance.choice(places), 1, transaction)

    async def _come_late(self, transaction: Transaction, place: TopicPartition) -> None:
        """Deliver a batch late, after its transaction is over.

        The batch arrives at once, or in the producer's next transaction, after the producer gave it up and raised its
        epoch.
        """
        producer = self._producer
        late = producer.late_batch(place, transaction)
        if self._chance.random() < 0.5:
            await producer.deliver(late)
            await producer.initialise(anew=False)
            return
        await producer.initialise(anew=False)
        await producer.add([place])
        await producer.deliver(late)


class LeaderlessPartitions:
    """An observer that notes partitions which some broker considers leaderless, since EndTxn does not wait for them."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._offsets: dict[str, int] = {}
        self._open: dict[tuple[str, str, int], Leaderless] = {}

    def observe(self, node: Node) -> None:
        """Check nodes whose metadata have changed."""
        image = node.image() if node.broker is not None else None
        if image is None or image.offset == self._offsets.get(node.name):
            return
        self._offsets[node.name] = image.offset
        now = self._workload.now()
        for topic in self._workload.topics:
            for index, state in image.topics[topic].partitions.items() if topic in image.topics else ():
                key = (node.name, topic, index)
                if state.leader >= 0:
                    if (known := self._open.pop(key, None)) is not None:
                        known.until_s = now
                elif key not in self._open:
                    self._open[key] = Leaderless(topic, index, now)
                    self._workload.history.add(self._open[key])


class Writer(Protocol):
    """A process that writes in transactions."""

    @property
    def waiting(self) -> Sequence[Commit | Send | Transaction]:
        """Unanswered requests."""

    async def run(self) -> None: ...


SHARED_IDS = (("a",), ("a", "b"), ("a", "a"), ("a", "a", "b"))
"""Groups of transactional ids, one id for each writer."""
GROUP = "copyists"


def writers(workload: Workload, seed: int) -> dict[str, Callable[[str], Writer]]:
    """Return the writers by client name.

    Some have a separate transactional id, some share one and replace each other; some use Ottla's producer, some behave
    like stock clients. Some runs have a pipeline, too.
    """
    chance = Random(f"writers {seed}")
    written = {*TOPICS, *workload.lossy, *workload.compacted}
    if writes_what_is_trimmed(seed):
        written |= workload.trimmed
    places = [partition for partition in workload.partitions if partition.topic in written]
    found: dict[str, Callable[[str], Writer]] = {}
    if copies_exactly(seed):
        workload.history.add(Copied(SOURCE, TARGET, exactly_once=True, at_s=workload.now(), committed=True))
        for number in range(2):
            found[f"copyist-{number}"] = _copyist(workload, str(number))
    for number, transactional_id in enumerate(chance.choice(SHARED_IDS)):
        kind = OwnWriter if chance.random() < 0.4 else StockWriter
        found[f"writer-{number}"] = _writer(kind, workload, transactional_id, places)
    return found


def _copyist(workload: Workload, member: str) -> Callable[[str], Writer]:
    return lambda name: ExactCopyist(workload, name, member, GROUP, SOURCE, TARGET)


def _writer(
    kind: type[OwnWriter | StockWriter],
    workload: Workload,
    transactional_id: str,
    places: Sequence[TopicPartition],
) -> Callable[[str], Writer]:
    return lambda name: kind(workload, name, transactional_id, places)
