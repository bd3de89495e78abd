"""Transactions that are open for too long, and transactional ids that nobody uses any more.

Pure. What is open ends when its timeout is over, counted from when this leader first saw it open, or saw that one which
nobody owns was found again. A new leader begins anew, so that nobody's transaction is ended early because clocks differ
(a delay is all that it costs). Brokers' clocks matter only for ids without an open transaction, and days matter there,
not seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from ..protocol.cluster.transaction_table import Phase, TransactionMetadata, TransactionTable
from ..protocol.messages.transaction_commands import (
    ExpireTransactions,
    ForgetTransactionalIds,
    OpenTransaction,
)

COMMAND_IDS_MAX = 400
"""Aborting so many holds up each quorum node for some ten milliseconds."""
LOOKS_MAX = 2000
"""Ids that are looked at in one tick, most of them in vain perhaps. What is behind them waits for the next one."""
COMMAND_NAMES_LENGTH_MAX = 256 << 10
"""Characters of ids in one command, which has to stay far below what Raft takes; clients choose their ids."""
PROPOSED_AGAIN_S = 5.0
"""A command may be lost: what is still open after so long is due once more."""


@dataclass(slots=True)
class _Open:
    number: int
    started_ms: int
    due: float


class TransactionClocks:
    """The clocks of all open transactions. Times are monotonic seconds.

    A look at the clocks takes time for those that are due, not for those that run. The heap has an entry per
    transactional id, not per transaction, which may be earlier than what it stands for: many transactions come and go
    before the first of them would have been due.
    """

    def __init__(self) -> None:
        self._open: dict[str, _Open] = {}
        #: when to look at an id next: its entry in the heap, if it has one
        self._looks: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []

    def begin(self, table: TransactionTable, now: float) -> None:
        """This node leads from now on: every clock starts anew."""
        self._open = {
            name: _Open(one.number, one.started_ms, now + one.timeout_ms / 1000)
            for name, one in table.by_id.items()
            if one.phase is Phase.ONGOING
        }
        self._looks = {name: one.due for name, one in self._open.items()}
        self._heap = [(due, name) for name, due in self._looks.items()]
        heapify(self._heap)

    def changed(self, name: str, transaction: TransactionMetadata | None, now: float) -> None:
        """A transactional id is like this now; None if it is gone."""
        if transaction is None or transaction.phase is not Phase.ONGOING:
            self._open.pop(name, None)
            return
        known = self._open.get(name)
        newest = (transaction.number, transaction.started_ms)
        if known is None or (known.number, known.started_ms) != newest:
            due = now + transaction.timeout_ms / 1000
            self._open[name] = _Open(*newest, due)
            self._look_at(name, due)

    def expire(self, now: float) -> ExpireTransactions | None:
        """Ends what is due, as much of it as one command takes; None if nothing is."""
        batch = _Batch()
        for _ in range(LOOKS_MAX):
            if batch.is_full or not self._heap or self._heap[0][0] > now:
                break
            look, name = heappop(self._heap)
            if self._looks.get(name) != look:
                continue  # An earlier look was planned after this one, and made.
            del self._looks[name]
            one = self._open.get(name)
            if one is None:
                continue
            if one.due <= now:
                batch.add(name, one.number)
                one.due = now + PROPOSED_AGAIN_S
            self._look_at(name, one.due)
        return ExpireTransactions(transactions=batch.transactions) if batch.transactions else None

    def _look_at(self, name: str, due: float) -> None:
        planned = self._looks.get(name)
        if planned is None or planned > due:
            self._looks[name] = due
            heappush(self._heap, (due, name))


class UnusedIds:
    """Looks through all transactional ids now and then, some at a time.

    How long an id is unused is counted from when any client last spoke, or from the time now if that is earlier: a
    clock of this node that is far ahead makes no id old, while the ids do not become more where no client speaks. It
    takes a broker whose clock is behind by the whole expiration to have an id forgotten that is in use. Ids with an
    application version are never forgotten.
    """

    def __init__(self, *, expiration_ms: int, check_interval_s: float) -> None:
        self._expiration_ms = expiration_ms
        self._check_interval_s = check_interval_s
        self._next_check = 0.0
        self._newest_ms = -1
        self._left: list[str] = []

    def begin(self, table: TransactionTable, now: float) -> None:
        """This node leads from now on; the first check is due after an interval."""
        self._next_check = now + self._check_interval_s
        self._newest_ms = max((one.updated_ms for one in table.by_id.values()), default=-1)
        self._left = []

    def changed(self, transaction: TransactionMetadata | None) -> None:
        """A transactional id is like this now; None if it is gone."""
        if transaction is not None:
            self._newest_ms = max(self._newest_ms, transaction.updated_ms)

    def forget(self, table: TransactionTable, now: float, wall_ms: int) -> ForgetTransactionalIds | None:
        """Forgets those of the next few ids that are unused; None if none is. `now`: monotonic seconds; `wall_ms`: the
        time of day, as brokers stamp transactions with it."""
        if not self._left:
            if now < self._next_check:
                return None
            self._next_check = now + self._check_interval_s
            self._left = list(table.by_id)
        since_ms = min(wall_ms, self._newest_ms) - self._expiration_ms
        batch = _Batch()
        for _ in range(LOOKS_MAX):
            if batch.is_full or not self._left:
                break
            one = table.by_id.get(self._left.pop())
            if (
                one is not None
                and one.phase.is_over
                and one.app_version < 0
                and 0 <= one.updated_ms <= since_ms
            ):
                batch.add(one.transactional_id, one.number)
        if not batch.transactions:
            return None
        return ForgetTransactionalIds(transactions=batch.transactions, unused_since_ms=since_ms)


class _Batch:
    """What one command is about."""

    def __init__(self) -> None:
        self.transactions: list[OpenTransaction] = []
        self._length = 0

    @property
    def is_full(self) -> bool:
        return len(self.transactions) >= COMMAND_IDS_MAX or self._length >= COMMAND_NAMES_LENGTH_MAX

    def add(self, name: str, number: int) -> None:
        self.transactions.append(OpenTransaction(transactional_id=name, number=number))
        self._length += len(name)
