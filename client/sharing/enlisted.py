"""Acknowledgements that a member sends to one leader as parts of producers' transactions, until each is answered. Pure.

A transaction is one producer's, and a consumer's tasks may be parts of several transactions at a time. A request has
the acknowledgements of one transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from ...protocol.messages.share_fetch import AcknowledgeType
from ..producing.accumulator import ProducerIdentity
from .acknowledgements import AcknowledgementRange, joined
from .locks import HeldRecord
from .places import Place


class EnlistingTransaction:
    """The part of a producer's transaction that consumers of its acknowledged tasks need."""

    def __init__(self, transactional_id: str, producer: ProducerIdentity) -> None:
        self.transactional_id = transactional_id
        self.producer = producer
        """The producer id and epoch of the transaction."""
        self._withdrawals: dict[object, Callable[[], None]] = {}

    def joined_by(self, leader: object, withdraw: Callable[[], None]) -> None:
        """Note a leader that has acknowledgements of this transaction to send. `withdraw` gives up the unsent ones."""
        self._withdrawals[leader] = withdraw

    def close(self) -> None:
        """Note that nothing more becomes part of the transaction."""
        withdrawals, self._withdrawals = self._withdrawals, {}
        for withdraw in withdrawals.values():
            withdraw()


class EnlistedRequest(NamedTuple):
    """The acknowledgements of one request: their transaction, and their ranges by partition."""

    transaction: EnlistingTransaction
    ranges: dict[Place, list[AcknowledgementRange]]


class EnlistedQueue:
    """The acknowledgements for one leader. One request at a time: `take`, then `answered` for each partition of the
    request and `unanswered`, or `clear`."""

    def __init__(self) -> None:
        self._waiting: dict[EnlistingTransaction, dict[HeldRecord, AcknowledgeType]] = {}
        self._sent: dict[HeldRecord, AcknowledgeType] = {}

    def __bool__(self) -> bool:
        """Return whether a request has something to take."""
        return bool(self._waiting)

    @property
    def is_empty(self) -> bool:
        """True if every acknowledgement was answered."""
        return not (self._waiting or self._sent)

    def add(self, transaction: EnlistingTransaction, held: HeldRecord, kind: AcknowledgeType) -> None:
        """Add the acknowledgement of a record as a part of a transaction."""
        self._waiting.setdefault(transaction, {})[held] = kind

    def take(self) -> EnlistedRequest:
        """Return the acknowledgements of the next request, and note them as sent."""
        transaction = next(iter(self._waiting))
        self._sent = self._waiting.pop(transaction)
        ranges: dict[Place, dict[int, AcknowledgementRange]] = {}
        for held, kind in self._sent.items():
            of_place = ranges.setdefault(held.place, {})
            of_place[held.first] = AcknowledgementRange(held.first, held.last, kind)
        return EnlistedRequest(transaction, {place: list(joined(some)) for place, some in ranges.items()})

    def answered(self, place: Place) -> list[HeldRecord]:
        """Note the answer to the acknowledgements of one partition, and return their records."""
        return self._pop(held for held in self._sent if held.place == place)

    def unanswered(self) -> list[HeldRecord]:
        """Note the end of a request, and return the records that its answer leaves out."""
        return self._pop(self._sent)

    def withdraw(self, transaction: EnlistingTransaction) -> list[HeldRecord]:
        """Drop the unsent acknowledgements of a transaction, and return their records."""
        return list(self._waiting.pop(transaction, ()))

    def discard(self, held: HeldRecord) -> None:
        """Drop the acknowledgement of a record, if it was not sent yet."""
        for transaction, waiting in list(self._waiting.items()):
            waiting.pop(held, None)
            if not waiting:
                del self._waiting[transaction]

    def clear(self) -> None:
        """Drop all acknowledgements, as their locks ended with the session."""
        self._waiting.clear()
        self._sent = {}

    def _pop(self, records: Iterable[HeldRecord]) -> list[HeldRecord]:
        found = list(records)
        for held in found:
            del self._sent[held]
        return found
