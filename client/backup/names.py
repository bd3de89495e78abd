"""Keys of a backup's objects in its store. Pure.

    epochs/EPOCH                                                 a run of `ottla backup`, with the cuts of earlier runs
    alive/EPOCH.RENEWAL                                          the sign that the run is alive
    cuts/EPOCH-NUMBER.TIME                                       a cut, once all of its segments are durable
    data/TOPIC-ID/PARTITION.GENERATION/FIRST-END.CUT.SHA256      a segment: raw record batches of one partition

Numbers have a fixed width, so that keys sort by number in every listing.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

EPOCHS: Final = "epochs/"
ALIVE: Final = "alive/"
CUTS: Final = "cuts/"
DATA: Final = "data/"

_EPOCH: Final = re.compile(r"epochs/(\d{8})")
_ALIVE: Final = re.compile(r"alive/(\d{8})\.(\d{8})")
_CUT: Final = re.compile(r"cuts/(\d{8})-(\d{8})\.(\d{15})")
_SEGMENT: Final = re.compile(
    r"data/([0-9a-f]{32})/(\d{6})\.(\d{4})/(\d{20})-(\d{20})\.(\d{8})-(\d{8})\.([0-9a-f]{64})"
)
_TEXT: Final = re.compile(r"(\d{1,8})-(\d{1,8})")


class CutId(NamedTuple):
    """The id of a cut: the epoch of its run, and its number within the run. Later cuts have larger ids."""

    epoch: int
    number: int

    def __str__(self) -> str:
        """Return the id in the form of commands: `3-17`."""
        return f"{self.epoch}-{self.number}"


class CutName(NamedTuple):
    """The name of a cut's object: its id and its time in ms since 1970."""

    cut: CutId
    time_ms: int

    @property
    def key(self) -> str:
        """The key of the cut's object."""
        return f"{CUTS}{self.cut.epoch:08}-{self.cut.number:08}.{self.time_ms:015}"


class PartitionFolder(NamedTuple):
    """The place of a partition's segments. A partition whose source lost records begins a new generation."""

    topic_id: bytes
    partition: int
    generation: int

    @property
    def folder(self) -> str:
        """The folder of the segments' keys."""
        return f"{DATA}{self.topic_id.hex()}/{self.partition:06}.{self.generation:04}/"


class SegmentName(NamedTuple):
    """The name of a segment: the offsets that it covers, the cut for which it was written, and its digest."""

    place: PartitionFolder
    first: int
    """The offset from which the segment has all records of the partition."""
    end: int
    """The offset after the segment's last record."""
    cut: CutId
    sha256: str
    """The digest of the segment's bytes, in hexadecimal."""

    @property
    def key(self) -> str:
        """The key of the segment's object."""
        cut = f"{self.cut.epoch:08}-{self.cut.number:08}"
        return f"{self.place.folder}{self.first:020}-{self.end:020}.{cut}.{self.sha256}"


def epoch_key(epoch: int) -> str:
    """Return the key of the object that begins a run."""
    return f"{EPOCHS}{epoch:08}"


def alive_key(epoch: int, renewal: int) -> str:
    """Return the key of a run's sign of life."""
    return f"{ALIVE}{epoch:08}.{renewal:08}"


def epoch_in(key: str) -> int | None:
    """Return the epoch in the key of a run; None for another key."""
    match = _EPOCH.fullmatch(key)
    return None if match is None else int(match[1])


def alive_in(key: str) -> tuple[int, int] | None:
    """Return the epoch and the renewal in the key of a sign of life; None for another key."""
    match = _ALIVE.fullmatch(key)
    return None if match is None else (int(match[1]), int(match[2]))


def cut_in(key: str) -> CutName | None:
    """Return the name of a cut from its key; None for another key."""
    match = _CUT.fullmatch(key)
    return None if match is None else CutName(CutId(int(match[1]), int(match[2])), int(match[3]))


def segment_in(key: str) -> SegmentName | None:
    """Return the name of a segment from its key; None for another key."""
    match = _SEGMENT.fullmatch(key)
    if match is None:
        return None
    place = PartitionFolder(bytes.fromhex(match[1]), int(match[2]), int(match[3]))
    return SegmentName(place, int(match[4]), int(match[5]), CutId(int(match[6]), int(match[7])), match[8])


def cut_id(text: str) -> CutId | None:
    """Return the cut that a text such as `3-17` names; None for another text."""
    match = _TEXT.fullmatch(text)
    return None if match is None else CutId(int(match[1]), int(match[2]))
