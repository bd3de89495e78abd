"""The state of a worker in numbers, for health checks and metrics. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WorkerStats:
    """The state of a worker at a moment, and its counts since `run` began."""

    partitions: int
    """The partitions that are assigned to the worker now."""
    in_flight: int
    """The records that are in the handler now."""
    held: int
    """The records that were read and are not finished, those in the handler included."""
    held_bytes: int
    """The size of keys, values and headers of the held records."""
    uncommitted: int
    """The finished records that no commit has covered yet."""
    waiting: int
    """The records that wait for a retry, or for a rate."""
    oldest_s: float
    """The time since the oldest unfinished record was read, in seconds; 0 if there is none."""
    lanes: int
    """The keys with held records."""
    longest_lanes: tuple[tuple[str, int], ...]
    """The ten keys with the most held records, and their numbers of records. A key is shortened to 100 characters,
    as in `orders, key customer-7`."""
    succeeded: int
    """The records that the handler has finished."""
    failed: int
    """The attempts that have failed."""
    retried: int
    """The failed attempts after which another attempt follows."""
    letters: int
    """The records that became dead letters."""
