"""A follower's decision about an AppendEntries message. Pure.

The library truncates its log on any overlap and acknowledges everything it was sent. Raft (section 5.3) truncates on a
conflict only, and an answer may state only what was compared. `reconcile` decides this, and creates a message that the
library cannot process wrongly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from .journal_recovery import Entry
from .messages import Append


class BrokenInvariant(AssertionError):
    """A state that the Raft algorithm rules out, so that the process must stop."""


class LogView(Protocol):
    """The part of the journal's interface that `reconcile` and `is_up_to_date` read."""

    @property
    def base_index(self) -> int:
        """Index before the first entry held."""

    @property
    def last_index(self) -> int:
        """Index of the last entry."""

    @property
    def last_term(self) -> int:
        """Term of the last entry."""

    def term_at(self, index: int) -> int | None:
        """Return the term of an entry or of the base; None if it is not held."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """The decision to append `entries` after `previous_index`, and to drop the present entries there.

    Without entries nothing is dropped, and `previous_index` is the end of the log. Up to `verified` the log equals the
    leader's.
    """

    previous_index: int
    previous_term: int
    entries: tuple[Entry, ...]
    verified: int


@dataclass(frozen=True, slots=True)
class Mismatch:
    """The decision that the logs differ before the message's entries; the leader should try from `next_index`."""

    next_index: int


def reconcile(log: LogView, applied: int, message: Append) -> Accepted | Mismatch:
    """Compare `message` with the log; `applied` is the last index applied here.

    Applied entries are committed, so a legitimate leader has them too, and they need no comparison. Raises
    BrokenInvariant when a leader contradicts them.
    """
    previous, entries = message.previous_index, message.entries
    known = max(applied, log.base_index)
    if previous > log.last_index:
        return Mismatch(log.last_index + 1)
    if previous < log.base_index:
        entries = entries[log.base_index - previous :]
        previous = log.base_index
    elif log.term_at(previous) != message.previous_term:
        if previous <= known:
            raise BrokenInvariant(
                f"the leader of term {message.term} has term {message.previous_term} at committed index {previous}, "
                f"this node term {log.term_at(previous)}"
            )
        return Mismatch(_start_of_run(log, previous, known))
    matching = 0
    for _, index, term in entries:
        if index > log.last_index or log.term_at(index) != term:
            break
        matching += 1
    verified = previous + len(entries)
    if matching == len(entries):
        return Accepted(log.last_index, log.last_term, (), max(verified, log.base_index))
    previous += matching
    if previous < known:
        raise BrokenInvariant(
            f"the leader of term {message.term} replaces committed index {previous + 1}, "
            f"{known} is applied here"
        )
    previous_term = log.term_at(previous)
    assert previous_term is not None
    return Accepted(previous, previous_term, entries[matching:], verified)


def _start_of_run(log: LogView, index: int, known: int) -> int:
    """Return the first index after `known` with the same term as `index`, so that a refusal skips the whole term at
    once."""
    term = log.term_at(index)
    while index - 1 > known and log.term_at(index - 1) == term:
        index -= 1
    return index


def is_up_to_date(log: LogView, last_index: int, last_term: int) -> bool:
    """Return whether a log that ends at (`last_index`, `last_term`) is at least as complete as `log` (Raft section
    5.4.1)."""
    return (last_term, last_index) >= (log.last_term, log.last_index)
