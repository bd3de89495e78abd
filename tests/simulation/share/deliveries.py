"""Deliveries and acknowledgements that members of a share group saw, and the promises that these must keep."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from tests.histories.invariants import InvariantBroken

GAP, ACCEPT, RELEASE, REJECT = range(4)
CLOCK_S = 0.002
"""Resolution of the clock by which brokers end locks."""
FINAL = frozenset({GAP, ACCEPT, REJECT})
"""Types after which a record is never delivered again."""


class Place(NamedTuple):
    """A record of the topic."""

    partition: int
    offset: int


class Leadership(NamedTuple):
    """The leader of a partition as the quorum knows it, and its share partition, at one moment."""

    broker: int
    epoch: int
    led: object
    """The broker's share partition; None if it has none."""


@dataclass(slots=True, eq=False)
class Session:
    """One share session of a member at a broker, on one connection."""

    member: str
    broker: int
    alive_s: float = -1.0
    """Time at which the last request was sent that the session answered."""
    forgotten: dict[int, float] = field(default_factory=dict)
    """Times at which the broker had removed partitions from the session. The end of the session releases no record of
    these."""


@dataclass(slots=True)
class Delivery:
    """A record in an answer."""

    count: int
    session: Session
    sent_s: float
    received_s: float
    leadership: Leadership | None
    """Leadership that lasted from the request to the answer; None if it changed, or the broker was no leader."""


@dataclass(slots=True)
class Acknowledgement:
    """An acknowledgement of a record, with its outcome: None while it is unknown."""

    kind: int
    count: int
    session: Session
    sent_s: float
    done_s: float | None = None
    error: int | None = None

    @property
    def is_done(self) -> bool:
        """True if the broker has said that the acknowledgement is durable."""
        return self.error == 0


@dataclass(slots=True)
class Deliveries:
    """All deliveries and acknowledgements of one group, by record."""

    lock_s: float
    limit: int
    deliveries: defaultdict[Place, list[Delivery]] = field(default_factory=lambda: defaultdict(list))
    acknowledgements: defaultdict[Place, list[Acknowledgement]] = field(
        default_factory=lambda: defaultdict(list)
    )
    granted: Counter[Place] = field(default_factory=Counter)
    """Highest delivery count that a broker has granted, whether or not its answer arrived."""
    counts: Counter[str] = field(default_factory=Counter)

    def delivered(self, place: Place, delivery: Delivery) -> None:
        """Note a delivery."""
        self.counts["deliveries"] += 1
        self.counts["redeliveries"] += bool(self.deliveries[place])
        self.deliveries[place].append(delivery)

    def check(self, written: Iterable[Place]) -> None:
        """Judge all of it once the group has finished all records. `written` are the acknowledged records of producers.
        Raises InvariantBroken."""
        for place in written:
            self._check_not_lost(place)
        for place, deliveries in self.deliveries.items():
            self._check_limit(place, deliveries)
            self._check_locks(place, deliveries)
            self._check_not_again(place, deliveries)

    def _check_not_lost(self, place: Place) -> None:
        """Check that a member has finished the record, or that it is archived at the limit."""
        if self.granted[place] >= self.limit:
            self.counts["archived at the limit"] += 1
        elif not any(each.kind in FINAL for each in self.acknowledgements[place]):
            raise InvariantBroken(
                "no record is lost",
                f"{place} was delivered {self.granted[place]} times, and no member has finished it: "
                f"{self.deliveries[place]} {self.acknowledgements[place]}",
            )

    def _check_limit(self, place: Place, deliveries: list[Delivery]) -> None:
        for delivery in deliveries:
            if not 1 <= delivery.count <= self.limit:
                raise InvariantBroken("deliveries end", f"{place}: {delivery}")

    def _check_not_again(self, place: Place, deliveries: list[Delivery]) -> None:
        """Check that a finished record is not delivered again, and that no count sinks below a durable count."""
        for acknowledged in self.acknowledgements[place]:
            if not acknowledged.is_done or acknowledged.done_s is None:
                continue
            for delivery in deliveries:
                if delivery.sent_s <= acknowledged.done_s or delivery.leadership is None:
                    continue
                if acknowledged.kind in FINAL:
                    raise InvariantBroken("finished once", f"{place}: {acknowledged}, then {delivery}")
                if delivery.count <= acknowledged.count:
                    raise InvariantBroken("counts never sink", f"{place}: {acknowledged}, then {delivery}")

    def _check_locks(self, place: Place, deliveries: list[Delivery]) -> None:
        """Check that each delivery of one leadership has a higher count, and begins once the earlier lock has ended."""
        by_led: defaultdict[int, list[Delivery]] = defaultdict(list)
        for delivery in deliveries:
            if delivery.leadership is not None and delivery.leadership.led is not None:
                by_led[id(delivery.leadership.led)].append(delivery)
        for of_one in by_led.values():
            of_one.sort(key=lambda delivery: (delivery.count, delivery.received_s))
            for before, after in pairwise(of_one):
                if after.count <= before.count:
                    raise InvariantBroken("counts never sink", f"{place}: {before}, then {after}")
                if self._holds(place, before, after.received_s):
                    raise InvariantBroken("one member holds a record", f"{place}: {before} and {after}")

    def _holds(self, place: Place, delivery: Delivery, at_s: float) -> bool:
        """Return whether the member surely holds the record at this time."""
        if at_s >= delivery.sent_s + self.lock_s - CLOCK_S:
            return False
        session = delivery.session
        is_forgotten = session.forgotten.get(place.partition, -1.0) > delivery.sent_s
        if session.alive_s <= at_s and not is_forgotten:
            return False
        return not any(
            each.session is session and delivery.received_s <= each.sent_s <= at_s
            for each in self.acknowledgements[place]
        )
