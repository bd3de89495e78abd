"""The steps of `send` with a spool: a record is written to its files, whatever the state of the cluster."""

from __future__ import annotations

from dataclasses import replace

from ..producing.columns.sending import ColumnsDelivery
from ..producing.columns.source import ColumnSource
from ..producing.pending import PendingRecord
from ..producing.send_steps import SendSteps
from .futures import SpooledFuture
from .spool import Spool


class SpoolSteps(SendSteps):
    """The steps of a producer with a spool. No batch is ever open, so `append` leaves every record to these steps."""

    keeps_records = True

    def __init__(self, instead_of: SendSteps, spool: Spool) -> None:
        """`instead_of` are the steps that the producer would have without its spool."""

        def check_open() -> None:
            instead_of.check_open()
            spool.check()

        super().__init__(
            replace(instead_of.parts, splitter=None, referrer=None, check_open=check_open, transaction=None)
        )
        self._spool = spool

    def is_plain(self, value: object, key: object, timestamp_ms: int | None, headers: object) -> bool:
        """Return False, since a spool writes every record itself."""
        return False

    def ready(self, topic: str, size: int, partition: int | None = None) -> bool:
        """Return whether the spool has room for a record of `size` bytes."""
        return self._spool.has_room(topic, size)

    async def become_ready(self, topic: str, size: int, partition: int | None = None) -> None:
        """Wait until the spool has room for a record of `size` bytes. Raises SpoolFull, and the errors of
        `check_open`."""
        await self._spool.room(topic, size)
        self.check_open()

    def add(
        self, topic: str, partition: int | None, record: PendingRecord, size: int
    ) -> tuple[SpooledFuture, bool]:
        """Write the record. Returns its delivery, and whether it is the loop's turn. Raises SpoolUnusable."""
        return self._spool.add(topic, partition, record)

    async def send_columns(
        self, topic: str, source: ColumnSource, partition: int | str | None
    ) -> ColumnsDelivery:
        """Raise ValueError: rows of columns cannot go through a spool."""
        raise ValueError(
            "send_arrow does not go through a spool: leave the spool_dir out, or send the rows one by one"
        )
