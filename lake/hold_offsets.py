"""The offsets that tables still need, committed to a group of each table, so that retention can wait for the tables."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from ..protocol.errors import ErrorCode, KafkaError
from .cluster_view import LakeView
from .complaints import Complaints
from .topic_table import TopicTable

logger = logging.getLogger(__name__)

REPEAT_S: Final = 3600.0
"""Seconds after which offsets are committed again, though they have not changed: committed offsets expire."""
TIMEOUT_S: Final = 10.0
"""Time within which the group's coordinator has to answer."""


class HoldOffsets:
    """The commits of needed offsets, for tables whose topics have `ottla.lake.hold=true`.

    A failure is logged once, and ends nothing: retention then holds more than the table needs. The offsets are
    committed with the next round.
    """

    def __init__(self, view: LakeView, now_s: Callable[[], float] = time.monotonic) -> None:
        self._view = view
        self._now_s = now_s
        self._done: dict[str, tuple[Mapping[int, int], float]] = {}
        """The offsets that were committed last, and the time of the commit, by table."""
        self._complaints = Complaints(logger)

    async def opened(self, tables: Sequence[TopicTable]) -> None:
        """Commit the needed offsets of tables that were opened. A table may have gone back, and its group may be
        new."""
        for table in tables:
            self._done.pop(table.settings.table, None)
        await self.written(tables)

    async def written(self, tables: Sequence[TopicTable]) -> None:
        """Commit the needed offsets of tables, if they have changed since, or were committed long ago."""
        for table in tables:
            if table.settings.hold and self._is_due(table):
                await self._commit(table)

    def _is_due(self, table: TopicTable) -> bool:
        offsets, committed_s = self._done.get(table.settings.table, (None, 0.0))
        return offsets != table.needed or self._now_s() - committed_s >= REPEAT_S

    async def _commit(self, table: TopicTable) -> None:
        settings, needed = table.settings, table.needed
        try:
            async with asyncio.timeout(TIMEOUT_S):
                await self._view.commit_offsets(settings.hold_group, settings.topic, needed)
        except (KafkaError, TimeoutError) as error:
            self._complaints.add(settings.table, _complaint(settings.table, settings.hold_group, error))
            return
        self._done[settings.table] = needed, self._now_s()
        if self._complaints.end(settings.table):
            logger.info(
                "table %s: offsets are committed to group %s again", settings.table, settings.hold_group
            )


def _complaint(table: str, group: str, error: KafkaError | TimeoutError) -> str:
    """Return the text for the log about a failed commit of offsets."""
    if isinstance(error, TimeoutError):
        reason = f"its coordinator has not answered within {TIMEOUT_S:.0f} s"
    elif error.code is ErrorCode.GROUP_AUTHORIZATION_FAILED:
        reason = (
            f"the worker's user needs Read on the group {group}, or on groups that begin with ottla-lake-"
        )
    else:
        reason = error.message
    return (
        f"table {table}: no offsets can be committed to group {group}: {reason}. The table goes on. Retention of its "
        "topic waits for it up to ottla.lake.hold.max.ms"
    )
