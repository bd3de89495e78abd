"""Transactions while processes break: movers that write to all partitions at once, a read-committed reader, and a
pipeline of workers that copies the topic exactly once. Each worker may be killed or paused.

    with Faults(cluster, ("moves", "copies")) as faults, Moves(cluster, "moves", "copies") as moves:
        moves.wait_committed(20)
        faults.kill(faults.leader("moves", 0))
        moves.pipeline.kill()
        faults.heal()
    moves.check(faults)
"""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import kafka
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from ottla.protocol.records.record import ControlType, read_control_record
from ottla.protocol.records.record_batch import BatchHeader, walk_batches
from tests.cluster import RunningCluster, wait_until
from tests.faults.actors import CONSUMER, PRODUCER, SETTLE_S, Actor, Reader, name_of
from tests.faults.faults import HEAL_S, TALLY, Faults
from tests.histories.invariants import check_all
from tests.histories.operations import (
    ALL_IN_SYNC,
    CommittedRead,
    Copied,
    Dump,
    FinalRead,
    Healed,
    History,
    ProducerIdentity,
    Send,
    StableEnd,
    Transaction,
)
from tests.histories.transactions import Marker
from tests.integration.history import segment_files
from tests.integration.stock_clients import ROOT

PARTITIONS = 3
RECORDS = 3
"""Number of records that a transaction writes to each partition."""
PAUSE_S = 0.02
ATTEMPT_S = 10.0
TRANSACTION_MS = 60_000


class Mover(Actor):
    """A producer that writes to all partitions in each transaction, and commits most of them.

    When an instance becomes unusable, the next one takes its place under the same id.
    """

    def __init__(
        self, bootstrap: str, topic: str, name: str, seed: int, settings: Mapping[str, Any], *, looks: bool
    ) -> None:
        """Set `looks` to check after some commits how far read-committed consumers get."""
        super().__init__(name)
        self._settings = settings
        self.committed = 0
        self._looks = looks
        self._consumer = Consumer(
            CONSUMER | {"bootstrap.servers": bootstrap, "group.id": name, "isolation.level": "read_committed"}
        )
        self._bootstrap, self._topic = bootstrap, topic
        self._random = random.Random(f"{seed} {name}")
        self._instances = self._begun = 0
        self._sequences = dict.fromkeys(range(PARTITIONS), 0)

    @property
    def transactional_id(self) -> str:
        return f"{self.name}-{self._topic}"

    def _run(self) -> None:
        while not self._stop.is_set():
            self._instances += 1
            producer = Producer(
                PRODUCER
                | {
                    "bootstrap.servers": self._bootstrap,
                    "transactional.id": self.transactional_id,
                    "transaction.timeout.ms": TRANSACTION_MS,
                    "message.timeout.ms": TRANSACTION_MS,
                    # Without this an unusable instance raises from any call that serves its callbacks.
                    "error_cb": lambda _: None,
                }
                | self._settings
            )
            with suppress(KafkaException):
                until_told(lambda: producer.init_transactions(ATTEMPT_S), self)  # noqa: B023
                while not self._stop.is_set():
                    self._one(producer)
                    if self._looks and self._begun % 4 == 0:
                        self._look()
                    self._stop.wait(PAUSE_S)
        self._consumer.close()

    def _one(self, producer: Producer) -> None:
        """Run one producer instance. Raises KafkaException once the instance is unusable."""
        self._begun += 1
        instance = f"{self.name}.{self._instances}"
        transaction = Transaction(
            f"{instance}#{self._begun}", self.transactional_id, instance, -1, -1, time.monotonic()
        )
        producer.begin_transaction()
        self.history.add(transaction)
        commits = self._random.random() < 0.75
        try:
            self._write(producer, transaction)
            if not commits:
                # Otherwise unsent records would be dropped.
                until_told(lambda: producer.flush(SETTLE_S), self)
            transaction.ask(time.monotonic(), commits=commits)
            if commits:
                until_told(lambda: producer.commit_transaction(ATTEMPT_S), self)
            else:
                until_told(lambda: producer.abort_transaction(ATTEMPT_S), self)
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                transaction.finish(time.monotonic(), name_of(error.args[0]), tried_before=True)
                raise
            transaction.ask(transaction.asked_s or time.monotonic(), commits=False)
            until_told(lambda: producer.abort_transaction(ATTEMPT_S), self)
            commits = False
        transaction.finish(time.monotonic())
        self.committed += commits

    def _write(self, producer: Producer, transaction: Transaction) -> None:
        """Write the records of one transaction."""
        for partition in range(PARTITIONS):
            for _ in range(RECORDS):
                self._send(producer, transaction, partition)

    def _look(self) -> None:
        for partition in range(PARTITIONS):
            asked_s = time.monotonic()
            with suppress(KafkaException):
                _, end = self._consumer.get_watermark_offsets(
                    TopicPartition(self._topic, partition), timeout=1
                )
                now = time.monotonic()
                self.history.add(StableEnd(self.name, self._topic, partition, end, asked_s, now))

    def _send(self, producer: Producer, transaction: Transaction, partition: int) -> None:
        number = self._sequences[partition]
        self._sequences[partition] += 1
        value = b"%s:%d:%d" % (transaction.name.encode(), partition, number)
        send = Send(
            self.name,
            transaction.producer,
            self._topic,
            partition,
            value,
            acks=ALL_IN_SYNC,
            idempotent=True,
            sequence_number=number,
            invoked_s=time.monotonic(),
            transaction=transaction.name,
        )
        self.history.add(send)

        def delivered(error: KafkaError | None, message: Message) -> None:
            # The offset of a failed record is meaningless: librdkafka counts on from -1.
            offset = message.offset() if error is None else None
            send.finish(time.monotonic(), name_of(error), offset=offset, tried_before=True)

        producer.produce(self._topic, value, partition=partition, on_delivery=delivered)


