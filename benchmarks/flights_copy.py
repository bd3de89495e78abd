"""The second act of the demo: the flights are copied to another topic in transactions.

Each transaction includes the offsets that the copier has read up to. Every fifth is aborted. The copier is killed with
SIGKILL while a transaction is open; its successor, with the same transactional id, continues after the last commit. A
read-committed consumer then finds exactly the input.
"""

from __future__ import annotations

import multiprocessing
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from rich.progress import Progress
from rich.table import Table

COPY, COPIERS, TRANSACTIONAL_ID = "flights-copy", "flight-copiers", "flight-copier"
PER_TRANSACTION = 5_000
ABORTED_EVERY = 5
TIMEOUT_S = 30.0


# ---------------------------------------------------------------- the copier, in a separate process


def copy_flights(bootstrap: str, topic: str, link: Connection) -> None:
    """Copy flights in transactions until asked to stop, and report each transaction as open, committed or aborted with
    its number of rows.

    The open transaction ends after the request to stop.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": COPIERS,
            "group.instance.id": "copier",  # the successor after a crash is the same member
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    producer = Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": TRANSACTIONAL_ID, "linger.ms": 5, "log_level": 0}
    )
    producer.init_transactions(TIMEOUT_S)
    consumer.subscribe([topic])
    number = 0
    while not link.poll():
        batch = [message for message in consumer.consume(PER_TRANSACTION, 0.2) if _is_record(message)]
        if not batch:
            continue
        number += 1
        producer.begin_transaction()
        for message in batch:
            producer.produce(COPY, message.value(), message.key(), partition=message.partition() or 0)
        read_to = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(
            [partition for partition in read_to if partition.offset >= 0],
            consumer.consumer_group_metadata(),
            TIMEOUT_S,
        )
        producer.flush(TIMEOUT_S)
        link.send(("open", len(batch)))
        link.recv()
        if number % ABORTED_EVERY:
            producer.commit_transaction(TIMEOUT_S)
            link.send(("committed", len(batch)))
        else:
            producer.abort_transaction(TIMEOUT_S)
            for partition in consumer.committed(consumer.assignment(), TIMEOUT_S):
                consumer.seek(TopicPartition(partition.topic, partition.partition, max(partition.offset, 0)))
            link.send(("aborted", len(batch)))
    consumer.close()


def _is_record(message: Message) -> bool:
    error = message.error()
    if error is not None and error.fatal():
        raise KafkaException(error)
    return error is None


# ---------------------------------------------------------------- the act


@dataclass
class Copying:
    """The reports of the copiers."""

    committed: int = 0
    aborted: int = 0
    rows: int = 0
    killed_with_open: int = 0
    """Rows in the transaction that was open when the first copier was killed."""
    elapsed_s: float = 0.0


def copy_through_a_crash(
    bootstrap: str, topic: str, partitions: int, count: int, progress: Progress
) -> Copying:
    """Copy `count` rows; the first copier is killed half-way, with a transaction open."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(COPY, partitions, 3)])[COPY].result(10)
    told, started = Copying(), time.monotonic()
    bar = progress.add_task("copied", total=count)
    spawn = multiprocessing.get_context("spawn")
    while told.rows < count:
        ours, theirs = spawn.Pipe()
        copier = spawn.Process(target=copy_flights, args=(bootstrap, topic, theirs), daemon=True)
        copier.start()
        theirs.close()
        try:
            _follow(ours, told, count, lambda: progress.update(bar, completed=told.rows))
        finally:
            if told.rows < count:
                copier.kill()
            else:
                ours.send("stop")
            copier.join(TIMEOUT_S)
        if told.rows < count:
            progress.console.print(
                f"SIGKILL to the copier, {told.killed_with_open:,} rows in its open transaction"
            )
    told.elapsed_s = time.monotonic() - started
    return told


def _follow(link: Connection, told: Copying, count: int, show: Callable[[], None]) -> None:
    """Follow the copier until all rows are copied, or the first copier has to be killed."""
    while told.rows < count:
        if not link.poll(TIMEOUT_S):
            raise SystemExit(f"the copier has not told anything for {TIMEOUT_S:.0f} s")
        kind, rows = link.recv()
        if kind == "open" and not told.killed_with_open and told.rows >= count // 2:
            told.killed_with_open = rows
            return
        if kind == "open":
            link.send("heard")
        if kind == "committed":
            told.committed += 1
            told.rows += rows
        elif kind == "aborted":
            told.aborted += 1
        show()


def values_of(bootstrap: str, topic: str, isolation: str) -> dict[int, list[bytes]]:
    """Return all values by partition, in order, up to the current end."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": uuid.uuid4().hex,
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    partitions = consumer.list_topics(topic, 10).topics[topic].partitions
    consumer.assign([TopicPartition(topic, index, 0) for index in partitions])
    found: dict[int, list[bytes]] = {index: [] for index in partitions}
    ended: set[int] = set()
    deadline = time.monotonic() + 2 * TIMEOUT_S
    while len(ended) < len(partitions) and time.monotonic() < deadline:
        for message in consumer.consume(10_000, 0.2):
            index = message.partition() or 0
            if message.error() is not None:
                ended.add(index)
            else:
                found[index].append(message.value() or b"")
    consumer.close()
    return found


def check_copy(bootstrap: str, topic: str) -> tuple[bool, int, int]:
    """Compare the committed copy with the input, partition by partition and in order.

    Return whether they are equal, the number of committed rows, and the number of written rows.
    """
    original = values_of(bootstrap, topic, "read_committed")
    committed = values_of(bootstrap, COPY, "read_committed")
    written = values_of(bootstrap, COPY, "read_uncommitted")
    return original == committed, sum(map(len, committed.values())), sum(map(len, written.values()))


def copy_table(told: Copying, committed: int, written: int, exact: bool) -> Table:
    table = Table(show_header=False)
    table.add_row(
        "transactions committed / aborted", f"{told.committed} / {told.aborted}, and one of the killed copier"
    )
    table.add_row("rows written / committed", f"{written:,} / {committed:,}")
    table.add_row(
        "throughput, crash included", f"{told.rows / told.elapsed_s:,.0f} rows/s in {told.elapsed_s:.1f} s"
    )
    table.add_row("the copy is the input", "exact" if exact else "WRONG")
    return table
