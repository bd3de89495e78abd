"""The sizes and times of the Raft layer, with their reasons."""

from __future__ import annotations

from dataclasses import dataclass, field

from .journal import SEGMENT_BYTES


@dataclass(frozen=True, slots=True)
class Timing:
    """Raft's timeouts in seconds. `election_min` must exceed three heartbeats, or followers depose a healthy leader."""

    election_min: float = 0.15
    election_max: float = 0.3
    heartbeat: float = 0.04
    leader_fallback: float = 0.4
    """Time after which a leader steps down if a majority is silent."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Limits and intervals of the Raft layer, in bytes, counts and seconds, that a deployment rarely changes."""

    timing: Timing = field(default_factory=Timing)
    command_bytes_max: int = 16 << 20
    """Largest accepted command; it must fit a frame with room to spare."""
    group_bytes: int = 256 << 10
    """Largest size of an entry of several commands; applying is sliced by entries."""
    waiting_bytes_max: int = 64 << 20
    """Limit for commands that are queued or not yet on disk. More are refused, since the disk has stalled."""
    message_bytes: int = 1 << 20
    """Approximate size of a message with entries."""
    window_bytes: int = 8 << 20
    """Limit for entries sent to a follower that it has not synced yet."""
    chunk_bytes: int = 256 << 10
    """Size of a chunk of a snapshot."""
    chunks_in_flight: int = 8
    chunks_per_turn: int = 4
    """Number of chunks read and sent in one turn of the loop."""
    apply_commands_per_turn: int = 1000
    """Number of commands applied in one turn of the loop before other work runs."""
    snapshot_bytes: int = 16 << 20
    """Applied bytes since the last snapshot after which another is made."""
    snapshot_entries: int = 50_000
    retained_bytes: int = 4 << 20
    """Size of the entries kept before a snapshot's end, so that a follower that is slightly behind needs no
    snapshot."""
    segment_bytes: int = SEGMENT_BYTES
    hear_peers_s: float = 1.0
    """Longest time after the start during which a node does not vote while a peer has not reported the node's
    acknowledgements. A running peer is connected by then, and a dead peer must not prevent an election."""
    promises_saved_every_s: float = 5.0
    """Interval between writes of the peers' acknowledgements, if they have changed."""

    @staticmethod
    def with_snapshots_every(size: int) -> Settings:
        """Return the default settings with a snapshot after every `size` applied bytes; a quarter of that is
        retained."""
        return Settings(snapshot_bytes=size, retained_bytes=size // 4)