def until_told(ask: Callable[[], object], actor: Actor) -> None:
    """Repeat the request until it is answered, as the client does."""
    deadline = time.monotonic() + SETTLE_S + HEAL_S
    while True:
        try:
            _asked(ask)
        except KafkaException as error:
            if not error.args[0].retriable() or actor.abandoned or time.monotonic() > deadline:
                raise
        else:
            return


def _asked(ask: Callable[[], object]) -> None:
    """Call `ask`, and raise the original error. Callbacks run while a fatal error is being raised, and hide it."""
    try:
        ask()
    except SystemError as hiding:
        cause: BaseException | None = hiding
        while isinstance(cause, SystemError):
            cause = cause.__cause__
        if cause is None:
            raise
        raise cause from hiding


class CommittedReader(Reader):
    """A reader of committed records only."""

    def _run(self) -> None:
        super()._run()
        for poll in self.history.polls:
            poll.committed = True


class Pipeline:
    """Workers that copy a topic into another, one after the other under one transactional id."""

    def __init__(self, bootstrap: str, source: str, target: str, client: str = "confluent-kafka") -> None:
        self._argv = [sys.executable, "-m", "tests.integration.transactional_copier", client, bootstrap]
        self.group, self.transactional_id = f"g-{source}", f"copier-{source}"
        self._argv += [source, target, "--group", self.group, "--id", self.transactional_id]
        self._argv += ["--timeout-ms", str(TRANSACTION_MS), "--forever"]
        self._workers: list[Worker] = []

    @property
    def worker(self) -> Worker:
        """The current worker."""
        return self._workers[-1]

    @property
    def committed(self) -> int:
        """Number of transactions reported by all workers so far."""
        return sum(worker.committed for worker in self._workers)

    def start(self) -> Worker:
        """Start another worker; the previous one may still run, and be fenced."""
        self._workers.append(Worker(self._argv))
        return self.worker

    def kill(self) -> None:
        """Kill the current worker by SIGKILL, and start the next."""
        TALLY["kill worker"] += 1
        self.worker.end()
        self.start()

    def end(self) -> None:
        """Kill all running workers."""
        for worker in self._workers:
            worker.end()


