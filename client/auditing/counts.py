"""How many records, and how many bytes of keys and values, by topic and time bucket. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

DAY_MS = 86_400_000
BUCKET_MS_MIN = 1_000


class Bucket(NamedTuple):
    """A topic's records from `start_ms` on, for as long as a bucket is."""

    topic: str
    start_ms: int


class Amount(NamedTuple):
    """Of records, and of bytes in their keys and values, before compression."""

    records: int
    bytes: int

    def plus(self, other: Amount) -> Amount:
        """Both together."""
        return Amount(self.records + other.records, self.bytes + other.bytes)


Stamped = tuple[int, int]
"""What is counted of a record: its timestamp in ms, and the bytes of its key and value. A timestamp below 0, which is
none, counts as 0. No class of its own: making objects would be most of what counting costs."""


def is_bucket_length(milliseconds: int) -> bool:
    """Whether buckets can be so long: a day divided by a whole number, no less than a second.

    So buckets of any two lengths fit into longer ones of at most a day, and counts of clients that disagree about the
    length can be compared.
    """
    return milliseconds >= BUCKET_MS_MIN and DAY_MS % milliseconds == 0


def bucket_start(timestamp_ms: int, bucket_ms: int) -> int:
    """When the bucket begins that this time lies in."""
    return max(0, timestamp_ms - timestamp_ms % bucket_ms)


class Counts:
    """Amounts by bucket."""

    def __init__(self, bucket_ms: int) -> None:
        self.bucket_ms = bucket_ms
        self._amounts: dict[Bucket, Amount] = {}

    def __iter__(self) -> Iterator[Bucket]:
        return iter(self._amounts)

    def __bool__(self) -> bool:
        return bool(self._amounts)

    @property
    def records(self) -> int:
        """Of all buckets together."""
        return sum(amount.records for amount in self._amounts.values())

    def count(self, topic: str, records: Collection[Stamped]) -> None:
        """Count records of a topic. Quick where all lie in one bucket, as nearly always."""
        if not records:
            return
        stamps = [stamp for stamp, _ in records]
        first = bucket_start(min(stamps), self.bucket_ms)
        if max(stamps) < first + self.bucket_ms:
            self.add(Bucket(topic, first), Amount(len(records), sum([size for _, size in records])))
            return
        for stamp, size in records:
            self.add(Bucket(topic, bucket_start(stamp, self.bucket_ms)), Amount(1, size))

    def add(self, bucket: Bucket, amount: Amount) -> None:
        """So much more in this bucket."""
        before = self._amounts.get(bucket)
        self._amounts[bucket] = amount if before is None else before.plus(amount)

    def merge(self, other: Counts) -> None:
        """Everything that `other`, with buckets of the same length, has counted."""
        for bucket, amount in other._amounts.items():
            self.add(bucket, amount)

    def take(self, bucket: Bucket) -> Amount:
        """What was counted in a bucket, which is counted here no more. Raises KeyError for one without a count."""
        return self._amounts.pop(bucket)

    def clear(self) -> None:
        """Forget everything."""
        self._amounts.clear()
