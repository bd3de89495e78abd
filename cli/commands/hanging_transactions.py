"""`ottla txn find-hanging` and `ottla txn abort-hanging`.

A hanging transaction is open in a partition, although no transactional id has a transaction open there.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from ..connection.precedence import connection_of
from ..failures import CommandFailed, UsageError
from ..terminal.output import none_of, print_json, print_table
from ..terminal.progress import ProgressLine
from ..terminal.text import say

if TYPE_CHECKING:
    from ...client.admin import Admin, HangingTransaction
    from ...client.records import TopicPartition

_SECRET_BYTES_MAX = 64 * 1024


def find_hanging(arguments: argparse.Namespace) -> int:
    """Print the hanging transactions; return 1 if there are any."""
    from ..arguments.selection import iso_time, milliseconds_of
    from ..run_client import run_client

    longest_ms = milliseconds_of(arguments.max_timeout, "--max-timeout")
    found = run_client(_hanging(arguments, longest_ms), waits_for=None)
    if arguments.output == "json":
        print_json(
            [
                {
                    "topic": transaction.partition.topic,
                    "partition": transaction.partition.partition,
                    "producer_id": transaction.producer.producer_id,
                    "producer_epoch": transaction.producer.producer_epoch,
                    "start_offset": transaction.producer.transaction_start,
                    "last_timestamp": transaction.producer.last_ms,
                    "coordinator_epoch": transaction.producer.coordinator_epoch,
                }
                for transaction in found
            ]
        )
        return int(bool(found))
    columns = ("TOPIC", "PARTITION", "PRODUCER-ID", "PRODUCER-EPOCH", "START-OFFSET", "LAST-WRITTEN")
    rows = [
        (
            *transaction.partition,
            transaction.producer.producer_id,
            transaction.producer.producer_epoch,
            transaction.producer.transaction_start,
            iso_time(transaction.producer.last_ms),
        )
        for transaction in found
    ]
    print_table(
        columns,
        rows,
        spare=("PRODUCER-EPOCH", "START-OFFSET", "LAST-WRITTEN"),
        empty=none_of("hanging transactions"),
        wide=arguments.output == "wide",
    )
    return int(bool(found))


def abort_hanging(arguments: argparse.Namespace) -> None:
    """Abort a hanging transaction of a partition after a confirmation, and print the result."""
    from ..run_client import run_client
    from ..terminal.confirmation import confirm

    partition = _partition_named(arguments.partition)
    secret = _secret_in(arguments.secret_file)
    found = run_client(_open_there(arguments, partition))
    topic, index = found.partition
    what = f"the transaction of producer {found.producer.producer_id} in {topic}-{index}"
    confirm(f"Abort {what}, from offset {found.producer.transaction_start} on?", yes=arguments.yes)
    run_client(_abort_there(arguments, found, secret))
    result = {"topic": topic, "partition": index, "producer_id": found.producer.producer_id}
    if arguments.output == "json":
        print_json([result | {"result": "aborted"}])
    else:
        say(f"aborted {what}")


def _partition_named(text: str) -> TopicPartition:
    """Parse the text `TOPIC:PARTITION` of an argument into a partition. Raises UsageError."""
    from ...client.records import TopicPartition

    topic, colon, index = text.rpartition(":")
    if not (colon and topic and index.isdecimal()):
        raise UsageError(f"abort-hanging takes TOPIC:PARTITION such as orders:0, not {text!r}")
    return TopicPartition(topic, int(index))


def _secret_in(path: str) -> bytes:
    """Return the cluster's secret from a file. Raises CommandFailed."""
    try:
        with open(path, "rb") as file:
            secret = file.read(_SECRET_BYTES_MAX).strip()
    except OSError as error:
        raise CommandFailed(f"--secret-file: cannot read {path}: {error.strerror}") from None
    if not secret:
        raise CommandFailed(f"--secret-file: {path} is empty")
    return secret


async def _open_there(arguments: argparse.Namespace, partition: TopicPartition) -> HangingTransaction:
    """Return the open transaction of the named producer in the partition. Raises CommandFailed if there is none."""
    from ...client.admin import Admin, HangingTransaction
    from ...protocol.errors import KafkaError

    async with Admin(**connection_of(arguments)) as admin:
        found = (await admin.describe_producers([partition]))[partition]
    if isinstance(found, KafkaError):
        raise found
    for producer in found:
        if producer.producer_id == arguments.producer_id and producer.transaction_start >= 0:
            return HangingTransaction(partition, producer)
    raise CommandFailed(
        f"producer {arguments.producer_id} has no open transaction in {partition.topic}-{partition.partition}"
    )


async def _abort_there(
    arguments: argparse.Namespace, hanging: HangingTransaction, cluster_secret: bytes
) -> None:
    from ...client.admin import Admin

    async with Admin(**connection_of(arguments)) as admin:
        await admin.abort_hanging(hanging, cluster_secret=cluster_secret)


async def _hanging(arguments: argparse.Namespace, longest_ms: int) -> list[HangingTransaction]:
    from ...client.admin import Admin

    async with Admin(**connection_of(arguments)) as admin:
        partitions = await _searched(admin, arguments)
        with ProgressLine() as line:
            return await admin.find_hanging(
                partitions,
                max_transaction_timeout_ms=longest_ms,
                progress=lambda done, total: line.show(f"{done}/{total} partitions"),
            )


async def _searched(admin: Admin, arguments: argparse.Namespace) -> list[TopicPartition]:
    from ...client.records import TopicPartition
    from ..arguments.selection import named_partitions

    topics = await admin.describe_topics()
    existing = {topic.name: topic.partitions for topic in topics}
    named = named_partitions(arguments.topic or existing, existing)
    broker = arguments.broker
    found = [
        TopicPartition(topic, index)
        for topic, index in named
        if broker is None or broker in existing[topic][index].replicas
    ]
    if broker is not None and not found:
        raise UsageError(f"broker {broker} has no replica of these partitions")
    return found
