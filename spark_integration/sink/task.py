"""What one task does: it joins the batch's transaction and writes its rows there.

Nothing that it writes counts before the driver commits, and then only if Spark has accepted this very attempt: the
receipt goes back with the task's message. So a task may fail, be tried again, or run twice at once.

A transaction is kept open by the tasks that write in it. When all of a job's processes have died it is aborted after
its timeout, unless the next driver, which plays the batch again, goes on in it before.
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
from ...client.columns.sending import ColumnsDelivery
from ...client.failures import VersionUnsupported
from ...client.producer import Producer
from ...client.transactions.writer import TransactionWriter
from ...client.writing.record_writer import RecordWriter
from ...protocol.errors import KafkaError
from ..options import WrongOption, admin_options
from .options import SinkOptions
from .rows import HEADERS, KEY, PARTITION, parts

T = TypeVar("T")
Batches = Iterator[pyarrow.RecordBatch]
_QUERY = r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
"""A query's id, as Spark makes them."""
ASKED_PER_TIMEOUT = 4
"""One request may be late, or two, before a transaction is lost that somebody writes in."""


@dataclass
class Written(WriterCommitMessage):
    """What a task tells the driver. `transaction` is None where it had nothing to write, or no transaction is used;
    `was_committed`: what it had to write was committed before."""

    rows: int
    transaction: BegunTransaction | None = None
    receipt: str | None = None
    was_committed: bool = False


class SetBack(RuntimeError):
    """A batch is to be written again though later ones were committed: what was written since would be lost, or stand
    twice."""


class IdTaken(RuntimeError):
    """Another query has written under this option 'transactionalId': the one that has it has lost its checkpoint, or
    there are two."""


def write(
    rows: Batches,
    options: SinkOptions,
    transactional_id: str,
    app_version: int | None,
    *,
    alone_under: str | None = None,
) -> Written:
    """Write a task's rows in the transaction of this name, begun for this version. `alone_under`: what the names of a
    query's transactions begin with that is to be the only one.

    Raises WrongRows, WrongOption, SetBack, IdTaken, and KafkaError as TransactionWriter does.
    """
    return asyncio.run(_InTransaction(options, transactional_id, app_version, alone_under).write(rows))


def write_at_least_once(rows: Batches, options: SinkOptions) -> Written:
    """Write a task's rows; an attempt that fails leaves what it has written, and so does each before it."""
    return asyncio.run(_write_plainly(rows, options))


class TransactionLost(RuntimeError):
    """The batch's transaction was aborted while this task wrote. Another attempt finds the next one."""


class _InTransaction:
    def __init__(
        self, options: SinkOptions, transactional_id: str, app_version: int | None, alone_under: str | None
    ) -> None:
        self._options = options
        self._name = transactional_id
        self._version = app_version
        self._alone_under = alone_under

    async def write(self, rows: Batches) -> Written:
        """A transaction is asked for only once there is something to write."""
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
        """How many rows, and the receipt for them."""
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
        """None while the id is not known."""
        described = (await admin.describe_transactions([self._name]))[self._name]
        return None if isinstance(described, KafkaError) else described

    def _check_replay(self, described: TransactionDescription | None) -> None:
        """Spark plays the last batch again, never one before."""
        if described is None or self._version is None:
            return
        if described.app_version > self._version:
            raise SetBack(
                f"batch {self._version} is to be written, but transactional id {self._name!r} has committed up to "
                f"{described.app_version}: its checkpoint was set back, or another job writes under this id. What is "
                "to count besides needs a new checkpoint, or another id in option 'transactionalId'"
            )

    async def _check_alone(self, admin: Admin, given: str) -> None:
        """Until the query has committed something. Should two slip through at the same time, nothing is lost: each has
        transactions of its own."""
        own = await self._described(admin)
        if own is not None and own.app_version >= 0:
            return
        listed = await admin.list_transactions(pattern=f"{re.escape(given)}-{_QUERY}")
        others = [one.transactional_id for one in listed if one.transactional_id != self._name]
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
        for one in deliveries:
            await one
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
    """What `work` comes to, unless the one who is `watching` raises before."""
    watcher, worker = asyncio.ensure_future(watching), asyncio.ensure_future(work)
    await asyncio.wait((watcher, worker), return_when=asyncio.FIRST_COMPLETED)
    for one in (watcher, worker):
        one.cancel()
    ends = await asyncio.gather(watcher, worker, return_exceptions=True)
    if not worker.cancelled():
        return worker.result()
    assert isinstance(ends[0], BaseException)
    raise ends[0]


async def _next(rows: Batches) -> pyarrow.RecordBatch | None:
    """The next batch with rows. Spark is waited for in a thread: what was sent before goes on its way meanwhile."""
    while (batch := await asyncio.to_thread(next, rows, None)) is not None:
        if batch.num_rows:
            return batch
    return None


async def _drain(rows: Batches) -> None:
    """Spark expects its rows to be taken."""
    while await _next(rows) is not None:
        pass
