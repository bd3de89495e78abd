"""Two topics in memory whose transactions the lake's tables read: a cluster for tests of tables alone."""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, Collection, Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from ottla.client.records import TopicPartition
from ottla.client.transactions.cut_search import ReadPlace
from ottla.lake.cluster_view import CutPlaces, LakeTopics
from ottla.lake.position import PartitionRange
from ottla.lake.record_columns import RAW_SCHEMA

PARTITIONS = 2
IDS = {"words": b"\x01" * 16, "bytes": b"\x02" * 16}
"""The topics: one for a table in JSON mode, and one for a raw table."""
BAD = b"no JSON"


@dataclass(frozen=True, slots=True)
class LoggedRecord:
    """A record, with the commit index of its transaction."""

    partition: int
    offset: int
    commit_index: int
    value: bytes

    @property
    def place(self) -> tuple[int, int]:
        """Partition and offset."""
        return self.partition, self.offset


class SimulatedLog:
    """The log of both topics. Each transaction writes to both; some have a record that does not fit."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(f"log {seed}")
        self.records: dict[str, list[LoggedRecord]] = {name: [] for name in IDS}
        self.commits = 0
        """The number of transactions; the commit index of the newest cut is one less."""

    def grow(self, transactions: int) -> None:
        """Commit transactions."""
        for _ in range(transactions):
            for name, records in self.records.items():
                for _ in range(self._random.randint(1, 3)):
                    self._append(name, records)
            self.commits += 1

    def _append(self, name: str, records: list[LoggedRecord]) -> None:
        partition = self._random.randrange(PARTITIONS)
        offset = self._end(records, partition, self.commits)
        value = b'{"number": %d}' % len(records)
        if name == "words" and self._random.random() < 0.15:
            value = BAD
        elif self._random.random() < 0.1:
            value = b'{"number": %d, "more_%d": true}' % (len(records), self._random.randrange(3))
        records.append(LoggedRecord(partition, offset, self.commits, value))

    @staticmethod
    def _end(records: Iterable[LoggedRecord], partition: int, commit_index: int) -> int:
        """Return the end of a partition behind a transaction."""
        return sum(
            record.partition == partition and record.commit_index <= commit_index for record in records
        )

    # ------------------------------------------------------------ as `LakeView`

    async def topics(self, names: Iterable[str]) -> LakeTopics:
        """Return the topics' ids and partitions."""
        wanted = set(names)
        return LakeTopics(
            {name: IDS[name] for name in wanted},
            frozenset(TopicPartition(name, index) for name in wanted for index in range(PARTITIONS)),
        )

    async def beginnings(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the log start offsets."""
        return dict.fromkeys(partitions, 0)

    async def ends_reaching(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the log end offsets."""
        return {at: self._end(self.records[at.topic], at.partition, self.commits) for at in offsets}

    async def next_cut(
        self, names: Collection[str], start: Mapping[TopicPartition, int], first: int, offsets_max: int
    ) -> CutPlaces:
        """Return the newest cut, or by chance an older one behind `first`."""
        newest = self.commits - 1
        cut = (
            newest
            if newest <= first or self._random.random() < 0.5
            else self._random.randint(first + 1, newest)
        )
        partitions = [TopicPartition(name, index) for name in names for index in range(PARTITIONS)]
        at = {partition: self._place(partition, cut) for partition in partitions}
        most = {partition: self._place(partition, newest).offset for partition in partitions}
        return CutPlaces(cut, at, is_newest=cut == newest, newest=most)

    def _place(self, partition: TopicPartition, cut: int) -> ReadPlace:
        end = self._end(self.records[partition.topic], partition.partition, cut)
        return ReadPlace(end, end)

    # ------------------------------------------------------------ as `TopicRecords`

    def topic(self, name: str) -> SimulatedTopic:
        """Return a topic to read."""
        return SimulatedTopic(name, IDS[name], self.records[name])


@dataclass(frozen=True, slots=True)
class SimulatedTopic:
    """A topic of the simulated log, as a source of records."""

    name: str
    id: bytes
    log: list[LoggedRecord]

    async def records(self, range_: PartitionRange) -> AsyncGenerator[pa.RecordBatch, None]:
        """Yield the records of a window, two at a time."""
        window = range_.window
        rows = [
            {
                "ottla": {"partition": record.partition, "offset": record.offset, "headers": []},
                "value": record.value,
            }
            for record in self.log
            if record.partition == range_.partition and window.start <= record.offset < window.end
        ]
        for begin in range(0, len(rows), 2):
            yield pa.RecordBatch.from_pylist(rows[begin : begin + 2], schema=RAW_SCHEMA)