class Worker:
    """A process of the pipeline."""

    def __init__(self, argv: list[str]) -> None:
        self.committed = 0
        self.fenced = False
        self.said: list[str] = []
        self._process = subprocess.Popen(
            argv, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()

    @property
    def alive(self) -> bool:
        """True while the process runs."""
        return self._process.poll() is None

    def pause(self) -> None:
        """Send SIGSTOP."""
        TALLY["pause worker"] += 1
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Send SIGCONT."""
        self._process.send_signal(signal.SIGCONT)

    def end(self) -> None:
        """Send SIGKILL, if the process still runs."""
        self._process.kill()
        self._process.wait()
        self._thread.join()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            report = json.loads(line) if line.startswith('{"') else {}
            self.committed += "committed" in report
            self.fenced |= "fenced" in report
            if not report:
                self.said.append(line)


@dataclass
class Moves:
    """Movers, reader and pipeline at work until the block ends. All nodes must be well again by then."""

    cluster: RunningCluster
    source: str
    target: str
    seed: int = 0
    movers: int = 2
    kind: type[Mover] = Mover
    """Class of the movers."""
    looks: bool = True
    """True if commits must be visible at once, which fails if a partition may lack a leader for a while."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings that override or extend those of the movers' producers."""
    client: str = "confluent-kafka"
    """Client of the pipeline."""
    history: History = field(default_factory=History)
    """Operations and observations of all clients, complete when the block has ended."""

    def __post_init__(self) -> None:
        bootstrap = self.cluster.bootstrap
        self._movers = [
            self.kind(bootstrap, self.source, f"m{n}", self.seed, self.settings, looks=self.looks)
            for n in range(self.movers)
        ]
        self._reader = CommittedReader(bootstrap, self.source, "reader", PARTITIONS)
        self.pipeline = Pipeline(bootstrap, self.source, self.target, self.client)

    def __enter__(self) -> Self:
        for actor in self._actors:
            actor.start()
        self.pipeline.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self._settle()
        finally:
            for actor in self._actors:
                actor.abandoned = True
                actor.tell_to_stop()
            self.pipeline.end()
        if error is None:
            self._reader.join()
            self.history = History.merged([*(actor.history for actor in self._actors), self.history])

    @property
    def _actors(self) -> list[Actor]:
        return [*self._movers, self._reader]

    def wait_committed(self, more: int, timeout_s: float = SETTLE_S) -> None:
        """Return once every mover has committed `more` further transactions."""
        goals = [mover.committed + more for mover in self._movers]

        def reached() -> bool:
            for actor in self._actors:
                actor.raise_crash()
            return all(mover.committed >= goal for mover, goal in zip(self._movers, goals, strict=True))

        wait_until(reached, f"{more} commits of each mover", timeout_s)

    def wait_copied(self, more: int, timeout_s: float = SETTLE_S) -> None:
        """Return once the pipeline has committed `more` further transactions."""
        goal = self.pipeline.committed + more
        try:
            wait_until(lambda: self.pipeline.committed >= goal, f"{more} commits of the pipeline", timeout_s)
        except AssertionError as error:
            error.add_note("".join(self.pipeline.worker.said[-20:]))
            raise

    def _settle(self) -> None:
        for mover in self._movers:
            mover.join()
        wanted = sum(
            len(read.records) for read in final_reads(self.cluster.bootstrap, self.source, committed=True)
        )

        def copied() -> bool:
            found = final_reads(self.cluster.bootstrap, self.target, committed=True)
            return sum(len(read.records) for read in found) >= wanted

        try:
            wait_until(copied, f"a copy of {wanted} records", SETTLE_S)
        except AssertionError as error:
            error.add_note("".join(self.pipeline.worker.said[-20:]))
            raise
        self.pipeline.end()
        for topic in (self.source, self.target):
            for committed in (True, False):
                for read in final_reads(self.cluster.bootstrap, topic, committed=committed):
                    self.history.add(read)
        ends = {
            read.partition: read.records[-1][0] + 1
            for read in self.history.committed_reads
            if read.topic == self.source and read.records
        }
        wait_until(lambda: self._reader.next_offsets == ends, f"the reader at {ends}", SETTLE_S)

    def check(self, faults: Faults) -> None:
        """Fail unless all observations agree with each other and with the replicas."""
        for read in list(self.history.final_reads):
            for found in dump(faults.cluster, read.topic, read.partition, read.end or 0):
                self.history.add(found)
        identify(self.history, faults.cluster, self.source)
        now = time.monotonic()
        self.history.add(Healed(faults.healed_s, HEAL_S + SETTLE_S))
        self.history.add(Copied(self.source, self.target, True, now, committed=True))
        TALLY["transactions"] += len(self.history.transactions)
        TALLY["histories"] += 1
        assert any(transaction.is_committed for transaction in self.history.transactions)
        check_all(self.history)


def final_reads(bootstrap: str, topic: str, *, committed: bool) -> list[FinalRead]:
    """Read every partition from its earliest offset to its end, or to the end of the committed records."""
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=bootstrap, isolation_level="read_committed" if committed else "read_uncommitted"
    )
    try:
        every = [kafka.TopicPartition(topic, partition) for partition in range(PARTITIONS)]
        ends = consumer.end_offsets(every)
        found: dict[Any, list[tuple[int, bytes]]] = {partition: [] for partition in every}
        consumer.assign(every)
        for partition in every:
            consumer.seek(partition, 0)
        deadline = time.monotonic() + SETTLE_S
        while any(consumer.position(partition) < ends[partition] for partition in every):
            assert time.monotonic() < deadline, f"{topic} is not read up to {ends}"
            for place, records in consumer.poll(100).items():
                found[place] += [(record.offset, record.value) for record in records]
        now = time.monotonic()
        kind = CommittedRead if committed else FinalRead
        return [
            kind(
                topic,
                partition.partition,
                found[partition],
                end=ends[partition],
                at_s=now,
                reached=consumer.position(partition),
            )
            for partition in every
        ]
    finally:
        consumer.close()


