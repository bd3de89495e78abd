"""The sizes and times of the Raft layer, each with its reason."""

from __future__ import annotations

from dataclasses import dataclass, field

from .journal import SEGMENT_BYTES


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds. `election_min` must exceed three heartbeats, or followers give up on a healthy leader."""

    election_min: float = 0.15
    election_max: float = 0.3
    heartbeat: float = 0.04
    leader_fallback: float = 0.4
    """A leader that has not heard from a majority for this long steps down."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Bytes, counts and seconds that a deployment rarely changes."""

    timing: Timing = field(default_factory=Timing)
    command_bytes_max: int = 16 << 20
    """A larger command is refused: it has to fit a frame with room to spare."""
    group_bytes: int = 256 << 10
    """Commands that wait together become one entry up to this size, then another: applying is sliced by it."""
    waiting_bytes_max: int = 64 << 20
    """Commands beyond this, queued or not yet on disk, are refused: the disk has stalled."""
    message_bytes: int = 1 << 20
    """Entries are sent in messages of about this size."""
    window_bytes: int = 8 << 20
    """Entries that may be on their way to a follower before it has synced them."""
    chunk_bytes: int = 256 << 10
    """A snapshot travels in pieces of this size."""
    chunks_in_flight: int = 8
    chunks_per_turn: int = 4
    """Pieces read and sent in one turn of the loop."""
    apply_commands_per_turn: int = 1000
    """Commands applied in one turn of the loop before others get their turn."""
    snapshot_bytes: int = 16 << 20
    """A snapshot is made after this much has been applied since the last."""
    snapshot_entries: int = 50_000
    retained_bytes: int = 4 << 20
    """Entries kept behind a snapshot, so that a follower that is a little late needs no snapshot."""
    segment_bytes: int = SEGMENT_BYTES
    hear_peers_s: float = 1.0
    """After its start a node does not vote before every peer has told what it had promised, for so long at most: a
    peer that runs is connected by then, and one that does not must not keep a leader from being elected."""
    promises_saved_every_s: float = 5.0
    """What the others have promised is written so often, if there is news."""

    @staticmethod
    def with_snapshots_every(size: int) -> Settings:
        """The usual ones, with a snapshot after every `size` bytes applied; a quarter of that is kept behind it."""
        return Settings(snapshot_bytes=size, retained_bytes=size // 4)
