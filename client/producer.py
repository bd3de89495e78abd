"""The producer: what callers see."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Protocol, Unpack

from .arguments import offsets_by_partition
from .consuming.group_metadata import ConsumerGroupMetadata
from .failures import OutOfTurn
from .options import checks_options
from .producing.accumulator import ProducerIdentity
from .producing.transaction_state import TransactionState
from .records import Committable, OffsetAndMetadata, TopicPartition
from .spool.spool import RECORDS_PER_LIMIT, Spool, Spooled
from .spool.spool_steps import SpoolSteps
from .transactions.transaction import Transaction
from .transactions.transactions import TransactionOptions, Transactions
from .writing.options import WRITER_GROUPS, WriterOptions
from .writing.record_writer import RecordWriter


class GroupConsumer(Protocol):
    """A Consumer with a group."""

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Who it is now."""

    def committable(self, partition: TopicPartition, offset: int | None = None) -> OffsetAndMetadata:
        """What to keep, so that large messages that lie across `offset` are read from their beginning."""


@checks_options(*WRITER_GROUPS)
class Producer(RecordWriter):
    """Sends records; idempotent and acknowledged by all in-sync replicas unless told otherwise.

        async with Producer(bootstrap_servers="localhost:9092") as producer:
            await producer.send_and_wait("orders", b"value", key=b"key")

    Order within a partition holds through every retry. `linger_ms`: how long a batch may wait for company;
    `batch_size`, `buffer_memory`, `max_request_size`: bytes before compression; `send` waits while the buffer
    is full. A record that is not acknowledged `delivery_timeout_ms` after `send` fails. `max_block_ms`: how long
    to wait for a topic, or a partition that `send` names, to exist, and for the cluster's answers about transactions.
    `metadata_max_age_ms`: how often to look for partitions that were added. `metadata_max_idle_ms`: after so long
    without a record a topic is forgotten. Only `send` and `partitions_for` create topics, where brokers are set to do
    so. `key_serializer` and
    `value_serializer` make bytes of what `send` is given; None stays None: a record without key, or a tombstone.
    `busy_poll_us`: for how long `send_and_wait` may poll for an answer, if the one before came as quickly, which spares
    it the time that a sleeping processor takes to wake.

    `large_message_segment_size`: values of more bytes are split into records of so many, which a Consumer puts
    together; up to `large_message_max_size`. None: they are not, and what does not fit into a request is refused.

    `security_protocol` and the options that begin with `ssl_` and `sasl_` are those of all clients: docs/CLIENT.md has
    a table of them.

    With an `audit_topic` the records that were acknowledged, and committed if they are part of a transaction, are
    counted by topic and time bucket, which is `audit_bucket_ms` long (a day divided by a whole number). The counts go
    to that topic every `audit_interval_ms` and at `stop`, under the name `audit_tier`; `ottla audit` compares them.

    With a `transactional_id` all records are sent in transactions (KIP-98), and whoever used that id before is
    fenced. The cluster aborts a transaction that is open for longer than `transaction_timeout_ms`.

        async with Producer(transactional_id="copier-7") as producer:
            async with producer.transaction():
                await producer.send("copies", b"value")
                await producer.send_offsets_to_transaction({TopicPartition("originals", 0): 42}, consumer)

    With a `spool_dir` records are first written to files in that folder, at most `spool_bytes_max` bytes, and delivered
    from there, in order and each once, whatever becomes of the cluster and of this process meanwhile:

        async with Producer(spool_dir="/var/spool/readings") as producer:  # also while no broker can be reached
            await producer.send("readings", b"21.5")

    `start` takes the folder, and raises SpoolUnusable; it needs no cluster, and `send` no topic that is known. `send`
    waits while the spool is full, and raises SpoolFull after `max_block_ms`. Records wait for the cluster as
    long as it takes: `delivery_timeout_ms` is no end for them. What the cluster will never take is set aside. `stop`
    delivers for up to five seconds, and leaves the rest to the next producer with the folder.
    """

    def __init__(
        self,
        *,
        transactional_id: str | None = None,
        transaction_timeout_ms: int = 60_000,
        spool_dir: str | os.PathLike[str] | None = None,
        spool_bytes_max: int = 1 << 30,
        **options: Unpack[WriterOptions],
    ) -> None:
        if transactional_id == "":
            raise ValueError("transactional_id is a text that is not empty, or None")
        if not 0 < transaction_timeout_ms < 1 << 31:
            raise ValueError(f"transaction_timeout_ms is 1 to {(1 << 31) - 1}, not {transaction_timeout_ms}")
        state = None if transactional_id is None else TransactionState(transactional_id)
        super().__init__(transaction=state, **options)
        self._transactions = None if state is None else self._transacted(state, transaction_timeout_ms)
        self._spool: Spool | None = None
        if spool_dir is not None:
            self._check_spool(transactional_id, spool_bytes_max)
            self.parts = replace(self.parts, auditor=None)  # those that deliver count
            delivery_ms = min(
                self.parts.settings.sending.delivery_timeout_ms,
                transaction_timeout_ms * 2 // 3,  # so that it is aborted before the cluster does it
            )
            inner: WriterOptions = {
                **options,
                "key_serializer": None,
                "value_serializer": None,
                "delivery_timeout_ms": max(delivery_ms, 1),
            }

            def courier(name: str) -> Producer:
                one = Producer(transactional_id=name, transaction_timeout_ms=transaction_timeout_ms, **inner)
                one.parts.cluster.log_in_as(self.parts.cluster)
                return one

            self._spool = Spool(
                Path(spool_dir),
                spool_bytes_max,
                self.parts.settings.max_block_s,
                self.parts.cluster,
                courier,
                attempt_s_max=delivery_ms / 1000,
            )
            self.steps = SpoolSteps(self.steps, self._spool)

    # the spool

    @property
    def spooled(self) -> Spooled:
        """What waits in the spool, and what keeps it there; all zero without one."""
        return Spooled() if self._spool is None else self._spool.spooled

    async def flush(self) -> None:
        """Wait until every record handed over so far is acknowledged or failed; with a spool, is delivered or rejected,
        however long that takes. Raises SpoolUnusable if that has ended for good, ClientClosed once it is stopped.
        """
        if self._spool is None:
            await super().flush()
        else:
            self.parts.life.check_here()
            await self._spool.flush()

    async def sync(self) -> None:
        """Return once all records sent before are on the disk, so that they outlive a power failure. Without this they
        outlive the process alone. Raises SpoolUnusable if the disk fails, OutOfTurn without a spool.
        """
        if self._spool is None:
            raise OutOfTurn("records are kept on the disk by a producer that has a spool_dir")
        self.parts.life.check_here()
        await self._spool.sync()

    def _check_spool(self, transactional_id: str | None, bytes_max: int) -> None:
        settings = self.parts.settings
        if transactional_id is not None:
            raise ValueError(
                "spool_dir and transactional_id exclude each other: a spool has transactions of its own"
            )
        if not settings.sending.fit_transactions:
            raise ValueError("spool_dir needs acks='all' and idempotence")
        if settings.splitting.large_message_segment_size is not None:
            raise ValueError(
                "spool_dir and large_message_segment_size exclude each other: a spool takes no large messages"
            )
        least = RECORDS_PER_LIMIT * settings.sending.max_request_size
        if bytes_max < least:
            raise ValueError(
                f"spool_bytes_max is at least {RECORDS_PER_LIMIT} times max_request_size, {least}, not {bytes_max}"
            )

    # transactions

    def transaction(self, *, app_version: int | None = None) -> Transaction:
        """A transaction for an `async with`: committed at the end of the block, aborted when that raises. After
        TransactionFailed the same work may be tried again in another one.

        With an `app_version` it counts only if no transaction of this transactional id was committed under this version
        or a later one; `result.was_committed` tells. That takes a cluster of Ottla.
        """
        return Transaction(self._need_transactions(), app_version, shared=app_version is not None)

    async def begin(self, app_version: int | None = None) -> Transaction:
        """Begin a transaction that other processes can join by its `token`. That takes a cluster of Ottla.

        Raises what `begin_transaction` raises, and VersionUnsupported from other clusters.
        """
        return await Transaction(self._need_transactions(), app_version, shared=True).begin()

    async def begin_transaction(self) -> None:
        """Whatever is sent from now on is one transaction. Raises OutOfTurn while another is open, ProducerFenced once
        the transactional id is somebody else's.
        """
        self._need_transactions().begin()

    async def commit_transaction(self) -> None:
        """Send what is buffered, then commit. When this returns, readers of committed records see all of it.

        Raises TransactionFailed if a record or a group's offsets failed: then only `abort_transaction` is possible;
        ProducerFenced, and then nothing is; RequestTimedOut after `max_block_ms` without an answer: then only the same
        call is possible, which asks again.
        """
        await self._need_transactions().commit()

    async def abort_transaction(self) -> None:
        """Let nothing of the transaction count. Records not yet acknowledged fail with TransactionAborted.

        Raises ProducerFenced, or RequestTimedOut as `commit_transaction` does.
        """
        await self._need_transactions().abort()

    async def send_offsets_to_transaction(
        self,
        offsets: Mapping[TopicPartition, Committable],
        group: GroupConsumer | ConsumerGroupMetadata | str,
    ) -> None:
        """Commit `offsets` (next to read) for a group as part of the transaction (KIP-447).

        Given a Consumer, or its `group_metadata()`, the offsets count only if it is still a member of the group; given
        a group's name alone, that is not checked. A Consumer is asked for what is `committable`; where it is not given,
        and there may be large messages, give what its `committable` says instead of bare offsets. Raises
        TransactionFailed if they are refused.
        """
        member, places = who_and_where(group, offsets_by_partition(offsets))
        await self._need_transactions().send_offsets(places, member)

    @property
    def last_app_version(self) -> int | None:
        """The `app_version` of the last commit under this transactional id that had one, also of an earlier producer's;
        None if there was none.
        """
        return self._need_transactions().last_app_version

    @property
    def identity(self) -> ProducerIdentity:
        """Under which producer id and epoch the cluster knows this producer now. Pairs of them rise: whoever has taken
        the transactional id over has a greater one, and so has this producer after each of its transactions.
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
        """What begins, commits and aborts the transactions of this producer."""
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
    """Who commits, and what. A member is asked; what else is given stands for itself."""
    places = {one: where for one, where in offsets.items() if isinstance(where, OffsetAndMetadata)}
    bare = {one: where for one, where in offsets.items() if not isinstance(where, OffsetAndMetadata)}
    if isinstance(group, str | ConsumerGroupMetadata):
        member = ConsumerGroupMetadata(group) if isinstance(group, str) else group
        return member, places | {one: OffsetAndMetadata(offset) for one, offset in bare.items()}
    asked = {one: group.committable(one, offset) for one, offset in bare.items()}
    return group.group_metadata(), places | asked
