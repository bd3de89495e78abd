"""Holds of retention for tables of the lake: the leader of a log asks for the offsets that the table still needs.

The worker of the lake commits these offsets to a group of the table. A leader asks the group's coordinator only if
retention would drop records of such a topic, and uses the answer for one check. Without an answer, and for a partition
without an offset, it holds from the log's start. Followers drop by their leader's log start offset alone: so none of
them drops records that its leader holds.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from ...protocol.errors import KafkaError
from ...protocol.exposition import Family, gauge
from ...protocol.settings.config_lake import hold_group, table_name
from ..log.retention import KEEP_ALL, Hold
from ..runtime.time_slices import in_time_slices
from .replica import StoredReplica

logger = logging.getLogger(__name__)

_Replica = TypeVar("_Replica", bound=StoredReplica)

HELD_BYTES = gauge(
    "ottla_lake_held_bytes",
    "Bytes that retention would have dropped, and keeps for the lake's table. Only a partition's leader reports them.",
    "topic",
    "partition",
)


@dataclass(frozen=True, slots=True)
class TableHold:
    """The hold on a log for a table, during one check of retention."""

    hold: Hold
    table: str
    reads_known: bool
    """False if the offset that the table needs is unknown."""


class TableHolds(Generic[_Replica]):
    """The holds on the logs of this broker, and the bytes that they kept at the last check."""

    def __init__(
        self,
        read_committed: Callable[[str, str], Awaitable[Mapping[int, int] | None]],
        leads: Callable[[_Replica], bool],
    ) -> None:
        """`read_committed` takes a group and a topic, and returns by partition the committed offsets; None if they
        cannot be read. `leads` returns whether this broker leads a replica's partition."""
        self._read_committed = read_committed
        self._leads = leads
        self._kept: Mapping[_Replica, int] = {}

    async def for_check(self, replicas: Iterable[_Replica], now_ms: int) -> HoldsOfCheck[_Replica]:
        """Ask for the offsets that tables still need, and return the holds for one check."""
        asked: dict[str, str] = {}
        async for replica in in_time_slices(replicas):
            if replica.log.config.waits_for_table and self._leads(replica) and _has_held(replica, now_ms):
                asked[replica.topic] = hold_group(_table(replica))
        answers = await asyncio.gather(
            *(self._read_committed(group, topic) for topic, group in asked.items())
        )
        return HoldsOfCheck(dict(zip(asked, answers, strict=True)), self._leads)

    def note_kept(self, kept: Mapping[_Replica, int]) -> None:
        """Note the replicas of which a check has kept segments for a table, with the bytes of these segments."""
        self._kept = kept

    def metric_families(self) -> Iterator[Family]:
        """Yield the metrics."""
        yield Family(
            HELD_BYTES,
            [
                ((replica.topic, replica.index), held)
                for replica, held in self._kept.items()
                if self._leads(replica)
            ],
        )


class HoldsOfCheck(Generic[_Replica]):
    """The holds on logs during one check of retention."""

    def __init__(
        self, committed: Mapping[str, Mapping[int, int] | None], leads: Callable[[_Replica], bool]
    ) -> None:
        """`committed` has the topics that were asked about."""
        self._committed = committed
        self._leads = leads
        self.kept: dict[_Replica, int] = {}
        """The replicas of which the check has kept segments, with the bytes of these segments."""

    def of(self, replica: _Replica) -> TableHold | None:
        """Return the hold on a replica's log; None if its topic does not wait for a table.

        A topic that was not asked about had nothing to drop when the check began. It is left to the next check.
        """
        config = replica.log.config
        if not config.waits_for_table:
            return None
        if replica.topic not in self._committed or not self._leads(replica):
            return TableHold(KEEP_ALL, _table(replica), reads_known=False)
        offset = (self._committed[replica.topic] or {}).get(replica.index)
        return TableHold(
            Hold(offset or 0, config.lake_hold_max_ms), _table(replica), reads_known=offset is not None
        )

    def note(self, replica: _Replica, hold: TableHold | None, now_ms: int) -> None:
        """Note the bytes that a hold keeps at the end of the check of a replica's log. Raises KafkaError."""
        if hold is not None and self._leads(replica):
            held = replica.log.old_segments.held(replica.high_watermark, now_ms, hold.hold)
            if held:
                self.kept[replica] = sum(segment.size for segment in held)


def _table(replica: StoredReplica) -> str:
    return table_name(replica.topic, replica.log.config.lake_table)


def _has_held(replica: StoredReplica, now_ms: int) -> bool:
    """Return whether retention alone would drop records of the log. A log that cannot be read has none."""
    if replica.log.failure is not None:
        return False
    try:
        return bool(replica.log.old_segments.held(replica.high_watermark, now_ms, KEEP_ALL))
    except (KafkaError, OSError):
        return False
