"""Look for a transaction marker in the files of a log, where it is too old to be listed in memory."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ....protocol.records.record_batch import CONTROL_FLAG, TRANSACTIONAL_FLAG
from ..segments.segment import Segment
from ..storage_errors import BrokenBatch, damage
from .open_transactions import OpenTransactions
from .producer_snapshot import read_snapshot, snapshot_offsets, snapshot_path
from .recent_markers import FirstMarker

_ABOVE_ALL: Final = 2**63


class MarkerSearch:
    """For the first marker above a commit index. Made and closed in the event loop's thread; `find` blocks, for as long
    as it takes to read the headers of a segment, and belongs in another one.
    """

    def __init__(self, directory: Path, segments: Sequence[Segment], commit_index: int) -> None:
        """`segments`: those of the log in `directory`, from the oldest to the active one.

        Raises KafkaError: KAFKA_STORAGE_ERROR.
        """
        self._directory = directory
        self._segments = segments
        self._commit_index = commit_index
        # While this is held the active segment's descriptor is not closed under `find`, whoever rolls it.
        self._pin = segments[-1].descriptor()

    def find(self) -> FirstMarker | None:
        """The marker; the start of the first segment if that is behind it; None if there is none.

        Raises KafkaError: KAFKA_STORAGE_ERROR if a segment cannot be read, perhaps as it was deleted since, or is
        damaged.
        """
        first = self._first_to_read()
        if first is None:
            start = self._segments[0].base_offset
            return FirstMarker(start, start, start)
        transactions = self._before(first)
        for segment in self._segments[first:]:
            found = self._find_in(segment, transactions)
            if found is not None:
                return found
        return None

    def close(self) -> None:
        """Let go of the files."""
        self._pin.release()

    def _first_to_read(self) -> int | None:
        """Number of the last segment that is known to begin below the marker, else the first one; None if that is known
        to begin above. As commit indexes rise along a log, not every snapshot has to be read."""
        snapshots = set(snapshot_offsets(self._directory))
        known = [number for number, segment in enumerate(self._segments) if segment.base_offset in snapshots]
        below = bisect_right(known, self._commit_index, key=self._last_commit_index_before)
        if below:
            return known[below - 1]
        if known and known[0] == 0 and self._last_commit_index_before(0) != _ABOVE_ALL:
            return None
        return 0

    def _last_commit_index_before(self, number: int) -> int:
        """That of the last marker below a segment. A damaged snapshot counts as one that is too high: then an earlier
        segment is read."""
        try:
            producers = read_snapshot(snapshot_path(self._directory, self._segments[number].base_offset))
        except ValueError:
            return _ABOVE_ALL
        return producers.transactions.last_commit_index

    def _before(self, number: int) -> OpenTransactions:
        """The transactions where a segment begins. Without a snapshot none is known: then it is the first segment, and
        what lies before it cannot be read."""
        offset = self._segments[number].base_offset
        if offset not in snapshot_offsets(self._directory):
            return OpenTransactions()
        try:
            return read_snapshot(snapshot_path(self._directory, offset)).transactions
        except ValueError:
            return OpenTransactions()

    def _find_in(self, segment: Segment, transactions: OpenTransactions) -> FirstMarker | None:
        """Brings `transactions` up to the end of the segment, if the marker is not in it."""
        try:
            for position, header in segment.walk(0, segment.base_offset):
                offset = header.base_offset
                if header.attributes & CONTROL_FLAG:
                    marker = segment.marker_at(position, header)
                    if marker is None:
                        continue
                    if marker.commit_index > self._commit_index:
                        open_from = next(iter(transactions.open.values()), offset)
                        return FirstMarker(offset, open_from, transactions.behind_last_end)
                    transactions.end(header.producer_id, marker, offset)
                    transactions.forget(offset + 1)
                elif header.attributes & TRANSACTIONAL_FLAG and header.producer_id not in transactions.open:
                    transactions.begin(header.producer_id, offset)
        except BrokenBatch as broken:
            raise damage(segment.path, broken.position, broken.reason) from broken
        return None
