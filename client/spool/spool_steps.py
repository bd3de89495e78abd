"""The steps of `send` where there is a spool: a record's place is in its files, whatever the cluster knows."""

from __future__ import annotations

from dataclasses import replace

from ..columns.sending import ColumnsDelivery
from ..columns.source import ColumnSource
from ..producing.pending import PendingRecord
from ..writing.send_steps import SendSteps
from .futures import SpooledFuture
from .spool import Spool


class SpoolSteps(SendSteps):
    """Of one producer. No batch is ever open, so that `append` leaves every record to the other steps."""

    keeps_records = True

    def __init__(self, instead_of: SendSteps, spool: Spool) -> None:
        """`instead_of`: those that the producer would have without its spool."""

        def check_open() -> None:
            instead_of.check_open()
            spool.check()

        super().__init__(replace(instead_of.parts, splitter=None, check_open=check_open, transaction=None))
        self._spool = spool

    def is_plain(self, value: object, key: object, timestamp_ms: int | None, headers: object) -> bool:
        """None is."""
        return False

    def ready(self, topic: str, size: int, partition: int | None = None) -> bool:
        """Whether there is room in the spool."""
        return self._spool.has_room(topic, size)

    async def become_ready(self, topic: str, size: int, partition: int | None = None) -> None:
        """Wait until there is. Raises SpoolFull, and what `check_open` raises."""
        await self._spool.room(topic, size)
        self.check_open()

    def add(
        self, topic: str, partition: int | None, record: PendingRecord, size: int
    ) -> tuple[SpooledFuture, bool]:
        """Write the record down; its delivery, and whether it is the loop's turn. Raises SpoolUnusable."""
        return self._spool.add(topic, partition, record)

    async def send_columns(
        self, topic: str, source: ColumnSource, partition: int | str | None
    ) -> ColumnsDelivery:
        """Raises ValueError: rows of columns do not go through a spool."""
        raise ValueError(
            "send_arrow does not go through a spool: leave the spool_dir out, or send the rows one by one"
        )