def dump(cluster: RunningCluster, topic: str, partition: int, high_watermark: int) -> list[Dump]:
    """Return the batches in the files of all replicas, with their markers. No client may write meanwhile."""
    found = []
    for broker_id in cluster.partitions(topic)[partition].replicas:
        entries, markers = [], []
        for header, data in _batches(cluster, broker_id, topic, partition):
            entries.append((header.base_offset, header.partition_leader_epoch, header.crc))
            control = read_control_record(data) if header.is_control else None
            if control is not None:
                commits = control.type is ControlType.COMMIT
                who = header.producer_id, header.producer_epoch
                markers.append(
                    Marker(header.base_offset, *who, commits, control.number, control.commit_index)
                )
        now = time.monotonic()
        found.append(Dump(broker_id, topic, partition, 0, high_watermark, entries, now, markers))
    return found


def identify(history: History, cluster: RunningCluster, topic: str) -> None:
    """Note the producer ids and epochs of transactions from the log, since clients do not report them."""
    transactions = {known.name: known for known in history.transactions}
    headers: dict[tuple[int, int], BatchHeader] = {}
    for partition, info in cluster.partitions(topic).items():
        for header, _ in _batches(cluster, info.leader, topic, partition):
            for offset in range(header.base_offset, header.last_offset + 1):
                headers[partition, offset] = header
    given: dict[str, ProducerIdentity] = {}
    for send in history.sends:
        header_of = headers.get((send.partition, send.offset)) if send.offset is not None else None
        if header_of is None or send.transaction is None:
            continue
        transaction = transactions[send.transaction]
        transaction.producer_id = header_of.producer_id
        transaction.producer_epoch = header_of.producer_epoch
        given.setdefault(
            transaction.producer,
            ProducerIdentity(
                transaction.producer,
                header_of.producer_id,
                header_of.producer_epoch,
                transaction.begun_s,
                transaction.transactional_id,
            ),
        )
    for identity in given.values():
        history.add(identity)


def _batches(
    cluster: RunningCluster, broker_id: int, topic: str, partition: int
) -> Iterable[tuple[BatchHeader, memoryview]]:
    for segment in segment_files(cluster, broker_id, topic, partition):
        data = memoryview(segment.read_bytes())
        for position, header in walk_batches(data):
            yield header, data[position : position + header.size]
