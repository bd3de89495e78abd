"""A task of a batch: it joins the batch's transaction and writes its rows there.

No row counts before the driver commits, and then only if Spark has accepted this very attempt: the task's message
carries the attempt's receipt. So a task may fail, be retried, or run twice at once.

The tasks that write in a transaction keep it open. After all processes of a job have died it is aborted when its
timeout passes, unless the next driver runs the batch again and continues the transaction before.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Coroutine, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

import pyarrow
from pyspark.sql.datasource import WriterCommitMessage

from ...client.admin import Admin, BegunTransaction, TransactionDescription
from ...client.failures import VersionUnsupported
from ...client.producer import Producer
from ...client.producing.columns.sending import ColumnsDelivery
from ...client.producing.record_writer import RecordWriter
from ...client.transactions.writer import TransactionWriter
from ...protocol.errors import KafkaError
from ..options import WrongOption, admin_options
from .options import SinkOptions
from .rows import HEADERS, KEY, PARTITION, parts

T = TypeVar("T")
Batches = Iterator[pyarrow.RecordBatch]
_QUERY = r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
"""Pattern of a query's id, as Spark makes it."""
ASKED_PER_TIMEOUT = 4
"""Renewal requests per transaction timeout: a few may be late before a transaction in use is lost."""


@dataclass
class Written(WriterCommitMessage):
    """A task's message to the driver.

    `transaction` is None if the task had no rows, or no transaction is used. `was_committed`: its rows were committed
    before.
    """

    rows: int
    transaction: BegunTransaction | None = None
    receipt: str | None = None
    was_committed: bool = False


class SetBack(RuntimeError):
    """An error: a batch older than the last committed one is to be written. Its rows would be lost or duplicated."""


class IdTaken(RuntimeError):
    """An error: another query has written under this option 'transactionalId'.

    Either the query has lost its checkpoint, or two queries use the same id.
    """


def write(
    rows: Batches,
    options: SinkOptions,
    transactional_id: str,
    app_version: int | None,
    *,
    alone_under: str | None = None,
) -> Written:
    """Write a task's rows in the transaction of this `transactional_id`, begun for this `app_version`.

    `alone_under`: a prefix of transactional ids that no other query may use. Raises WrongRows, WrongOption, SetBack,
    IdTaken, and KafkaError as TransactionWriter does.
    """
    return asyncio.run(_InTransaction(options, transactional_id, app_version, alone_under).write(rows))


def write_at_least_once(rows: Batches, options: SinkOptions) -> Written:
    """Write a task's rows without a transaction. The rows of failed attempts remain."""
    return asyncio.run(_write_plainly(rows, options))


class TransactionLost(RuntimeError):
    """An error: the batch's transaction was aborted while this task wrote. A retry finds the next transaction."""


