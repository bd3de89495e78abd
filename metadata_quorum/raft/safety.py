"""What a follower may do with an AppendEntries message. Pure.

The library truncates its log on any overlap and answers with what it was sent; Raft (section 5.3) truncates on
a conflict only, and an answer may claim only what was compared. `reconcile` decides it here, and hands the
library a message that leaves it nothing to get wrong.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from .journal_recovery import Entry
from .messages import Append


class BrokenInvariant(AssertionError):
    """Something happened that Raft rules out. The process must stop."""


class LogView(Protocol):
    """The log, as far as deciding needs it."""

    @property
    def base_index(self) -> int:
        """The index before the first entry held."""

    @property
    def last_index(self) -> int:
        """The index of the last entry."""

    @property
    def last_term(self) -> int:
        """The term of the last entry."""

    def term_at(self, index: int) -> int | None:
        """The term of an entry or of the base."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """Append `entries` behind `previous_index`, dropping what stands there now.

    Without entries nothing is dropped: `previous_index` is then the end of the log. Up to `verified` the log
    equals the leader's.
    """

    previous_index: int
    previous_term: int
    entries: tuple[Entry, ...]
    verified: int


@dataclass(frozen=True, slots=True)
class Mismatch:
    """The logs differ before the entries: the leader should try from `next_index`."""

    next_index: int


def reconcile(log: LogView, applied: int, message: Append) -> Accepted | Mismatch:
    """Compare `message` with the log; `applied` is the last index whose command has been applied here.

    What is applied is committed, so a legitimate leader has it too and it needs no comparing. Raises
    BrokenInvariant when a leader contradicts it.
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
    """Skip the whole term at once: the first index behind `known` that shares the term at `index`."""
    term = log.term_at(index)
    while index - 1 > known and log.term_at(index - 1) == term:
        index -= 1
    return index


def is_up_to_date(log: LogView, last_index: int, last_term: int) -> bool:
    """Whether a log that ends so is at least as complete as `log` (Raft section 5.4.1)."""
    return (last_term, last_index) >= (log.last_term, log.last_index)
