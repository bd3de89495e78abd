"""The public class of the producer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Protocol, Unpack

from .arguments import offsets_by_partition
from .consuming.group_metadata import ConsumerGroupMetadata
from .failures import OutOfTurn
from .options import checks_options, group_of
from .producing.accumulator import ProducerIdentity
from .producing.options import (
    PRODUCER_OPTIONS,
    ProducerOptions,
    SpoolOptions,
    TransactionalOptions,
    WriterOptions,
    of_writer,
)
from .producing.record_writer import RecordWriter
from .producing.transaction_state import TransactionState
from .records import Committable, OffsetAndMetadata, TopicPartition
from .spool.spool import RECORDS_PER_LIMIT, Spool, Spooled
from .spool.spool_steps import SpoolSteps
from .transactions.transaction import Transaction
from .transactions.transactions import TransactionOptions, Transactions


class GroupConsumer(Protocol):
    """A consumer with a group, as `send_offsets_to_transaction` needs it."""

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Return the consumer's current group membership."""

    def committable(self, partition: TopicPartition, offset: int | None = None) -> OffsetAndMetadata:
        """Return the value to commit so that large messages across `offset` are read from their beginning."""


@checks_options(*PRODUCER_OPTIONS)
class Producer(RecordWriter):
    """A sender of records; idempotent, and by default acknowledged by all in-sync replicas.

        async with Producer(bootstrap_servers="localhost:9092") as producer:
            await producer.send_and_wait("orders", b"value", key=b"key")

    Records keep their order within a partition through every retry. Brokers that create topics automatically do so for
    `send` and `partitions_for` alone.

    With an `audit_topic` the producer counts the acknowledged records, and of transactions the committed ones, by topic
    and time bucket. It sends the counts to that topic, and `ottla audit` compares them.

    With a `transactional_id` all records are sent in transactions (KIP-98), and an earlier producer with this id is
    fenced. The cluster aborts a transaction that is open for longer than `transaction_timeout_ms`.

        async with Producer(transactional_id="copier-7") as producer:
            async with producer.transaction():
                await producer.send("copies", b"value")
                await producer.send_offsets_to_transaction({TopicPartition("originals", 0): 42}, consumer)

    With a `spool_dir` records are first written to files in that folder, at most `spool_bytes_max` bytes. From there
    they are delivered in order and each exactly once, whatever failures of the cluster or of this process happen
    meanwhile:

        async with Producer(spool_dir="/var/spool/readings") as producer:  # also while no broker can be reached
            await producer.send("readings", b"21.5")

    `start` takes the folder, and raises SpoolUnusable if it cannot. With a spool `start` needs no cluster, and `send`
    needs no known topic. `send` waits while the spool is full, and raises SpoolFull after `max_block_ms`. Records wait
    for the cluster without limit: `delivery_timeout_ms` does not end the wait. Records that the cluster will never
    accept are set aside. `stop` delivers for up to five seconds, and leaves the rest to the next producer with the
    folder.
    """

    def __init__(self, **options: Unpack[ProducerOptions]) -> None:
        writing = of_writer(options)
        transactional = group_of(TransactionalOptions, options)
        spooling = group_of(SpoolOptions, options)
        named = transactional.transactional_id
        state = None if named is None else TransactionState(named)
        super().__init__(transaction=state, **writing)
        timeout_ms = transactional.transaction_timeout_ms
        self._transactions = None if state is None else self._transacted(state, timeout_ms)
        self._spool: Spool | None = None
        if spooling.spool_dir is not None:
            self._check_spool(named, spooling.spool_bytes_max)
            self.parts = replace(self.parts, auditor=None)  # the delivering producers count
            self._spool = self._spooled(
                Path(spooling.spool_dir), spooling.spool_bytes_max, timeout_ms, writing
            )
            self.steps = SpoolSteps(self.steps, self._spool)

    # the spool

    @property
    def spooled(self) -> Spooled:
        """The state of the producer's spool folder: waiting records, sizes, and the reason for the wait; all zero
        without a spool."""
        return Spooled() if self._spool is None else self._spool.spooled

    async def flush(self) -> None:
        """Wait until every record handed over so far is acknowledged or failed.

        With a spool, wait without limit until every record is delivered or rejected. Raises SpoolUnusable if the spool
        has failed for good, ClientClosed once the producer is stopped.
        """
        if self._spool is None:
            await super().flush()
        else:
            self.parts.life.check_here()
            await self._spool.flush()

    async def sync(self) -> None:
        """Wait until all records sent before are on the disk, so that they survive a power failure.

        Without this call they survive only the end of the process. Raises SpoolUnusable if the disk fails, OutOfTurn
        without a spool.
        """
        if self._spool is None:
            raise OutOfTurn("records are kept on the disk by a producer that has a spool_dir")
        self.parts.life.check_here()
        await self._spool.sync()

    def _spooled(self, folder: Path, bytes_max: int, timeout_ms: int, writing: WriterOptions) -> Spool:
        """Return the spool of this producer, whose records other producers deliver in transactions."""
        delivery_ms = min(
            self.parts.settings.sending.delivery_timeout_ms,
            timeout_ms * 2 // 3,  # so that this producer aborts it before the cluster does
        )
        inner: WriterOptions = {
            **writing,
            "key_serializer": None,
            "value_serializer": None,
            "delivery_timeout_ms": max(delivery_ms, 1),
            "tracing": False,  # A record has its context before it is written to the spool.
        }

        def courier(name: str) -> Producer:
            producer = Producer(transactional_id=name, transaction_timeout_ms=timeout_ms, **inner)
            producer.parts.cluster.log_in_as(self.parts.cluster)
            return producer

        return Spool(
            folder,
            bytes_max,
            self.parts.settings.max_block_s,
            self.parts.cluster,
            courier,
            attempt_s_max=delivery_ms / 1000,
        )

    def _check_spool(self, transactional_id: str | None, bytes_max: int) -> None:
        settings = self.parts.settings
        if transactional_id is not None:
            raise ValueError(
                "spool_dir and transactional_id exclude each other: a spool has transactions of its own"
            )
        if not settings.sending.fit_transactions:
            raise ValueError("spool_dir needs acks='all' and idempotence")
        splitting = settings.splitting
        if splitting.large_message_segment_size is not None or splitting.large_messages == "reference":
            raise ValueError(
                "spool_dir excludes large_message_segment_size and large_messages='reference': a spool takes no large "
                "messages"
            )
        least = RECORDS_PER_LIMIT * settings.sending.max_request_size
        if bytes_max < least:
            raise ValueError(
                f"spool_bytes_max is at least {RECORDS_PER_LIMIT} times max_request_size, {least}, not {bytes_max}"
            )

    # transactions

    def transaction(self, *, app_version: int | None = None) -> Transaction:
        """Return a transaction for `async with`: committed at the end of the block, aborted if the block raises.

        After TransactionFailed the program may repeat the work in a new transaction. With an `app_version` the
        transaction commits only if no transaction of this transactional id was committed under this version or a later
        one; `result.was_committed` reports that case. An `app_version` needs a cluster of Ottla.
        """
        return Transaction(self._need_transactions(), app_version, shared=app_version is not None)

    async def begin(self, app_version: int | None = None) -> Transaction:
        """Begin a transaction that other processes can join with its `token`. Needs a cluster of Ottla.

        Raises the errors of `begin_transaction`, and VersionUnsupported from other clusters.
        """
        return await Transaction(self._need_transactions(), app_version, shared=True).begin()

    async def begin_transaction(self) -> None:
        """Begin a transaction: all records sent from now on belong to it.

        Raises OutOfTurn while another transaction is open, ProducerFenced once another producer has the transactional
        id.
        """
        self._need_transactions().begin()

    async def commit_transaction(self) -> None:
        """Send the buffered records, then commit. After it returns, readers of committed records see the transaction.

        Raises TransactionFailed if a record or a group's offsets failed; then only `abort_transaction` is possible.
        Raises ProducerFenced, after which no call is possible. Raises RequestTimedOut after `max_block_ms` without an
        answer; then only the same call is possible, which asks again.
        """
        await self._need_transactions().commit()

    async def abort_transaction(self) -> None:
        """Abort the transaction. Its records not yet acknowledged fail with TransactionAborted.

        Raises ProducerFenced, or RequestTimedOut as `commit_transaction` does.
        """
        await self._need_transactions().abort()

    async def send_offsets_to_transaction(
        self,
        offsets: Mapping[TopicPartition, Committable],
        group: GroupConsumer | ConsumerGroupMetadata | str,
    ) -> None:
        """Commit `offsets` (next to read) for a group as part of the transaction (KIP-447).

        With a Consumer, or its `group_metadata()`, the offsets are committed only if it is still a member of the group.
        With a group's name alone, membership is not checked. For a Consumer, plain offsets are stored as its
        `committable` returns them. Without a Consumer, and if there may be large messages, pass the results of its
        `committable` instead of plain offsets. Raises TransactionFailed if the coordinator refuses the offsets.
        """
        member, places = who_and_where(group, offsets_by_partition(offsets))
        await self._need_transactions().send_offsets(places, member)

    @property
    def last_app_version(self) -> int | None:
        """The `app_version` of the last commit under this transactional id that had one; None if there was none.
        Commits of earlier producers count.
        """
        return self._need_transactions().last_app_version

    @property
    def identity(self) -> ProducerIdentity:
        """The producer id and epoch under which the cluster knows this producer now.

        These pairs increase: a producer that takes over the transactional id has a greater pair, and so has this
        producer after each of its transactions.
        """
        return self._need_transactions().identity

    async def _open(self) -> None:
        if self._spool is None:
            await super()._open()
        else:
            await self._spool.start()

    async def _on_start(self) -> None:
        if self._transactions is not None:
            await self._transactions.initialise()

    async def _on_stop(self) -> None:
        if self._spool is not None:
            await self._spool.stop()
        if self._transactions is not None:
            await self._transactions.close()

    def _transacted(self, state: TransactionState, timeout_ms: int) -> Transactions:
        """Return the object that begins, commits and aborts this producer's transactions."""
        parts = self.parts
        options = TransactionOptions(
            timeout_ms=timeout_ms,
            patience_s=parts.settings.max_block_s,
            retry_backoff_max_ms=parts.settings.connection.retry_backoff_max_ms,
        )
        transactions = Transactions(parts.cluster, options, state, parts.sender, parts.life)
        if parts.auditor is not None:
            transactions.on_ended = parts.auditor.transaction_ended
        return transactions

    def _need_transactions(self) -> Transactions:
        if self._transactions is None:
            raise OutOfTurn("transactions need a producer that has a transactional_id")
        return self._transactions


def who_and_where(
    group: GroupConsumer | ConsumerGroupMetadata | str, offsets: Mapping[TopicPartition, Committable]
) -> tuple[ConsumerGroupMetadata, dict[TopicPartition, OffsetAndMetadata]]:
    """Return the committing group member, and the offset to commit for each partition.

    A consumer's `committable` turns plain offsets into the stored form; a group's name or metadata is taken as it is.
    """
    places = {
        partition: where for partition, where in offsets.items() if isinstance(where, OffsetAndMetadata)
    }
    bare = {
        partition: where for partition, where in offsets.items() if not isinstance(where, OffsetAndMetadata)
    }
    if isinstance(group, str | ConsumerGroupMetadata):
        member = ConsumerGroupMetadata(group) if isinstance(group, str) else group
        return member, places | {partition: OffsetAndMetadata(offset) for partition, offset in bare.items()}
    asked = {partition: group.committable(partition, offset) for partition, offset in bare.items()}
    return group.group_metadata(), places | asked
