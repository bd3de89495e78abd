"""The record that a handler gets, with a way to send records that count with it."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from functools import cached_property
from threading import Event
from typing import TYPE_CHECKING, Any

from ..exactly_once.batch import NewRecord
from ..records import ConsumerRecord

if TYPE_CHECKING:
    from ..tracing.spans import Creation


class AlreadyDone:
    """A result of a call that waits for nothing: `await` returns at once, and is not needed."""

    __slots__ = ()

    def __await__(self) -> Generator[None, None, None]:
        yield from ()


class WorkerRecord(ConsumerRecord):
    """A record as a worker's handler gets it: a ConsumerRecord that can send others.

        async def bill(order):
            await order.send("bills", order.value, key=order.key)

    Key and value are bytes, or the results of the worker's deserializers.
    """

    attempt: int = 1
    """The number of this attempt, from 1 on."""
    sent: Sequence[NewRecord] = ()
    """The records that the handler has sent."""
    creation: Creation | None = None
    """The maker of the trace contexts of records that the handler sends; None without traces."""

    @classmethod
    def of(cls, record: ConsumerRecord, attempt: int, creation: Creation | None = None) -> WorkerRecord:
        """Return a record for an attempt."""
        made = tuple.__new__(cls, record)
        if attempt != 1:
            made.attempt = attempt
        if creation is not None:
            made.creation = creation
        return made

    @cached_property
    def cancelled(self) -> Event:
        """An event that is set once the attempt is cancelled: it took longer than `timeout_s`, or the partition goes to
        another member. Handlers that are plain functions look at it, or wait for it in place of `time.sleep`."""
        return Event()

    def send(
        self,
        topic: str,
        value: bytes | None = None,
        key: bytes | None = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Iterable[tuple[str, bytes | None]] = (),
    ) -> AlreadyDone:
        """Send a record once the handler has finished this record. A failed attempt sends nothing.

        With `transactional=True` it is sent in one transaction with the offset of this record: readers of committed
        records get it exactly once. Otherwise the offset counts once all replicas have the record, so that readers may
        get it twice after a failure. `await` is optional, so that plain functions can call it, too.

        With `tracing=True` the record has the handler's trace context in its headers.
        """
        if self.creation is not None:
            headers = self.creation.headers(topic, headers)
        new = NewRecord(topic, value, key, partition, timestamp_ms, list(headers))
        if isinstance(self.sent, list):
            self.sent.append(new)
        else:
            self.sent = [new]
        return AlreadyDone()

    def __reduce__(self) -> tuple[Any, ...]:
        return ConsumerRecord, tuple(self)


def worker_records(records: Sequence[ConsumerRecord]) -> Sequence[WorkerRecord]:
    """Return records for their first attempts."""
    if set(map(type, records)) == {WorkerRecord}:
        return records  # type: ignore[return-value]
    return [record if isinstance(record, WorkerRecord) else WorkerRecord.of(record, 1) for record in records]
