"""Reports of many clients added up by tier, and tiers compared with one of them, bucket by bucket. Pure.

Counts of a bucket are compared once it is closed: when its time, and some more for those who read later, is over.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import lcm
from typing import NamedTuple

from .counts import Amount, Bucket, Counts, bucket_start
from .reports import Report
from .settings import BUCKET_MS, LOG_TIER, is_log_tier

REFERENCE = "producer"
"""The tier that others are compared with, if nobody says otherwise."""
NOTHING = Amount(0, 0)


class NothingToCompare(ValueError):
    """There is no second tier; the message says what there is."""


class Deviation(NamedTuple):
    """A tier has other than what the reference has: `difference` records more, or less if it is below 0."""

    bucket: Bucket
    bucket_ms: int
    tier: str
    difference: int
    reference_records: int


@dataclass(frozen=True, slots=True)
class Row:
    """One bucket. `amounts`: of each tier, the reference first. `closed`: it can be judged. `expired`: of its records
    some may have been deleted, so that what is in the log says nothing.
    """

    bucket: Bucket
    bucket_ms: int
    amounts: Mapping[str, Amount]
    closed: bool
    expired: bool

    @property
    def reference(self) -> str:
        """The tier that the others are compared with."""
        return next(iter(self.amounts))

    def difference(self, tier: str) -> int:
        """How many records more than the reference a tier has."""
        return self.amounts[tier].records - self.amounts[self.reference].records

    def deviations(self) -> Iterator[Deviation]:
        """Of tiers that can be judged."""
        records = self.amounts[self.reference].records
        for tier in list(self.amounts)[1:]:
            judged = self.closed and not (self.expired and (is_log_tier(tier) or is_log_tier(self.reference)))
            if judged and (difference := self.difference(tier)):
                yield Deviation(self.bucket, self.bucket_ms, tier, difference, records)

    @property
    def state(self) -> str:
        """ "open" and "expired" are not judged; then "gap", "surplus", "ok"."""
        if not self.closed:
            return "open"
        differences = [one.difference for one in self.deviations()]
        if any(one < 0 for one in differences):
            return "gap"
        if differences:
            return "surplus"
        return "expired" if self.expired and any(map(is_log_tier, self.amounts)) else "ok"


class AuditWindow(NamedTuple):
    """Buckets of which some lies between these times, and that are closed if they end at `closed_ms` or before."""

    from_ms: int
    to_ms: int
    closed_ms: int

    def shows(self, start_ms: int, bucket_ms: int) -> bool:
        """Whether a bucket is of interest."""
        return start_ms < self.to_ms and start_ms + bucket_ms > self.from_ms


class Tally:
    """What reports say, each counted once. Buckets of a topic are as long as it takes for those of all its clients to
    fit in.
    """

    def __init__(self) -> None:
        self.repeated = 0
        """How many reports came again."""
        self._seen: defaultdict[str, set[int]] = defaultdict(set)
        self._amounts: defaultdict[str, dict[tuple[str, int, int], Amount]] = defaultdict(dict)
        """By topic, then by tier, start and length of the bucket."""

    def add(self, report: Report) -> None:
        """Count a report, unless it was counted before."""
        seen = self._seen[report.source.instance]
        if report.sequence in seen:
            self.repeated += 1
            return
        seen.add(report.sequence)
        self._add(report.source.tier, report.bucket, report.bucket_ms, report.amount)

    def add_log(self, topic: str, counts: Counts, tier: str = LOG_TIER) -> None:
        """What stands in the log of a topic, here or in another cluster."""
        for bucket in list(counts):
            self._add(tier, bucket, counts.bucket_ms, counts.take(bucket))

    def topics(self) -> list[str]:
        """All that were reported on."""
        return sorted(self._amounts)

    def tiers(self, topics: Collection[str]) -> set[str]:
        """Those that reported on one of these topics."""
        return {tier for topic in topics for tier, _, _ in self._amounts.get(topic, ())}

    def bucket_ms(self, topic: str) -> int:
        """How long the buckets of a topic are."""
        return (
            lcm(*(length for _, _, length in self._amounts.get(topic, ())))
            if topic in self._amounts
            else BUCKET_MS
        )

    def starts(self, topic: str, window: AuditWindow) -> list[int]:
        """When the buckets begin that are of interest, and in which somebody counted."""
        length = self.bucket_ms(topic)
        starts = {bucket_start(start, length) for _, start, _ in self._amounts.get(topic, ())}
        return sorted(start for start in starts if window.shows(start, length))

    def rows(
        self, topic: str, tiers: Sequence[str], window: AuditWindow, expired_before_ms: int = 0
    ) -> list[Row]:
        """The buckets of a topic, for these tiers. Before `expired_before_ms` the log may not have all any more."""
        length = self.bucket_ms(topic)
        sums: defaultdict[int, dict[str, Amount]] = defaultdict(lambda: dict.fromkeys(tiers, NOTHING))
        for (tier, start, _), amount in self._amounts.get(topic, {}).items():
            bucket = bucket_start(start, length)
            if tier in tiers and window.shows(bucket, length):
                sums[bucket][tier] = sums[bucket][tier].plus(amount)
        return [
            Row(
                Bucket(topic, start),
                length,
                amounts,
                closed=start + length <= window.closed_ms,
                expired=start < expired_before_ms,
            )
            for start, amounts in sorted(sums.items())
        ]

    def _add(self, tier: str, bucket: Bucket, bucket_ms: int, amount: Amount) -> None:
        amounts = self._amounts[bucket.topic]
        key = (tier, bucket.start_ms, bucket_ms)
        amounts[key] = amounts.get(key, NOTHING).plus(amount)


def tiers_to_compare(
    reporting: Collection[str],
    named: Sequence[str],
    *,
    log: bool,
    copies: Sequence[str] = (),
    reference: str = REFERENCE,
) -> list[str]:
    """Which tiers, the reference first: those `named`, or else all that report. Logs of other clusters, which are
    `copies`, come behind the log of this one. Raises NothingToCompare."""
    tiers = list(dict.fromkeys(named))
    if not tiers:
        others = sorted(one for one in reporting if one != reference and not is_log_tier(one))
        logs = [*([LOG_TIER] if log else []), *copies]
        tiers = [*([reference] if reference in reporting else []), *logs, *others]
        if not {reference, LOG_TIER} & set(tiers):
            told = ", ".join(others) or "none"
            raise NothingToCompare(
                f"no reports of tier {reference!r} (there are {told}): name the one to compare with, or count the log"
            )
    else:
        tiers += [one for one in (*([LOG_TIER] if log else []), *copies) if one not in tiers]
    if len(tiers) < 2:
        raise NothingToCompare(f"there is no tier to compare {tiers[0]!r} with")
    return tiers
