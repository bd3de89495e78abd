"""A writer in a transaction that another process has begun."""

from __future__ import annotations

import asyncio
from typing import Self, Unpack

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.shared_transactions import JoinTransactionRequest, JoinTransactionResponse
from ..backoff import Backoff
from ..failures import OutOfTurn, RequestTimedOut, TransactionAborted, TransactionFailed, cluster_error
from ..options import checks_options
from ..producing.accumulator import ProducerIdentity
from ..producing.options import WRITER_OPTIONS, WriterOptions
from ..producing.record_writer import RecordWriter
from ..producing.transaction_state import ProducerPhase, TransactionState
from .transaction import WriterReceipt


@checks_options(*WRITER_OPTIONS)
class TransactionWriter(RecordWriter):
    """A producer of records that are committed or aborted by the transaction's owner:

        async with TransactionWriter.join(token, bootstrap_servers="localhost:9092") as writer:
            await writer.send("results", b"...")
            receipt = await writer.finish()

    The owner distributes the token (`Producer.begin`) and collects receipts. A writer's records are committed if its
    receipt is among those of the commit; otherwise they are aborted, as if the writer had never joined. So a writer may
    crash, and another may join to do the same work.
    """

    def __init__(self, token: str, **options: Unpack[WriterOptions]) -> None:
        """Create a writer; see `join`."""
        self._state = TransactionState("")
        super().__init__(transaction=self._state, **options)
        self._token = token
        self._receipt: WriterReceipt | None = None

    @classmethod
    def join(cls, token: str, **options: Unpack[WriterOptions]) -> Self:
        """Return a writer in the transaction with this token; it joins when it is started, as a block does.

        Its start raises KafkaError: INVALID_REQUEST for a text that is no token of this cluster, INVALID_TXN_STATE once
        the transaction is over, VersionUnsupported if the cluster has no such transactions.
        """
        return cls(token, **options)

    async def finish(self) -> WriterReceipt:
        """Wait until all records are acknowledged; no more can be sent. Returns the receipt for the owner.

        Raises TransactionFailed if a record failed: then a new writer must do the work again.
        """
        self.parts.life.check_loop()
        if self._state.phase is ProducerPhase.OPEN:
            self._state.committing()
        await self.parts.sender.flush()
        await self._report_counts()
        if self._state.phase is ProducerPhase.FAILED:
            raise TransactionFailed(
                f"this writer's records cannot count: {self._state.error}"
            ) from self._state.error
        self._state.require(ProducerPhase.COMMITTING)
        assert self._receipt is not None
        return self._receipt

    async def _on_start(self) -> None:
        joined = await self._join()
        self._receipt = WriterReceipt(joined.producer_id, joined.producer_epoch)
        self._state.transactional_id = joined.transactional_id
        self.parts.sender.use_identity(ProducerIdentity(*self._receipt))
        self._state.initialised()
        self._state.begin(adds_by_writing=True)

    async def _on_stop(self) -> None:
        self.parts.sender.abandon(TransactionAborted("the writer was stopped before it had finished"))
        if self.parts.auditor is not None:
            self.parts.auditor.transaction_ended(False)

    async def _report_counts(self) -> None:
        """Send the audit's counts in the transaction, since only the owner will know whether the records are
        committed."""
        if self.parts.auditor is None or self._state.phase is not ProducerPhase.COMMITTING:
            return
        for partition, record, size in await self.parts.auditor.records_of_transaction():
            self.parts.sender.add(self.parts.auditor.topic, partition, record, size)
        await self.parts.sender.flush()

    async def _join(self) -> JoinTransactionResponse:
        """Join the transaction. A repeated request creates another writer, and the first is never used, which does no
        harm."""
        loop = asyncio.get_running_loop()
        patience_s = self.parts.settings.max_block_s
        deadline = loop.time() + patience_s
        backoff = Backoff(self.parts.settings.connection.retry_backoff_max_ms)
        request = JoinTransactionRequest(token=self._token)
        while True:
            try:
                connection = await self.parts.cluster.any_connection()
                answer = await connection.request(request)
                code = ErrorCode.of(answer.error_code)
                if code is ErrorCode.NONE:
                    return answer
                error = cluster_error(code, "joining a transaction", answer.error_message)
            except KafkaError as lost:
                error = lost
            if not error.code.retriable:
                raise error
            if loop.time() > deadline:
                raise RequestTimedOut(
                    f"joining a transaction took longer than {patience_s:g} s of max_block_ms ({error})"
                ) from error
            await asyncio.sleep(backoff.next_s())

    def _check_open(self) -> None:
        if self._state.phase is ProducerPhase.COMMITTING:
            raise OutOfTurn("the writer has finished: what is sent now would not be part of its receipt")
        super()._check_open()
