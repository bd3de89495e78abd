"""Timers of open transactions, and the detection of unused transactional ids.

Pure. A transaction ends when its timeout expires. The timeout counts from when this leader first saw the transaction
open, or saw that an ownerless one was found again. A new leader restarts all timers, so that no transaction ends early
because clocks differ; the only cost is a delay. Brokers' clocks matter only for ids without an open transaction, where
days matter, not seconds.
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
"""Limit for the transactions in one command: aborting this many delays each quorum node for about ten milliseconds."""
LOOKS_MAX = 2000
"""Number of ids that are checked in one tick, most of them perhaps in vain. The rest waits for the next tick."""
COMMAND_NAMES_LENGTH_MAX = 256 << 10
"""Limit for the characters of ids in one command, far below Raft's limit; clients choose their ids."""
PROPOSED_AGAIN_S = 5.0
"""Time after which a still open transaction is proposed again, since a command may be lost."""


@dataclass(slots=True)
class _Open:
    number: int
    started_ms: int
    due: float


class TransactionClocks:
    """The timeouts of all open transactions, which the leader aborts when they expire. Times are monotonic seconds.

    A check takes time for due timers, not for running ones. The heap has one entry for each transactional id rather
    than each transaction. The entry may be earlier than its timer: many transactions come and go before the first would
    be due.
    """

    def __init__(self) -> None:
        self._open: dict[str, _Open] = {}
        #: time of the next check of an id: its entry in the heap, if it has one
        self._looks: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []

    def begin(self, table: TransactionTable, now: float) -> None:
        """Restart the timeouts of all open transactions, since this node leads from now on."""
        self._open = {
            name: _Open(transaction.number, transaction.started_ms, now + transaction.timeout_ms / 1000)
            for name, transaction in table.by_id.items()
            if transaction.phase is Phase.ONGOING
        }
        self._looks = {name: timer.due for name, timer in self._open.items()}
        self._heap = [(due, name) for name, due in self._looks.items()]
        heapify(self._heap)

    def changed(self, name: str, transaction: TransactionMetadata | None, now: float) -> None:
        """Start, restart or stop the timeout of a transactional id after a change; `transaction` is None if the id was
        removed."""
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
        """Return a command that aborts the transactions whose timeout has expired, up to the size of one command; None
        if there are none."""
        batch = _Batch()
        for _ in range(LOOKS_MAX):
            if batch.is_full or not self._heap or self._heap[0][0] > now:
                break
            look, name = heappop(self._heap)
            if self._looks.get(name) != look:
                continue  # an earlier check was planned after this one, and made
            del self._looks[name]
            timer = self._open.get(name)
            if timer is None:
                continue
            if timer.due <= now:
                batch.add(name, timer.number)
                timer.due = now + PROPOSED_AGAIN_S
            self._look_at(name, timer.due)
        return ExpireTransactions(transactions=batch.transactions) if batch.transactions else None

    def _look_at(self, name: str, due: float) -> None:
        planned = self._looks.get(name)
        if planned is None or planned > due:
            self._looks[name] = due
            heappush(self._heap, (due, name))


class UnusedIds:
    """A periodic search for transactional ids that no client has used for the expiration time, in limited batches.

    The unused time of an id counts from the last activity of any client, or from the current time if that is earlier. A
    clock of this node that is far ahead therefore makes no id old, and without clients the number of ids does not grow.
    An id in use is removed only if a broker's clock is behind by the whole expiration time. Ids with an application
    version are never removed.
    """

    def __init__(self, *, expiration_ms: int, check_interval_s: float) -> None:
        self._expiration_ms = expiration_ms
        self._check_interval_s = check_interval_s
        self._next_check = 0.0
        self._newest_ms = -1
        self._left: list[str] = []

    def begin(self, table: TransactionTable, now: float) -> None:
        """Schedule the first check after an interval, since this node leads from now on."""
        self._next_check = now + self._check_interval_s
        self._newest_ms = max((transaction.updated_ms for transaction in table.by_id.values()), default=-1)
        self._left = []

    def changed(self, transaction: TransactionMetadata | None) -> None:
        """Note the time of a changed transactional id as the last activity of any client; `transaction` is None if the
        id was removed."""
        if transaction is not None:
            self._newest_ms = max(self._newest_ms, transaction.updated_ms)

    def forget(self, table: TransactionTable, now: float, wall_ms: int) -> ForgetTransactionalIds | None:
        """Return a command for the unused ids of the next batch; None if there are none.

        `now` is in monotonic seconds; `wall_ms` is the time of day, by which brokers stamp transactions.
        """
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
            transaction = table.by_id.get(self._left.pop())
            if (
                transaction is not None
                and transaction.phase.is_over
                and transaction.app_version < 0
                and 0 <= transaction.updated_ms <= since_ms
            ):
                batch.add(transaction.transactional_id, transaction.number)
        if not batch.transactions:
            return None
        return ForgetTransactionalIds(transactions=batch.transactions, unused_since_ms=since_ms)


class _Batch:
    """The transactions of one command that expires or removes them, up to a limit of their number and of the length of
    their names."""

    def __init__(self) -> None:
        self.transactions: list[OpenTransaction] = []
        self._length = 0

    @property
    def is_full(self) -> bool:
        return len(self.transactions) >= COMMAND_IDS_MAX or self._length >= COMMAND_NAMES_LENGTH_MAX

    def add(self, name: str, number: int) -> None:
        self.transactions.append(OpenTransaction(transactional_id=name, number=number))
        self._length += len(name)
