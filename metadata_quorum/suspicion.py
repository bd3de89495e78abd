"""Suspicion of silent brokers, which lets the leader fence a dead broker long before its session times out.

A broker is suspected once its heartbeats are missing for half of its patience. From then on the leader asks every other
live broker, the witnesses, when it last received something from the suspect. The leader fences the suspect after
the whole patience, if the heartbeats stay missing and every witness reports that it, too, has received nothing. A
witness that still hears the suspect vetoes: then only `broker.session.timeout.ms` counts, as for a broker that is cut
off from the leader alone.

The patience of a broker is `timeout_s`, or more if its heartbeats have been irregular: a busy machine pauses living
processes. A leader that hears no broker suspects none, since its own network is the likelier cause. A report counts
from the time of its question, so that a leader that stood still asks again before it decides.

Pure: times are monotonic seconds, and questions and verdicts are return values. The accrual detector of Hayashibara et
al. (2004) and SWIM's indirect probes (Das et al., 2002) are the models.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

SUSPECTED_AT: Final = 0.5
"""The part of its patience for which a broker is silent before it is suspected."""
ASKED_EVERY: Final = 1 / 8
"""The part of the least patience between two questions to the witnesses."""
VOUCHED_BY: Final = 1 / 8
"""The part of the least patience by which a witness must have heard the suspect later than the leader did, for a veto.
A dead broker's last message to a witness may be a little younger than its last heartbeat."""
_RHYTHM_TIMES: Final = 2.5
"""The multiple of the slowest gap between heartbeats that a broker's patience has at least."""
_RHYTHM_KEPT: Final = 0.998
"""The part of the slowest gap that each further heartbeat leaves of it, so that an old pause is forgotten: half of it
within a minute."""
_QUESTIONS_KEPT: Final = 16
_OUTAGE_TIMES: Final = 2.0
"""The multiple of its patience from which a broker's silence was an outage, which says nothing of its rhythm. A silence
as long as the session always was one."""


@dataclass(frozen=True, slots=True)
class SuspicionRound:
    """The decisions of one turn: the brokers that are suspected for the first time, the suspects about which the
    witnesses must be asked now in the question of this number, and the brokers to fence."""

    new: tuple[int, ...] = ()
    number: int = 0
    asked: tuple[int, ...] = ()
    witnesses: tuple[int, ...] = ()
    dead: tuple[int, ...] = ()


@dataclass(slots=True)
class _Broker:
    heard_at: float
    slowest_gap_s: float = 0.0
    #: the latest time at which a witness heard this broker, as far as a veto counts
    vouched_at: float = 0.0
    #: by witness: the time up to which it has heard nothing from this broker
    nothing_until: dict[int, float] = field(default_factory=dict)
    is_suspected: bool = False

    @property
    def alive_at(self) -> float:
        """The last time at which this broker was certainly alive."""
        return max(self.heard_at, self.vouched_at)


class Suspicions:
    """The silence of each broker, and the witnesses' reports about it. Only the active leader decides by it."""

    def __init__(self, timeout_s: float, session_timeout_s: float) -> None:
        """`timeout_s` is the least patience. Without a patience below `session_timeout_s`, no broker is suspected."""
        self._timeout_s = timeout_s
        self._session_timeout_s = session_timeout_s
        self._brokers: dict[int, _Broker] = {}
        self._number = 0
        #: the times of the latest questions, by number
        self._asked_at: OrderedDict[int, float] = OrderedDict()

    def begin(self, now: float) -> None:
        """Restart the silence of all brokers when this node becomes the leader. The known rhythms stay."""
        for broker in self._brokers.values():
            broker.heard_at = now
            broker.vouched_at = 0.0
            _clear(broker)

    def heard(self, broker_id: int, now: float) -> None:
        """Note a heartbeat or a probe's answer of a broker that has arrived now."""
        broker = self._brokers.get(broker_id)
        if broker is None:
            self._brokers[broker_id] = _Broker(now)
            return
        gap = now - broker.heard_at
        broker.slowest_gap_s *= _RHYTHM_KEPT
        if gap < min(self.patience_s(broker_id) * _OUTAGE_TIMES, self._session_timeout_s):
            broker.slowest_gap_s = max(gap, broker.slowest_gap_s)
        broker.heard_at = now
        _clear(broker)

    def forget(self, broker_id: int) -> None:
        """Forget a broker that left the cluster, or whose process has started again."""
        self._brokers.pop(broker_id, None)

    def patience_s(self, broker_id: int) -> float:
        """Return the seconds of silence after which this broker is fenced early; infinite if it never is."""
        broker = self._brokers.get(broker_id)
        slowest = 0.0 if broker is None else broker.slowest_gap_s
        patience = max(self._timeout_s, slowest * _RHYTHM_TIMES)
        return patience if patience < self._session_timeout_s else float("inf")

    def reported(self, witness: int, number: int, ages_s: Mapping[int, float | None], now: float) -> None:
        """Note a witness's report to the question of this number: by suspect, the seconds since the witness last
        received something from it; None if it never did. Reports to old questions are ignored."""
        asked_at = self._asked_at.get(number)
        if asked_at is None:
            return
        for broker_id, age_s in ages_s.items():
            broker = self._brokers.get(broker_id)
            if broker is None or not broker.is_suspected:
                continue
            if age_s is not None and now - age_s > broker.alive_at + self._timeout_s * VOUCHED_BY:
                broker.vouched_at = now - age_s
                broker.nothing_until.clear()
            else:
                broker.nothing_until[witness] = asked_at

    def turn(self, unfenced: Iterable[int], now: float) -> SuspicionRound:
        """Decide about the brokers that take part. Call this several times within the least patience."""
        silent = {
            broker_id: broker
            for broker_id in sorted(unfenced)
            if (broker := self._brokers.get(broker_id)) is not None
        }
        suspects = {
            broker_id: broker
            for broker_id, broker in silent.items()
            if now - broker.heard_at >= self.patience_s(broker_id) * SUSPECTED_AT
        }
        witnesses = tuple(broker_id for broker_id in silent if broker_id not in suspects)
        if not suspects or not witnesses:
            return SuspicionRound()
        new = tuple(broker_id for broker_id, broker in suspects.items() if not broker.is_suspected)
        for broker in suspects.values():
            broker.is_suspected = True
        dead = tuple(
            broker_id
            for broker_id in suspects
            if self._is_dead(broker_id, suspects[broker_id], witnesses, now)
        )
        last = self._asked_at.get(self._number, 0.0)
        if not new and now - last < self._timeout_s * ASKED_EVERY:
            return SuspicionRound(dead=dead)
        self._number += 1
        self._asked_at[self._number] = now
        if len(self._asked_at) > _QUESTIONS_KEPT:
            self._asked_at.popitem(last=False)
        return SuspicionRound(new, self._number, tuple(suspects), witnesses, dead)

    def _is_dead(self, broker_id: int, broker: _Broker, witnesses: tuple[int, ...], now: float) -> bool:
        """Return whether the broker's patience is over, and each witness has heard nothing, by its report to one of the
        last questions within the patience, or to a later one."""
        ends_at = broker.alive_at + self.patience_s(broker_id)
        if now < ends_at:
            return False
        least = ends_at - 2 * self._timeout_s * ASKED_EVERY
        return all(broker.nothing_until.get(witness, 0.0) >= least for witness in witnesses)


def _clear(broker: _Broker) -> None:
    """End a suspicion: the broker was heard."""
    broker.is_suspected = False
    broker.nothing_until.clear()
