"""Operations and observations of clients in transactions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from .outcomes import Outcome, outcome_of

COMMITTED_BEFORE: Final = "COMMITTED_BEFORE"
"""Outcome used instead of an error's name: the transaction was dropped, since its application version was committed
before."""


@dataclass(slots=True)
class Transaction:
    """A transaction of a producer. Its sends refer to it by its unique `name` in `Send.transaction`.

    `producer`: an incarnation, as in `Send`. `asked_s`: the time at which the producer first requested the end, None if
    it never did; `commits`: whether it requested a commit. A transaction without a commit request is never committed.

    In a transaction with several writers each writer's part is a Transaction: `owner` names the part of the producer
    that began it and decides, `commits` says whether the writer was chosen. `app_version`: the version in the owner's
    commit.
    """

    name: str
    transactional_id: str
    producer: str
    producer_id: int
    producer_epoch: int
    begun_s: float
    asked_s: float | None = None
    commits: bool = False
    completed_s: float | None = None
    outcome: Outcome = Outcome.INFO
    error: str | None = None
    owner: str | None = None
    app_version: int | None = None

    def ask(self, at_s: float, *, commits: bool) -> None:
        """Note that the producer is about to request the end."""
        self.asked_s, self.commits = at_s, commits

    def finish(self, at_s: float, error: str | None = None, *, tried_before: bool = False) -> None:
        """Note the answer."""
        self.completed_s, self.error = at_s, error
        self.outcome = outcome_of(error, tried_before=tried_before)

    def finish_as_committed_before(self, at_s: float) -> None:
        """Note that the commit was answered with an abort, because its application version or a later one had been
        committed before.
        """
        self.completed_s, self.error, self.outcome = at_s, COMMITTED_BEFORE, Outcome.FAIL

    @property
    def whole(self) -> str:
        """Name of the whole transaction: the name of its owner's part."""
        return self.name if self.owner is None else self.owner

    @property
    def is_committed(self) -> bool | None:
        """Outcome according to the producer; None if unknown to it."""
        if not self.commits:
            return False
        return {Outcome.OK: True, Outcome.FAIL: False, Outcome.INFO: None}[self.outcome]


@dataclass(slots=True)
class ToldVersion:
    """The last committed application version of a transactional id, as reported to a starting producer; None if there
    was none.
    """

    producer: str
    transactional_id: str
    version: int | None
    asked_s: float
    at_s: float


@dataclass(slots=True)
class StableEnd:
    """A last stable offset, reported to a read-committed consumer: it can read up to `offset`."""

    observer: str
    topic: str
    partition: int
    offset: int
    asked_s: float
    at_s: float


@dataclass(slots=True)
class WholeRead:
    """A whole transaction, as a reader of whole transactions got it: (topic, partition, offset, value) of its records.

    Its session has a Position for each partition that it reads, and begins at the log starts.
    """

    actor: str
    session: str
    commit_index: int
    records: list[tuple[str, int, int, bytes]]
    at_s: float


@dataclass(slots=True)
class Leaderless:
    """A time in which some broker considered a partition leaderless. `until_s` None: it still does."""

    topic: str
    partition: int
    from_s: float
    until_s: float | None = None


class Marker(NamedTuple):
    """The end of a producer's transaction in a log.

    `number` and `commit_index` are -1 for a marker without a decision: after an unclean election a leader ends
    transactions that the quorum does not know.
    """

    offset: int
    producer_id: int
    producer_epoch: int
    commits: bool
    number: int
    commit_index: int