class _InTransaction:
    def __init__(
        self, options: SinkOptions, transactional_id: str, app_version: int | None, alone_under: str | None
    ) -> None:
        self._options = options
        self._name = transactional_id
        self._version = app_version
        self._alone_under = alone_under

    async def write(self, rows: Batches) -> Written:
        """Write a task's rows in the batch's transaction, which is begun only once there are rows."""
        first = await _next(rows)
        if first is None:
            return Written(0)
        async with Admin(**admin_options(self._options.client)) as admin:
            if self._alone_under is not None:
                await self._check_alone(admin, self._alone_under)
            transaction = await self._begin(admin)
            if transaction is None:
                self._check_replay(await self._described(admin))
                await _drain(rows)
                return Written(0, was_committed=True)
            count, receipt = await _unless(
                self._keep_open(admin, transaction), self._write_all(transaction, first, rows)
            )
        return Written(count, transaction, receipt)

    async def _write_all(
        self, transaction: BegunTransaction, first: pyarrow.RecordBatch, rows: Batches
    ) -> tuple[int, str]:
        """Write all rows in the transaction. Returns the number of rows, and the receipt by which the driver commits
        the rows."""
        count = 0
        async with TransactionWriter.join(transaction.token, **self._options.client) as writer:
            batch: pyarrow.RecordBatch | None = first
            while batch is not None:
                await _send(writer, batch, self._options.topic)
                count += batch.num_rows
                batch = await _next(rows)
            return count, str(await writer.finish())

    async def _begin(self, admin: Admin) -> BegunTransaction | None:
        try:
            return await admin.begin_transaction(
                self._name, app_version=self._version, timeout_ms=self._options.transaction_timeout_ms
            )
        except VersionUnsupported as error:
            raise WrongOption(
                f"to write exactly once takes a cluster of Ottla; this one has no transactions that many write in "
                f"({error.message}): use option 'delivery', at-least-once"
            ) from error

    async def _keep_open(self, admin: Admin, transaction: BegunTransaction) -> NoReturn:
        while True:
            await asyncio.sleep(self._options.transaction_timeout_ms / 1000 / ASKED_PER_TIMEOUT)
            found = await self._begin(admin)
            if found is not None and found.number != transaction.number:
                raise TransactionLost(
                    f"transaction {transaction.number} of {self._name!r} is over, and was not committed: another "
                    "driver has aborted it, or the cluster could not be reached for "
                    f"{self._options.transaction_timeout_ms} ms of option 'transactionTimeoutMs'"
                )

    async def _described(self, admin: Admin) -> TransactionDescription | None:
        """Return the transaction of this id; None if the id is unknown."""
        described = (await admin.describe_transactions([self._name]))[self._name]
        return None if isinstance(described, KafkaError) else described

    def _check_replay(self, described: TransactionDescription | None) -> None:
        """Raise SetBack for a batch before the last committed one, since Spark only runs the last batch again."""
        if described is None or self._version is None:
            return
        if described.app_version > self._version:
            raise SetBack(
                f"batch {self._version} is to be written, but transactional id {self._name!r} has committed up to "
                f"{described.app_version}: its checkpoint was set back, or another job writes under this id. What is "
                "to count besides needs a new checkpoint, or another id in option 'transactionalId'"
            )

    async def _check_alone(self, admin: Admin, given: str) -> None:
        """Refuse the id if another query has committed under it, until this query has committed a batch.

        Two queries that pass at the same time lose no rows: each has separate transactions.
        """
        own = await self._described(admin)
        if own is not None and own.app_version >= 0:
            return
        listed = await admin.list_transactions(pattern=f"{re.escape(given)}-{_QUERY}")
        others = [
            transaction.transactional_id
            for transaction in listed
            if transaction.transactional_id != self._name
        ]
        for name, described in (await admin.describe_transactions(others)).items():
            if isinstance(described, TransactionDescription) and described.app_version >= 0:
                query = name.removeprefix(f"{given}-")
                raise IdTaken(
                    f"'transactionalId' {given!r} is query {query}'s, which has committed up to batch "
                    f"{described.app_version}: two queries need two ids. If this is the same one and has lost its "
                    "checkpoint, what it has written would be written again: when that is meant, remove the former "
                    f"one's id with `ottla txn delete {name}`"
                )


async def _write_plainly(rows: Batches, options: SinkOptions) -> Written:
    count, deliveries = 0, list[ColumnsDelivery]()
    async with Producer(**options.client) as producer:
        while (batch := await _next(rows)) is not None:
            deliveries += await _send(producer, batch, options.topic)
            count += batch.num_rows
        for delivery in deliveries:
            await delivery
    return Written(count)


async def _send(
    writer: RecordWriter, batch: pyarrow.RecordBatch, topic: str | None
) -> Iterable[ColumnsDelivery]:
    names = batch.schema.names
    return [
        await writer.send_arrow(
            part.topic,
            part.rows,
            key=KEY if KEY in names else None,
            headers=HEADERS if HEADERS in names else None,
            partition=PARTITION if part.partition else None,
        )
        for part in parts(batch, topic)
    ]


async def _unless(watching: Coroutine[Any, Any, NoReturn], work: Coroutine[Any, Any, T]) -> T:
    """Return the result of `work`, unless `watching` raises before."""
    watcher, worker = asyncio.ensure_future(watching), asyncio.ensure_future(work)
    await asyncio.wait((watcher, worker), return_when=asyncio.FIRST_COMPLETED)
    for task in (watcher, worker):
        task.cancel()
    ends = await asyncio.gather(watcher, worker, return_exceptions=True)
    if not worker.cancelled():
        return worker.result()
    assert isinstance(ends[0], BaseException)
    raise ends[0]


async def _next(rows: Batches) -> pyarrow.RecordBatch | None:
    """Return the next batch with rows. Spark is awaited in a thread, so earlier batches are sent meanwhile."""
    while (batch := await asyncio.to_thread(next, rows, None)) is not None:
        if batch.num_rows:
            return batch
    return None


async def _drain(rows: Batches) -> None:
    """Read the remaining rows, since Spark expects all to be read."""
    while await _next(rows) is not None:
        pass
