"""Promises about the whole cluster: wrong requests are refused, pipelines copy, and service resumes after faults."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ..operations import REFUSED_FOR_WHAT_IT_IS, Healed, Outcome, Poll, Send
from .base import Invariant
from .facts import Facts, Place, named, short, told
from .records import SEQUENCE_ERRORS

REFUSED_IN_TRANSACTIONS = frozenset(
    {
        "INVALID_PRODUCER_EPOCH",
        "PRODUCER_FENCED",
        "INVALID_TXN_STATE",
        "TRANSACTION_ABORTABLE",
        "INVALID_PRODUCER_ID_MAPPING",
        "UNKNOWN_PRODUCER_ID",
    }
)
"""Errors for sends in a transaction that is over, or from a replaced producer."""


class WrongAnswer(Invariant):
    """A request that must be refused is refused, with an error that tells the client how to react."""

    scenarios = (17, 19, 20, 25, 29, 37)

    def violations(self, facts: Facts) -> Iterator[str]:
        for probe in facts.history.probes:
            if probe.got not in probe.expected:
                got = "accepted" if probe.got is None else f"refused with {probe.got}"
                yield (
                    f"{probe.what} by {probe.actor} at {probe.at_s:.6f} was {got}, not with "
                    f"{' or '.join(probe.expected)}"
                )


class CopyDiffers(Invariant):
    """A pipeline that copies one topic into another leaves the same records there.

    Exactly once: each record equally often. At least once: all of the records and no others.
    """

    scenarios = (39,)

    def violations(self, facts: Facts) -> Iterator[str]:
        for copied in facts.history.copied:
            if any(
                facts.losses.touch(place)
                for place in facts.final
                if place[0] in (copied.source, copied.target)
            ):
                continue
            source = self._values(facts, copied.source, copied.committed)
            target = self._values(facts, copied.target, copied.committed)
            missing = source - target
            once = source + self._deleted(facts, copied.source)
            added = target - once
            if not copied.exactly_once:
                added = Counter({value: count for value, count in added.items() if value not in once})
            for what, values in (("lacks", missing), ("has beyond it", added)):
                if values:
                    some = ", ".join(f"{count} of {short(value)}" for value, count in values.most_common(5))
                    yield f"{copied.target}, copied from {copied.source}, {what} {values.total()} records: {some}"

    def _deleted(self, facts: Facts, topic: str) -> Counter[bytes]:
        """Return the values that stood below the current log start."""
        starts = {place: read.log_start for place, read in facts.final.items() if place[0] == topic}
        known: list[Send | Poll] = [*facts.history.sends, *facts.history.polls]
        there = {
            (seen.topic, seen.partition, seen.offset): seen.value
            for seen in known
            if seen.offset is not None and seen.offset < starts.get((seen.topic, seen.partition), 0)
        }
        return Counter(there.values())

    def _values(self, facts: Facts, topic: str, committed: bool) -> Counter[bytes]:
        finals = facts.committed_final if committed else facts.final_values
        return Counter(
            value for (name, _), values in finals.items() if name == topic for value in values.values()
        )


class NotServing(Invariant):
    """The cluster serves again within the stated time after all faults.

    Every partition takes records, waiting requests are answered, and consumers reach the end. No call ever hangs past
    its own timeout. A send may still fail within that time if a later send to the partition succeeds.
    """

    scenarios = (40,)

    def violations(self, facts: Facts) -> Iterator[str]:
        for hung in facts.history.hung:
            yield f"{hung.what} of {hung.actor} hung from {hung.since_s:.6f} to {hung.at_s:.6f}"
        if facts.history.healed:
            healed = facts.history.healed[-1]
            yield from self._sends(facts, healed)
            yield from self._commits(facts, healed)
            yield from self._reads(facts)

    def _sends(self, facts: Facts, healed: Healed) -> Iterator[str]:
        writable_s = healed.at_s + healed.within_s
        last_served: dict[Place, float] = {}
        for send in facts.history.sends:
            if send.outcome is Outcome.OK:
                place = (send.topic, send.partition)
                last_served[place] = max(send.invoked_s, last_served.get(place, send.invoked_s))
        for send in facts.history.sends:
            limit_s = max(send.invoked_s, healed.at_s) + healed.within_s
            end_s = facts.end_s if send.completed_s is None else send.completed_s
            if end_s > limit_s:
                yield f"{told(send)}; it was to be over by {limit_s:.6f}"
            elif (
                send.invoked_s >= healed.at_s
                and send.completed_s is not None
                and not self._served(facts, send)
            ):
                later_s = last_served.get((send.topic, send.partition), 0.0)
                if send.completed_s > writable_s or later_s <= send.invoked_s:
                    yield f"{told(send)}; faults were over at {healed.at_s:.6f}"

    def _served(self, facts: Facts, send: Send) -> bool:
        if send.acks == 0 or send.outcome is Outcome.OK or send.error in REFUSED_FOR_WHAT_IT_IS:
            return True
        if send.transaction is not None:
            over_s = facts.transactions[send.transaction].completed_s
            comes_late = over_s is not None and over_s <= send.invoked_s
            if comes_late or send.error in REFUSED_IN_TRANSACTIONS:
                return True
        return send.error in SEQUENCE_ERRORS and facts.losses.touch((send.topic, send.partition))

    def _commits(self, facts: Facts, healed: Healed) -> Iterator[str]:
        for commit in facts.history.commits:
            limit_s = max(commit.invoked_s, healed.at_s) + healed.within_s
            end_s = facts.end_s if commit.completed_s is None else commit.completed_s
            if end_s > limit_s:
                yield f"{commit}; it was to be over by {limit_s:.6f}"

    def _reads(self, facts: Facts) -> Iterator[str]:
        for place in dict.fromkeys((send.topic, send.partition) for send in facts.acknowledged):
            if place not in facts.final:
                yield f"{named(place)} took records and was not read after the faults"
        for place, read in facts.final.items():
            # The log start may have been asked for once more when all was read that was left.
            last = max(*facts.final_values[place], read.log_start - 1, -1)
            reached = max(last + 1, read.reached or 0)
            if read.end is not None and reached < read.end:
                yield f"{named(place)} was read up to offset {last}; its end is {read.end}"
