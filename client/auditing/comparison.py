"""The sums of many clients' reports by tier, and the comparison of tiers with a reference, bucket by bucket. Pure.

The counts of a bucket are compared once it is closed: when its time has passed, and a further delay for late readers.
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
"""The default reference tier of comparisons."""
NOTHING = Amount(0, 0)


class NothingToCompare(ValueError):
    """An audit comparison without a second tier to compare with the reference; the message names the available
    tiers."""


class Deviation(NamedTuple):
    """A difference between a tier's count in one bucket and the reference tier's: `difference` records more, or fewer
    if it is below 0."""

    bucket: Bucket
    bucket_ms: int
    tier: str
    difference: int
    reference_records: int


@dataclass(frozen=True, slots=True)
class Row:
    """A comparison of all tiers' counts in one time bucket of a topic.

    `amounts`: the records and bytes that each tier has counted, the reference first. `closed`: true if the bucket can
    be judged. `expired`: true if some of its records may have been deleted, so that counts of the log mean nothing.
    """

    bucket: Bucket
    bucket_ms: int
    amounts: Mapping[str, Amount]
    closed: bool
    expired: bool

    @property
    def reference(self) -> str:
        """The name of the reference tier, with which the other tiers are compared."""
        return next(iter(self.amounts))

    def difference(self, tier: str) -> int:
        """Return the number of records that a tier has counted more than the reference tier; negative for fewer."""
        return self.amounts[tier].records - self.amounts[self.reference].records

    def deviations(self) -> Iterator[Deviation]:
        """Yield the differences, except 0, from the reference tier, of the tiers that can be judged."""
        records = self.amounts[self.reference].records
        for tier in list(self.amounts)[1:]:
            judged = self.closed and not (self.expired and (is_log_tier(tier) or is_log_tier(self.reference)))
            if judged and (difference := self.difference(tier)):
                yield Deviation(self.bucket, self.bucket_ms, tier, difference, records)

    @property
    def state(self) -> str:
        """The bucket's state: "open" and "expired" are not judged; "gap", "surplus" or "ok" are."""
        if not self.closed:
            return "open"
        differences = [deviation.difference for deviation in self.deviations()]
        if any(difference < 0 for difference in differences):
            return "gap"
        if differences:
            return "surplus"
        return "expired" if self.expired and any(map(is_log_tier, self.amounts)) else "ok"


class AuditWindow(NamedTuple):
    """A time window, with the time up to which buckets are closed.

    It shows the buckets that overlap `from_ms` to `to_ms`. Buckets that end at `closed_ms` or before are closed.
    """

    from_ms: int
    to_ms: int
    closed_ms: int

    def shows(self, start_ms: int, bucket_ms: int) -> bool:
        """Return whether the time bucket that begins at `start_ms` overlaps the window."""
        return start_ms < self.to_ms and start_ms + bucket_ms > self.from_ms


class Tally:
    """The sums of all clients' audit reports, by topic, tier and time bucket. A repeated report counts once.

    The buckets of a topic are as long as necessary for the buckets of all its clients to fit in.
    """

    def __init__(self) -> None:
        self.repeated = 0
        """The number of repeated reports."""
        self._seen: defaultdict[str, set[int]] = defaultdict(set)
        self._amounts: defaultdict[str, dict[tuple[str, int, int], Amount]] = defaultdict(dict)
        """The amounts by topic, then by tier, start and length of the bucket."""

    def add(self, report: Report) -> None:
        """Add an audit report to the sums, unless it was added before."""
        seen = self._seen[report.source.instance]
        if report.sequence in seen:
            self.repeated += 1
            return
        seen.add(report.sequence)
        self._add(report.source.tier, report.bucket, report.bucket_ms, report.amount)

    def add_log(self, topic: str, counts: Counts, tier: str = LOG_TIER) -> None:
        """Add the counts of the records in the log of a topic, here or in another cluster."""
        for bucket in list(counts):
            self._add(tier, bucket, counts.bucket_ms, counts.take(bucket))

    def topics(self) -> list[str]:
        """Return all topics with counts, in order."""
        return sorted(self._amounts)

    def tiers(self, topics: Collection[str]) -> set[str]:
        """Return the tiers with counts for one of these topics."""
        return {tier for topic in topics for tier, _, _ in self._amounts.get(topic, ())}

    def bucket_ms(self, topic: str) -> int:
        """Return the length in ms of a topic's time buckets."""
        return (
            lcm(*(length for _, _, length in self._amounts.get(topic, ())))
            if topic in self._amounts
            else BUCKET_MS
        )

    def starts(self, topic: str, window: AuditWindow) -> list[int]:
        """Return the beginnings (ms since 1970) of a topic's time buckets that overlap the window and have counts."""
        length = self.bucket_ms(topic)
        starts = {bucket_start(start, length) for _, start, _ in self._amounts.get(topic, ())}
        return sorted(start for start in starts if window.shows(start, length))

    def rows(
        self, topic: str, tiers: Sequence[str], window: AuditWindow, expired_before_ms: int = 0
    ) -> list[Row]:
        """Return the buckets of a topic, for these tiers. Before `expired_before_ms` the log may be incomplete."""
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
    """Return the tiers (the stages of a pipeline that count records) to compare, the reference first: those `named`, or
    by default all that report.

    `copies`, the logs of other clusters, follow the log of this one. Raises NothingToCompare.
    """
    tiers = list(dict.fromkeys(named))
    if not tiers:
        others = sorted(tier for tier in reporting if tier != reference and not is_log_tier(tier))
        logs = [*([LOG_TIER] if log else []), *copies]
        tiers = [*([reference] if reference in reporting else []), *logs, *others]
        if not {reference, LOG_TIER} & set(tiers):
            found = ", ".join(others) or "none"
            raise NothingToCompare(
                f"no reports of tier {reference!r} (there are {found}): name the one to compare with, or count the log"
            )
    else:
        tiers += [tier for tier in (*([LOG_TIER] if log else []), *copies) if tier not in tiers]
    if len(tiers) < 2:
        raise NothingToCompare(f"there is no tier to compare {tiers[0]!r} with")
    return tiers
