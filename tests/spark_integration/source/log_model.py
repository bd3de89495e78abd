"""Partitions in memory, with interleaved transactions, and their simplest evaluation: open transactions, cuts, and
committed records.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from ottla import TopicPartition
from ottla.client.admin import Cut, CutOffset
from ottla.client.transactions.cut_filter import CutFilter, Step
from ottla.protocol.records.record import (
    ControlRecord,
    ControlType,
    decode_records,
    encode_batch,
    encode_control_batch,
)
from ottla.protocol.records.record_batch import BatchHeader, parse_header, patch_offset_and_epoch

TOPIC = "orders"
PLAIN = -1


class Entry(NamedTuple):
    """A batch. `transaction` is PLAIN outside of transactions; a marker has the transaction that it ends."""

    header: BatchHeader
    data: bytes
    transaction: int
    commit_index: int | None = None
    commits: bool = False

    @property
    def is_marker(self) -> bool:
        return self.commit_index is not None


@dataclass
class Log:
    """Partitions with their batches and transactions."""

    partitions: dict[TopicPartition, list[Entry]]
    open: dict[int, tuple[int, set[TopicPartition]]] = field(default_factory=dict)
    """Open transactions with their written partitions, by producer id."""
    committed: dict[int, int] = field(default_factory=dict)
    """Commit indexes by transaction."""
    transactions: int = 0
    decided: int = 0

    @classmethod
    def of(cls, partitions: int) -> Log:
        return cls({TopicPartition(TOPIC, index): [] for index in range(partitions)})

    def end(self, partition: TopicPartition) -> int:
        entries = self.partitions[partition]
        return entries[-1].header.next_offset if entries else 0

    def append(self, partition: TopicPartition, batch: bytes, **what: object) -> None:
        placed = bytearray(batch)
        patch_offset_and_epoch(placed, 0, self.end(partition), 0)
        self.partitions[partition].append(Entry(parse_header(placed), bytes(placed), **what))  # type: ignore[arg-type]

    def produce(self, partition: TopicPartition, records: int, producer_id: int | None = None) -> None:
        """Append records without a transaction, or in the producer's open or new transaction."""
        body = [(None, b"v" * 5, 0)] * records
        if producer_id is None:
            self.append(partition, encode_batch(body), transaction=PLAIN)
            return
        if producer_id not in self.open:
            self.open[producer_id] = self.transactions, set()
            self.transactions += 1
        transaction, written = self.open[producer_id]
        written.add(partition)
        batch = encode_batch(
            body, producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True
        )
        self.append(partition, batch, transaction=transaction)

    def decide(self, producer_id: int, *, commits: bool) -> None:
        """End the producer's transaction in all its partitions."""
        if producer_id not in self.open:
            return
        transaction, written = self.open.pop(producer_id)
        index = self.decided
        self.decided += 1
        if commits:
            self.committed[transaction] = index
        record = ControlRecord(ControlType(commits), index, index)
        marker = encode_control_batch(record, timestamp_ms=0, producer_id=producer_id, producer_epoch=0)
        for partition in sorted(written):
            self.append(partition, marker, transaction=transaction, commit_index=index, commits=commits)

    def grow(self, random: Random, steps: int) -> None:
        """Append random writes of three transactional producers, and of a plain one."""
        places = sorted(self.partitions)
        for _ in range(steps):
            producer_id = random.choice((None, 0, 1, 2))
            if producer_id is not None and random.random() < 0.3:
                self.decide(producer_id, commits=random.random() < 0.7)
            else:
                self.produce(random.choice(places), random.randint(1, 4), producer_id)

    # The cluster's answers

    def newest_cut(self) -> Cut:
        return Cut(self.decided - 1)

    def cut_offset(self, partition: TopicPartition, index: int) -> CutOffset:
        """Return the cut's offset by a walk from the beginning."""
        open_: dict[int, int] = {}
        least = 0
        for entry in self.partitions[partition]:
            if entry.is_marker:
                assert entry.commit_index is not None
                offset = entry.header.base_offset
                if entry.commit_index > index:
                    return CutOffset(offset, min(open_.values(), default=offset), least)
                open_.pop(entry.transaction, None)
                least = entry.header.next_offset
            elif entry.transaction != PLAIN:
                open_.setdefault(entry.transaction, entry.header.base_offset)
        end = self.end(partition)
        return CutOffset(end, min(open_.values(), default=end), least)

    # The expected reads

    def committed_records(self, partition: TopicPartition, below: int) -> set[int]:
        """Return the offsets of plain records below an offset, and of records whose marker lies below it."""
        ended = {
            entry.transaction
            for entry in self.partitions[partition]
            if entry.is_marker and entry.commits and entry.header.base_offset < below
        }
        return {
            offset
            for entry in self.partitions[partition]
            if not entry.is_marker
            and (
                entry.transaction in ended
                or (entry.transaction == PLAIN and entry.header.base_offset < below)
            )
            for offset in range(entry.header.base_offset, entry.header.next_offset)
            if entry.transaction != PLAIN or offset < below
        }

    def transaction_at(self, partition: TopicPartition, offset: int) -> int:
        return next(
            entry.transaction
            for entry in self.partitions[partition]
            if entry.header.base_offset <= offset <= entry.header.last_offset
        )


def chunk(entries: list[Entry], position: int, batches: int) -> Iterator[Entry]:
    """Yield some batches, beginning with the batch that contains `position`."""
    yield from [entry for entry in entries if entry.header.next_offset > position][:batches]


def read_through(entries: list[Entry], cut: CutFilter, below: int, random: Random) -> list[int]:
    """Return the offsets that a filter lets through, in its order."""
    found: list[int] = []
    while (step := cut.step) is not Step.NOTHING:
        position = cut.position if step is Step.READ else cut.scanned_to
        some = list(chunk(entries, position, random.randint(1, 4)))
        if not some:
            cut.passed(1 << 60)
        for entry in some:
            if cut.step is not step:
                break
            (cut.read if step is Step.READ else cut.scan)(entry.header, entry.data)
            found += given_out(cut, below)
        found += given_out(cut, below)
    return found


def given_out(cut: CutFilter, below: int) -> list[int]:
    return [
        record.offset
        for counted in cut.take()
        for record in decode_records(counted.batch)
        if counted.first_offset <= record.offset < below
    ]
