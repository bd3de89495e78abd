"""Whole transactions out of interleaved partitions, for any order of reads and any distance of cuts."""

from __future__ import annotations

import random
from collections import defaultdict

import pytest

from ottla.client.records import TopicPartition
from ottla.client.transactions.whole_transactions import Assembler, CommittedTransaction
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.record import ControlRecord, ControlType, encode_batch, encode_control_batch
from ottla.protocol.records.record_batch import BatchHeader, parse_header, patch_offset_and_epoch
from tests.protocol.record_codecs import record_codec_in_use as record_codec_in_use

Batch = tuple[BatchHeader, memoryview]


class Log:
    """The log of one partition."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.markers: list[tuple[int, int]] = []
        """Markers as (commit index, offset)."""
        self.end = 0

    def write(self, producer_id: int | None, *values: bytes) -> None:
        self._append(
            encode_batch(
                [(None, value, 1) for value in values],
                producer_id=-1 if producer_id is None else producer_id,
                producer_epoch=-1 if producer_id is None else 0,
                base_sequence=-1 if producer_id is None else 0,
                transactional=producer_id is not None,
            )
        )

    def mark(self, producer_id: int, commit_index: int, *, commits: bool) -> None:
        record = ControlRecord(ControlType.COMMIT if commits else ControlType.ABORT, 1, commit_index)
        self.markers.append((commit_index, self.end))
        self._append(encode_control_batch(record, timestamp_ms=1, producer_id=producer_id, producer_epoch=0))

    def cut_offset(self, cut: int) -> int:
        return next((offset for index, offset in self.markers if index > cut), self.end)

    def _append(self, batch: bytes) -> None:
        placed = bytearray(batch)
        patch_offset_and_epoch(placed, 0, self.end, 0)
        header = parse_header(placed)
        self.batches.append((header, memoryview(placed)))
        self.end = header.next_offset


class Readers:
    """Several logs, and an assembler that reads them in a random order up to the given cut."""

    def __init__(self, count: int, chance: random.Random, bytes_max: int = 1 << 20, after: int = -1) -> None:
        self.chance = chance
        self.logs = {TopicPartition("t", index): Log() for index in range(count)}
        self.assembler = Assembler(dict.fromkeys(self.logs, 0), after, bytes_max)
        self.read = dict.fromkeys(self.logs, 0)
        self.told: list[CommittedTransaction] = []
        self.plain: dict[TopicPartition, list[bytes]] = defaultdict(list)

    def read_to(self, cut: int) -> None:
        self.assembler.set_cut(cut, {place: log.cut_offset(cut) for place, log in self.logs.items()})
        self.told += self.assembler.ready()
        while unread := self.assembler.unread():
            partition = self.chance.choice(unread)
            for _ in range(self.chance.randrange(1, 5)):
                position = self.read[partition]
                batches = self.logs[partition].batches
                if position == len(batches) or not self.assembler.takes(partition, batches[position][0]):
                    break
                self.plain[partition] += [
                    record.value or b"" for record in self.assembler.add(partition, *batches[position])
                ]
                self.read[partition] += 1
            self.told += self.assembler.ready()

    def values(self) -> list[tuple[int | None, dict[int, list[bytes | None]]]]:
        return [
            (
                transaction.commit_index,
                {p.partition: [r.value for r in some] for p, some in transaction.records.items()},
            )
            for transaction in self.told
        ]


@pytest.mark.parametrize("seed", range(60))
def test_each_committed_transaction_is_told_of_once_whole_and_in_order(seed: int) -> None:
    chance = random.Random(seed)
    readers = Readers(chance.randrange(1, 5), chance)
    logs = {place.partition: log for place, log in readers.logs.items()}
    expected: list[tuple[int | None, dict[int, list[bytes | None]]]] = []
    plain: dict[int, list[bytes]] = defaultdict(list)
    open_ones: dict[int, list[tuple[int, int, bytes]]] = {}  # transaction -> (writer, partition, value)
    owed: dict[int, list[tuple[int, int, bool]]] = {
        log_index: [] for log_index in logs
    }  # partition -> markers, in order
    next_transaction, next_index, complete = 0, 0, {}
    for step in range(200):
        choice = chance.random()
        if choice < 0.1:
            open_ones[next_transaction] = []
            next_transaction += 1
        elif choice < 0.5 and open_ones:
            transaction = chance.choice(list(open_ones))
            writer, partition, value = (
                transaction * 10 + chance.randrange(3),
                chance.choice(list(logs)),
                b"%d" % step,
            )
            # A leader takes nothing of a producer whose marker it owes.
            if not any(producer_id == writer for producer_id, _, _ in owed[partition]):
                logs[partition].write(writer, value)
                open_ones[transaction].append((writer, partition, value))
        elif choice < 0.6:
            partition = chance.choice(list(logs))
            logs[partition].write(None, b"plain %d" % step)
            plain[partition].append(b"plain %d" % step)
        elif choice < 0.75 and open_ones:
            transaction = chance.choice(list(open_ones))
            written = open_ones.pop(transaction)
            chosen = {
                writer for writer in range(transaction * 10, transaction * 10 + 3) if chance.random() < 0.6
            }
            seen: dict[int, list[bytes | None]] = defaultdict(list)
            for writer, partition, value in written:
                if writer in chosen:
                    seen[partition].append(value)
            if seen:
                expected.append((next_index, dict(seen)))
            for writer, partition in {(writer, partition) for writer, partition, _ in written}:
                owed[partition].append((writer, next_index, writer in chosen))
            complete[next_index] = {partition for _, partition, _ in written}
            next_index += 1
        elif choice < 0.9:
            partition = chance.choice(list(logs))
            if owed[partition]:
                producer_id, index, commits = owed[partition].pop(0)
                logs[partition].mark(producer_id, index, commits=commits)
        else:
            owes = [marker[1] for markers in owed.values() for marker in markers]
            cut = min(owes, default=next_index) - 1
            readers.read_to(cut)
            assert readers.values() == [
                entry for entry in expected if entry[0] is not None and entry[0] <= cut
            ]
    for partition, markers in owed.items():
        for producer_id, index, commits in markers:
            logs[partition].mark(producer_id, index, commits=commits)
    readers.read_to(next_index - 1)
    assert readers.values() == expected, f"seed {seed}"
    assert {place.partition: values for place, values in readers.plain.items() if values} == plain
    still_open = sum(len(value) > 0 for written in open_ones.values() for *_, value in written)
    assert (readers.assembler.waiting_bytes > 0) == (still_open > 0)


def test_an_older_open_transaction_holds_up_no_younger_one() -> None:
    readers = Readers(1, random.Random(1))
    log = readers.logs[TopicPartition("t", 0)]
    log.write(1, b"open")
    log.write(2, b"done")
    log.mark(2, 0, commits=True)
    readers.read_to(0)
    assert readers.values() == [(0, {0: [b"done"]})]


def test_a_backlog_is_told_of_while_it_is_read() -> None:
    """The waiting records are those of open transactions, or unread elsewhere, not everything up to the cut."""
    readers = Readers(2, random.Random(1), bytes_max=1000)
    for index in range(100):
        for log in readers.logs.values():
            log.write(index, b"x" * 100)
            log.mark(index, index, commits=True)
    cut = {place: log.cut_offset(99) for place, log in readers.logs.items()}
    readers.assembler.set_cut(99, cut)
    while unread := readers.assembler.unread():
        partition = unread[0]
        readers.assembler.add(partition, *readers.logs[partition].batches[readers.read[partition]])
        readers.read[partition] += 1
        readers.told += readers.assembler.ready()
    assert [transaction.commit_index for transaction in readers.told] == list(range(100))


def test_what_does_not_fit_is_an_error_that_says_what_helps() -> None:
    readers = Readers(1, random.Random(1), bytes_max=500)
    log = readers.logs[TopicPartition("t", 0)]
    log.write(1, b"x" * 300)
    log.mark(1, 0, commits=False)
    log.write(1, b"y" * 300)
    log.mark(1, 1, commits=True)
    readers.read_to(1)
    assert [transaction.commit_index for transaction in readers.told] == [1]
    log.write(1, b"x" * 300)
    log.write(2, b"y" * 300)
    with pytest.raises(KafkaError, match="buffer_bytes_max") as refused:
        readers.read_to(1)
    assert refused.value.code is ErrorCode.RECORD_LIST_TOO_LARGE


def test_reading_goes_on_after_a_commit_index() -> None:
    readers = Readers(1, random.Random(1), after=1)
    log = readers.logs[TopicPartition("t", 0)]
    for index in range(4):
        log.write(index, b"%d" % index)
        log.mark(index, index, commits=True)
    readers.read_to(3)
    assert readers.values() == [(2, {0: [b"2"]}), (3, {0: [b"3"]})]


def test_a_commit_without_an_index_is_an_error() -> None:
    readers = Readers(1, random.Random(1))
    log = readers.logs[TopicPartition("t", 0)]
    log.write(1, b"x")
    log.mark(1, -1, commits=True)
    with pytest.raises(KafkaError, match="no commit index"):
        readers.read_to(3)
