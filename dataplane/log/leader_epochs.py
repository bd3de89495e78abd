"""The start offsets of leader epochs in a partition's log (KIP-101, KIP-279)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from itertools import pairwise
from operator import itemgetter

UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1

_epoch = itemgetter(0)
_start = itemgetter(1)


class LeaderEpochs:
    """The (epoch, start offset) pairs of one log.

    Invariant: epochs rise strictly and start offsets rise strictly. Pure. `dirty` is True if the checkpoint file is
    outdated; the writer of the file clears it.
    """

    __slots__ = ("_entries", "dirty", "saved")

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        self._entries: list[tuple[int, int]] = []
        for epoch, start_offset in entries:
            self.assign(epoch, start_offset)
        self.dirty = False
        self.saved = self.entries
        """The entries in the checkpoint file."""

    @property
    def entries(self) -> tuple[tuple[int, int], ...]:
        return tuple(self._entries)

    @property
    def latest_epoch(self) -> int:
        """The epoch of the last entry; -1 if none exists."""
        return self._entries[-1][0] if self._entries else UNDEFINED_EPOCH

    def last_written(self, log_end_offset: int) -> int:
        """Return the epoch of the last record, -1 if unknown. A leadership that has written nothing does not count,
        unless all earlier epochs are gone."""
        entries = self._entries
        if len(entries) > 1 and entries[-1][1] >= log_end_offset:
            return entries[-2][0]
        return self.latest_epoch

    def lacks_a_save(self, log_end_offset: int) -> bool:
        """Return whether the checkpoint differs in epochs that have records. A leadership that has written nothing does
        not count: each start of a broker may begin one for thousands of logs."""
        if not self.dirty:
            return False
        entries, saved = (
            [entry for entry in some if entry[1] < log_end_offset] for some in (self._entries, self.saved)
        )
        return entries != saved

    def copy(self) -> LeaderEpochs:
        """Return a copy of the present state, for another thread."""
        return LeaderEpochs(self._entries)

    def check(self, log_start_offset: int, log_end_offset: int) -> None:
        """Raise AssertionError if these epochs cannot belong to a log from `log_start_offset` to `log_end_offset`."""
        entries = self._entries
        for (epoch, start), (next_epoch, next_start) in pairwise(entries):
            if not (epoch < next_epoch and start < next_start):
                raise AssertionError(
                    f"epoch {next_epoch} starts at {next_start}, after epoch {epoch} at {start}"
                )
        if entries and not log_start_offset <= entries[0][1]:
            raise AssertionError(f"epochs {entries[:2]} begin below the log start {log_start_offset}")
        if entries and not entries[-1][1] <= log_end_offset:
            raise AssertionError(f"epoch {entries[-1]} starts past the log end {log_end_offset}")

    def assign(self, epoch: int, start_offset: int) -> None:
        """Record that `epoch` starts at `start_offset`; a known epoch keeps its first start.

        Entries that contradict the new one (a later or equal epoch, or a start at or after it) are dropped, as after an
        unclean election.
        """
        entries = self._entries
        if entries:
            last_epoch, last_start = entries[-1]
            if epoch == last_epoch and start_offset >= last_start:
                return
            while entries and (entries[-1][0] >= epoch or entries[-1][1] >= start_offset):
                entries.pop()
        entries.append((epoch, start_offset))
        self.dirty = True

    def start_of(self, epoch: int) -> int:
        """Return the start of the first epoch that is not below `epoch`; UNDEFINED_OFFSET if none exists."""
        return next((start for known, start in self._entries if known >= epoch), UNDEFINED_OFFSET)

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Return the largest known epoch at or below `epoch`, and its end offset.

        Returns (-1, -1) if the epoch is undefined or newer than all known epochs: the asker must then decide without
        this log. For an epoch older than all, the result is itself and the start of the first known epoch. The latest
        epoch ends at the log end.
        """
        entries = self._entries
        if epoch == UNDEFINED_EPOCH or not entries:
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        last_epoch = entries[-1][0]
        if epoch == last_epoch:
            return epoch, log_end_offset
        if epoch > last_epoch:
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        following = bisect_right(entries, epoch, key=_epoch)
        if following == 0:
            return epoch, entries[0][1]
        return entries[following - 1][0], entries[following][1]

    def epoch_at(self, offset: int) -> int:
        """Return the leader epoch of the record at `offset`; -1 if the record is older than all known epochs."""
        following = bisect_right(self._entries, offset, key=_start)
        return self._entries[following - 1][0] if following else UNDEFINED_EPOCH

    def fault_of(self, epoch: int, offset: int) -> str | None:
        """Return why a batch at `offset` cannot have the `epoch` of its header, which no checksum covers; None if it
        can. For a batch below all known epochs it is only known that its epoch is not newer."""
        entries = self._entries
        if not entries:
            return None
        first_epoch, first_start = entries[0]
        if offset < first_start:
            return None if epoch <= first_epoch else f"leader epoch {epoch} lies before epoch {first_epoch}"
        known = self.epoch_at(offset)
        return None if epoch == known else f"its leader epoch is {epoch}, the log has {known} there"

    def first_above(self, epoch: int) -> int | None:
        """Return the start of the first epoch above `epoch`; None if none exists."""
        following = bisect_right(self._entries, epoch, key=_epoch)
        return self._entries[following][1] if following < len(self._entries) else None

    def truncate_from_end(self, end_offset: int) -> None:
        """Forget the leader epochs that start at or after `end_offset`, since the log is truncated there."""
        while self._entries and self._entries[-1][1] >= end_offset:
            self._entries.pop()
            self.dirty = True

    def truncate_from_start(self, start_offset: int) -> None:
        """Forget the epochs below `start_offset`; an epoch that spans the offset now starts there."""
        following = bisect_right(self._entries, start_offset, key=_start)
        if following == 0 or (following == 1 and self._entries[0][1] == start_offset):
            return
        spanning_epoch = self._entries[following - 1][0]
        self._entries[:following] = [(spanning_epoch, start_offset)]
        self.dirty = True

    def clear(self) -> None:
        """Forget all epochs."""
        if self._entries:
            self._entries.clear()
            self.dirty = True
