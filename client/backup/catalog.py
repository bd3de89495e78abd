"""The cuts of a store that count, and the segments that count at a cut. Pure.

A run takes the next epoch with an object that closes all earlier epochs: it has the number of each epoch's last cut. So
whatever an interrupted run left behind, or a run that has lost its lease still writes, belongs to no cut.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from ...protocol.iso_times import EPOCH
from ..failures import BackupUnusable
from .cut_file import FORMAT
from .names import CutId, CutName, SegmentName


@dataclass(frozen=True, slots=True)
class EpochFile:
    """The object by which a run begins its epoch."""

    epoch: int
    holder: str
    """A text that no other run has: host, process id and a random part."""
    closed: Mapping[int, int] = field(default_factory=dict)
    """The number of the last cut of each earlier epoch that has cuts."""

    def written(self) -> bytes:
        """Return the bytes of the object."""
        content = {"format": FORMAT, "epoch": self.epoch, "holder": self.holder, "closed": self.closed}
        return json.dumps(content).encode("ascii")


def read_epoch(data: bytes, key: str) -> EpochFile:
    """Return the epoch in an object's bytes. Raises BackupUnusable with the object's key."""
    try:
        content = json.loads(data)
        if content["format"] > FORMAT:
            raise BackupUnusable(f"{key} has format {content['format']}; this release reads {FORMAT}")
        closed = {int(epoch): int(number) for epoch, number in content["closed"].items()}
        return EpochFile(int(content["epoch"]), str(content["holder"]), closed)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BackupUnusable(f"{key} is no epoch of a backup: {error}") from error


@dataclass(frozen=True, slots=True)
class Catalog:
    """The cuts of a store, by the object of its newest epoch."""

    epoch: EpochFile
    cuts: tuple[CutName, ...] = ()
    """The cuts that count, from the oldest to the newest."""

    @property
    def newest(self) -> CutName | None:
        """The newest cut; None if there is none."""
        return self.cuts[-1] if self.cuts else None

    def counts(self, cut: CutId) -> bool:
        """Return whether an object that names this cut may count: its epoch was not closed before it."""
        if cut.epoch == self.epoch.epoch:
            return True
        return cut.number <= self.epoch.closed.get(cut.epoch, 0)

    def segments_at(self, cut: CutId, found: Iterable[SegmentName]) -> list[SegmentName]:
        """Return the segments that belong to a cut, in no order."""
        return [segment for segment in found if segment.cut <= cut and self.counts(segment.cut)]

    def is_garbage(self, segment: SegmentName) -> bool:
        """Return whether an interrupted run has left a segment behind, so that no cut can have it."""
        return segment.cut.epoch < self.epoch.epoch and not self.counts(segment.cut)

    def closed(self) -> dict[int, int]:
        """Return the last cut's number of each epoch, for the object of the next epoch."""
        closed = dict(self.epoch.closed)
        for cut in self.cuts:
            if cut.cut.epoch == self.epoch.epoch:
                closed[self.epoch.epoch] = max(cut.cut.number, closed.get(self.epoch.epoch, 0))
        return closed


def catalog_of(epoch: EpochFile, cuts: Iterable[CutName]) -> Catalog:
    """Return the catalog of the cuts that count among the found cuts."""
    every = Catalog(epoch)
    return Catalog(epoch, tuple(sorted(name for name in cuts if every.counts(name.cut))))


def chosen_cut(cuts: Sequence[CutName], as_of: CutId | int | None) -> CutName:
    """Return the cut to restore: the newest, the named one, or the newest up to a time in ms since 1970.

    Raises BackupUnusable, with the cuts that there are, if there is no such cut.
    """
    if as_of is None:
        found = cuts[-1] if cuts else None
    elif isinstance(as_of, CutId):
        found = next((name for name in cuts if name.cut == as_of), None)
    else:
        found = max((name for name in cuts if name.time_ms <= as_of), default=None)
    if found is None:
        raise BackupUnusable(_no_such_cut(cuts, as_of))
    return found


def _no_such_cut(cuts: Sequence[CutName], as_of: CutId | int | None) -> str:
    if not cuts:
        return "the backup has no whole cut yet"
    wanted = f"cut {as_of}" if isinstance(as_of, CutId) else f"cut up to {_time_text(as_of or 0)}"
    first, last = cuts[0], cuts[-1]
    return (
        f"the backup has no {wanted}: its cuts are {first.cut} of {_time_text(first.time_ms)} to {last.cut} of "
        f"{_time_text(last.time_ms)}"
    )


def _time_text(time_ms: int) -> str:
    """Return a time in ISO 8601, in UTC."""
    try:
        return f"{EPOCH + timedelta(milliseconds=time_ms):%Y-%m-%dT%H:%M:%SZ}"
    except OverflowError:
        return f"{time_ms} ms after 1970"
