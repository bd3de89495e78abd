"""What clients did and saw of transactions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from .outcomes import Outcome, outcome_of

COMMITTED_BEFORE: Final = "COMMITTED_BEFORE"
"""Instead of an error's name: nothing of it counts, as what it carries was committed before."""


@dataclass(slots=True)
class Transaction:
    """One transaction of a producer. What it sent names it: `Send.transaction` is its `name`, which no other one has.

    `producer`: an incarnation, as in `Send`. `asked_s`: when its producer first asked for its end, None if it never
    did; `commits`: what it asked for. One that nobody asked to commit is never committed.

    Where many write in one transaction each writer's part is a Transaction: `owner` names that of who began it and
    decides, `commits` says whether the writer was chosen. `app_version`: what the owner's commit carries.
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
        """Its producer is about to ask for its end."""
        self.asked_s, self.commits = at_s, commits

    def finish(self, at_s: float, error: str | None = None, *, tried_before: bool = False) -> None:
        """Note the answer."""
        self.completed_s, self.error = at_s, error
        self.outcome = outcome_of(error, tried_before=tried_before)

    def finish_as_committed_before(self, at_s: float) -> None:
        """The answer to the commit was that it was aborted: its application version, or a later one, had been committed
        before."""
        self.completed_s, self.error, self.outcome = at_s, COMMITTED_BEFORE, Outcome.FAIL

    @property
    def whole(self) -> str:
        """The name of all that counts together: that of its owner's part."""
        return self.name if self.owner is None else self.owner

    @property
    def is_committed(self) -> bool | None:
        """As its producer was told; None: it cannot know."""
        if not self.commits:
            return False
        return {Outcome.OK: True, Outcome.FAIL: False, Outcome.INFO: None}[self.outcome]


@dataclass(slots=True)
class ToldVersion:
    """A producer was told, as it began, which application version was the last one to be committed under its
    transactional id; None: there was none."""

    producer: str
    transactional_id: str
    version: int | None
    asked_s: float
    at_s: float


@dataclass(slots=True)
class StableEnd:
    """A reader of what is committed was told that it can read up to `offset`: the last stable offset."""

    observer: str
    topic: str
    partition: int
    offset: int
    asked_s: float
    at_s: float


@dataclass(slots=True)
class WholeRead:
    """A whole transaction, as a reader of whole transactions got it: (topic, partition, offset, value) of its records.
    The partitions that it reads are those of which the session has a Position; it begins at the log starts."""

    actor: str
    session: str
    commit_index: int
    records: list[tuple[str, int, int, bytes]]
    at_s: float


@dataclass(slots=True)
class Leaderless:
    """Some broker took a partition for one without a leader. `until_s` None: it still does."""

    topic: str
    partition: int
    from_s: float
    until_s: float | None = None


class Marker(NamedTuple):
    """The end of a producer's transaction, as a log has it. `number` and `commit_index` are -1 where it was nobody's
    decision: after an unclean election, a leader ends what nobody knows of."""

    offset: int
    producer_id: int
    producer_epoch: int
    commits: bool
    number: int
    commit_index: int
