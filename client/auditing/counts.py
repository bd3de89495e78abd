"""Numbers of records, and of bytes in their keys and values, by topic and time bucket. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

DAY_MS = 86_400_000
BUCKET_MS_MIN = 1_000


class Bucket(NamedTuple):
    """The records of a topic whose timestamps lie in one time bucket, from `start_ms` on."""

    topic: str
    start_ms: int


class Amount(NamedTuple):
    """A number of records, and of bytes in their keys and values before compression."""

    records: int
    bytes: int

    def plus(self, other: Amount) -> Amount:
        """Return the sum of both amounts, of records and of bytes."""
        return Amount(self.records + other.records, self.bytes + other.bytes)


Stamped = tuple[int, int]
"""The counted properties of a record: its timestamp in ms, and the bytes of its key and value.

A negative timestamp, which means none, counts as 0. It is a plain tuple, as the creation of objects would be most of
the cost of counting.
"""


def is_bucket_length(milliseconds: int) -> bool:
    """Return whether this is a valid bucket length: a day divided by a whole number, at least a second.

    Buckets of any two such lengths fit into longer ones of at most a day. Counts of clients with different lengths can
    therefore be compared.
    """
    return milliseconds >= BUCKET_MS_MIN and DAY_MS % milliseconds == 0


def bucket_start(timestamp_ms: int, bucket_ms: int) -> int:
    """Return the beginning, in ms since 1970, of the time bucket that contains `timestamp_ms`."""
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
        """The number of counted records in all time buckets."""
        return sum(amount.records for amount in self._amounts.values())

    def count(self, topic: str, records: Collection[Stamped]) -> None:
        """Count records of a topic. The usual case, all records in one bucket, is fast."""
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
        """Add a number of records and bytes to the count of a bucket."""
        before = self._amounts.get(bucket)
        self._amounts[bucket] = amount if before is None else before.plus(amount)

    def merge(self, other: Counts) -> None:
        """Add all record counts of `other`, whose time buckets have the same length."""
        for bucket, amount in other._amounts.items():
            self.add(bucket, amount)

    def take(self, bucket: Bucket) -> Amount:
        """Remove a bucket, and return its numbers of records and bytes. Raises KeyError for a bucket without a
        count."""
        return self._amounts.pop(bucket)

    def clear(self) -> None:
        """Forget all counts."""
        self._amounts.clear()
