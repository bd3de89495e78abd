"""Writing in a transaction that another process has begun."""

from __future__ import annotations

import asyncio
from typing import Self, Unpack

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.shared_transactions import JoinTransactionRequest, JoinTransactionResponse
from ..connections.cluster import Backoff
from ..failures import OutOfTurn, RequestTimedOut, TransactionAborted, TransactionFailed, cluster_error
from ..options import checks_options
from ..producing.accumulator import ProducerIdentity
from ..producing.transaction_state import ProducerPhase, TransactionState
from ..writing.options import WRITER_GROUPS, WriterOptions
from ..writing.record_writer import RecordWriter
from .transaction import WriterReceipt


@checks_options(*WRITER_GROUPS)
class TransactionWriter(RecordWriter):
    """Sends records that count if the transaction's owner says so:

        async with TransactionWriter.join(token, bootstrap_servers="localhost:9092") as writer:
            await writer.send("results", b"...")
            receipt = await writer.finish()

    The owner hands the token out (`Producer.begin`) and gets receipts back. What a writer has written counts if its
    receipt is among those committed, or else is aborted, as if it had never joined: it may crash, and another may join
    to do the same work. The options are those of Producer.
    """

    def __init__(self, token: str, **options: Unpack[WriterOptions]) -> None:
        """See `join`."""
        self._state = TransactionState("")
        super().__init__(transaction=self._state, **options)
        self._token = token
        self._receipt: WriterReceipt | None = None

    @classmethod
    def join(cls, token: str, **options: Unpack[WriterOptions]) -> Self:
        """A writer in the transaction with this token; it joins when it is started, which the block does.

        Starting raises KafkaError: INVALID_REQUEST for what is no token of this cluster, INVALID_TXN_STATE once the
        transaction is over, VersionUnsupported where the cluster has no such transactions.
        """
        return cls(token, **options)

    async def finish(self) -> WriterReceipt:
        """Wait until everything is acknowledged; no more can be sent. The receipt is for the owner.

        Raises TransactionFailed if a record failed: then the work has to be done again by a new writer.
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
        """As part of the transaction, since only its owner will know whether the records count."""
        if self.parts.auditor is None or self._state.phase is not ProducerPhase.COMMITTING:
            return
        for partition, record, size in await self.parts.auditor.records_of_transaction():
            self.parts.sender.add(self.parts.auditor.topic, partition, record, size)
        await self.parts.sender.flush()

    async def _join(self) -> JoinTransactionResponse:
        """Asking again makes another writer, and of the first nothing is heard any more: that does no harm."""
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
