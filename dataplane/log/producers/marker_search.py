"""Search for a transaction marker in the files of a log, if it is too old to be listed in memory."""

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
    """A search for the first marker above a commit index. It is created and closed in the event loop's thread. `find`
    blocks while it reads the headers of a segment, and belongs in another thread."""

    def __init__(self, directory: Path, segments: Sequence[Segment], commit_index: int) -> None:
        """`segments` are those of the log in `directory`, from the oldest to the active one.

        Raises KafkaError: KAFKA_STORAGE_ERROR.
        """
        self._directory = directory
        self._segments = segments
        self._commit_index = commit_index
        # Keeps the active segment's descriptor open during `find`, even if the segment is rolled meanwhile.
        self._pin = segments[-1].descriptor()

    def find(self) -> FirstMarker | None:
        """Return the marker; the start of the first segment if the marker is before it; None if none exists.

        Raises KafkaError: KAFKA_STORAGE_ERROR if a segment cannot be read, perhaps because it was deleted meanwhile, or
        is damaged.
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
        """Release the files."""
        self._pin.release()

    def _first_to_read(self) -> int | None:
        """Return the number of the last segment that is known to begin before the marker, or else of the first one.
        Returns None if the first segment is known to begin after the marker.

        As commit indexes rise along a log, only some snapshots have to be read.
        """
        snapshots = set(snapshot_offsets(self._directory))
        known = [number for number, segment in enumerate(self._segments) if segment.base_offset in snapshots]
        below = bisect_right(known, self._commit_index, key=self._last_commit_index_before)
        if below:
            return known[below - 1]
        if known and known[0] == 0 and self._last_commit_index_before(0) != _ABOVE_ALL:
            return None
        return 0

    def _last_commit_index_before(self, number: int) -> int:
        """Return the commit index of the last marker before a segment. A damaged snapshot counts as too high, so that
        an earlier segment is read."""
        try:
            producers = read_snapshot(snapshot_path(self._directory, self._segments[number].base_offset))
        except ValueError:
            return _ABOVE_ALL
        return producers.transactions.last_commit_index

    def _before(self, number: int) -> OpenTransactions:
        """Return the transactions at the start of a segment. Without a snapshot there are none: then it is the first
        segment, and earlier records cannot be read."""
        offset = self._segments[number].base_offset
        if offset not in snapshot_offsets(self._directory):
            return OpenTransactions()
        try:
            return read_snapshot(snapshot_path(self._directory, offset)).transactions
        except ValueError:
            return OpenTransactions()

    def _find_in(self, segment: Segment, transactions: OpenTransactions) -> FirstMarker | None:
        """Return the marker if it is in this segment. Otherwise update `transactions` to the segment's end, and return
        None."""
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
