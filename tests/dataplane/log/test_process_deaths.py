"""Recovery after the death of a process alone. It reads headers, and finds the state of a whole check."""

from __future__ import annotations

import errno
import os
import random
import shutil
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ottla.dataplane.log import LogConfig, PartitionLog, page_cache
from ottla.dataplane.log.composed import append_marker
from ottla.dataplane.log.producers.producer_snapshot import encode_snapshot
from ottla.dataplane.log.recovery import segment_scan
from ottla.protocol.errors import KafkaError
from tests.dataplane.log.batches import make_batch

NOW = 10_000
CONFIG = LogConfig(segment_bytes=1500, index_interval_bytes=150, retention_ms=-1)
TRANSACTIONAL = 0x10
_SMALL_TAIL = 200
"""The bytes at the end that are checked in these small logs."""


def _open(
    folder: Path, *, recovery_point: int = 0, log_start: int = 0, only_process_died: bool = False
) -> PartitionLog:
    return PartitionLog.open(
        folder,
        CONFIG,
        clean_shutdown=False,
        recovery_point=recovery_point,
        log_start_offset=log_start,
        now_ms=NOW,
        only_process_died=only_process_died,
    )


class _Writer:
    """A writer of random batches: plain, of idempotent producers, of transactions with their markers, and with gaps as
    compaction leaves them."""

    def __init__(self, chance: random.Random, folder: Path) -> None:
        self.chance = chance
        self.log = _open(folder)
        self.sequences: dict[int, int] = {}
        self.open: set[int] = set()
        self.epoch = 0

    def write(self) -> None:
        chance, log = self.chance, self.log
        kind = chance.choice(
            ["plain", "plain", "idempotent", "transactional", "marker", "gap", "many", "epoch"]
        )
        payload = chance.randbytes(chance.randint(1, 250))
        time_ms = NOW + chance.randint(-500, 500)
        if kind == "epoch":
            self.epoch += chance.randint(1, 3)
        elif kind == "marker" and self.open:
            producer = chance.choice(sorted(self.open))
            self.open.discard(producer)
            append_marker(
                log,
                producer,
                0,
                commit=chance.random() < 0.5,
                number=chance.randint(1, 9),
                commit_index=1,
                leader_epoch=self.epoch,
                now_ms=NOW,
            )
        elif kind == "gap":
            offset = log.log_end_offset + chance.randint(1, 5)
            batch = make_batch(
                payload=payload, base_offset=offset, leader_epoch=self.epoch, timestamp=time_ms
            )
            log.append_as_follower(memoryview(batch), NOW)
        elif kind == "many":
            end = log.log_end_offset
            batches = b"".join(
                make_batch(
                    payload=payload, base_offset=end + index, leader_epoch=self.epoch, timestamp=time_ms
                )
                for index in range(chance.randint(2, 4))
            )
            log.append_as_follower(memoryview(bytearray(batches)), NOW)
        else:
            self._produce(kind, payload, time_ms)

    def _produce(self, kind: str, payload: bytes, time_ms: int) -> None:
        count = self.chance.randint(1, 3)
        fields: dict[str, object] = {}
        if kind in ("idempotent", "transactional"):
            producer = self.chance.randint(1, 3) + (10 if kind == "transactional" else 0)
            sequence = self.sequences.get(producer, 0)
            self.sequences[producer] = sequence + count
            fields["producer"] = (producer, 0, sequence)
            if kind == "transactional":
                fields["attributes"] = TRANSACTIONAL
                self.open.add(producer)
        batch = make_batch(count, payload, timestamp=time_ms, **fields)  # type: ignore[arg-type]
        self.log.produced.append(memoryview(batch), self.epoch, NOW)


def _state(log: PartitionLog) -> dict[str, object]:
    """Return all of a log's state that a recovery makes."""
    log.check()
    return {
        "start": log.log_start_offset,
        "end": log.log_end_offset,
        "point": log.recovery_point,
        "epochs": log.leader_epochs.entries,
        "producers": encode_snapshot(log.producers),
        "stable": log.transactions.last_stable_offset(log.log_end_offset),
        "gaps": log.segment_list.has_gaps,
        "segments": [
            (
                segment.base_offset,
                segment.path.read_bytes(),
                segment.synced,
                segment.first_timestamp,
                segment.max_timestamp,
                segment.max_timestamp_offset,
                segment.since_index_entry,
                [segment.offset_index.entry(number) for number in range(len(segment.offset_index))],
                [segment.time_index.entry(number) for number in range(len(segment.time_index))],
                segment.transaction_index.transactions(),
            )
            for segment in log.segments
        ],
    }


def _recovered(folder: Path, *, recovery_point: int, log_start: int, only_process_died: bool) -> object:
    """Recover a copy of the folder; return the log's state and its files, or the refusal."""
    copy = folder.with_name(f"copy-{only_process_died}")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(folder, copy)
    try:
        log = _open(
            copy,
            recovery_point=recovery_point,
            log_start=log_start,
            only_process_died=only_process_died,
        )
    except KafkaError as error:
        return error.message.replace(copy.name, "copy")
    state = _state(log)
    log.close(clean=False)
    return state, {path.name: path.read_bytes() for path in copy.iterdir()}


@pytest.fixture
def small_tail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_scan, "_TAIL_BYTES", _SMALL_TAIL)


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**32), cut=st.floats(0, 1), flushes=st.booleans(), fills=st.booleans())
def test_both_recoveries_find_the_same_state_of_a_log_whose_last_write_was_cut_anywhere(
    tmp_path_factory: pytest.TempPathFactory, seed: int, cut: float, flushes: bool, fills: bool
) -> None:
    """With `fills` the file has its full length after the death, and the rest of the last write is zeros."""
    chance = random.Random(seed)
    folder = tmp_path_factory.mktemp("log") / "t-0"
    writer = _Writer(chance, folder)
    log = writer.log
    recovery_point = log_start = 0
    for _ in range(chance.randint(1, 40)):
        before = log.segments[-1].base_offset, log.segments[-1].size
        writer.write()
        if flushes and chance.random() < 0.1:
            recovery_point = log.flush()
        if chance.random() < 0.05:
            log.advance_log_start_offset(chance.randint(log.log_start_offset, log.log_end_offset))
            log_start = log.log_start_offset
    active = log.segments[-1]
    size = active.size
    start = before[1] if before[0] == active.base_offset else 0
    log.close(clean=False)
    if recovery_point < log.log_end_offset:
        at = start + round(cut * (size - start))
        with active.path.open("r+b") as file:
            file.truncate(at)
            if fills:
                file.truncate(size)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segment_scan, "_TAIL_BYTES", 1)  # Only the last batch is read whole.
        found = [
            _recovered(folder, recovery_point=recovery_point, log_start=log_start, only_process_died=died)
            for died in (False, True)
        ]
    assert found[0] == found[1]


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**32), place=st.floats(0, 1), bit=st.none() | st.integers(0, 7))
@example(seed=6006, place=0.1875, bit=0)
def test_headers_that_are_skimmed_tell_as_much_as_headers_that_are_read(
    tmp_path_factory: pytest.TempPathFactory, seed: int, place: float, bit: int | None
) -> None:
    """A bit of the file may be damaged."""
    chance = random.Random(seed)
    folder = tmp_path_factory.mktemp("log") / "t-0"
    writer = _Writer(chance, folder)
    for _ in range(chance.randint(1, 60)):
        writer.write()
    writer.log.close(clean=False)
    path = chance.choice(writer.log.segments).path
    data = bytearray(path.read_bytes())
    if bit is not None and data:
        data[round(place * (len(data) - 1))] ^= 1 << bit
        path.write_bytes(data)
    found = []
    for skim in (segment_scan.skim, None):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(segment_scan, "_TAIL_BYTES", 1)
            patch.setattr(segment_scan, "skim", skim)
            try:
                found.append(_recovered(folder, recovery_point=0, log_start=0, only_process_died=True))
            except (
                AssertionError
            ) as broken:  # A damaged header may have numbers that no broker writes together.
                assert bit is not None
                found.append(str(broken))
    assert found[0] == found[1]


@pytest.mark.skipif(segment_scan.skim is None, reason="the extension is not built")
def test_most_batches_are_skimmed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = _open(tmp_path / "t-0")
    monkeypatch.setattr(segment_scan, "_TAIL_BYTES", 1)
    for number in range(10):
        log.produced.append(memoryview(make_batch(payload=b"x" * 10, timestamp=NOW + number)), 1, NOW)
    log.close(clean=False)
    noted: list[int] = []
    note = segment_scan.Scan.note
    monkeypatch.setattr(
        segment_scan.Scan,
        "note",
        lambda scan, header: (noted.append(header.base_offset), note(scan, header)),
    )
    log = _open(tmp_path / "t-0", only_process_died=True)
    assert noted == [0, 9], "the first and the last"
    assert log.log_end_offset == 10
    log.close(clean=False)


@pytest.mark.usefixtures("small_tail")
def test_bodies_before_the_end_are_not_read_and_those_at_the_end_are(tmp_path: Path) -> None:
    log = _open(tmp_path / "t-0")
    for _ in range(6):
        log.produced.append(memoryview(make_batch(payload=b"x" * 100)), 1, NOW)
    path, size = log.segments[0].path, log.size
    log.close(clean=False)
    whole = path.read_bytes()
    for batch, end in ((0, 6), (5, 5)):
        data = bytearray(whole)
        data[(batch + 1) * size // 6 - 1] ^= 1
        path.write_bytes(data)
        log = _open(tmp_path / "t-0", only_process_died=True)
        assert log.log_end_offset == end
        assert log.recovery_point == 0, "nothing was flushed"
        log.close(clean=False)


@pytest.mark.usefixtures("small_tail")
def test_a_log_with_anything_odd_is_checked_as_a_whole(tmp_path: Path) -> None:
    """A damaged header, or a short end, shows that the page cache lost something: then no body is trusted."""
    log = _open(tmp_path / "t-0")
    for _ in range(8):
        log.produced.append(memoryview(make_batch(payload=b"x" * 100)), 1, NOW)
    path, size = log.segments[0].path, log.size
    log.close(clean=False)
    data = bytearray(path.read_bytes())
    data[2 * size // 8 - 1] ^= 1  # the last byte of the second batch
    data[5 * size // 8 + 16] = 0  # the magic of the sixth
    path.write_bytes(data)
    log = _open(tmp_path / "t-0", only_process_died=True)
    assert log.log_end_offset == 1
    log.close(clean=False)


@pytest.mark.usefixtures("small_tail")
def test_markers_are_read_whole(tmp_path: Path) -> None:
    """Their bodies end transactions, so a damaged body must not be used."""
    log = _open(tmp_path / "t-0")
    fields = {"producer": (7, 0, 0), "attributes": TRANSACTIONAL}
    log.produced.append(memoryview(make_batch(payload=b"x" * 100, **fields)), 1, NOW)  # type: ignore[arg-type]
    append_marker(log, 7, 0, commit=False, number=1, commit_index=1, leader_epoch=1, now_ms=NOW)
    path, size = log.segments[0].path, log.size
    for _ in range(6):
        log.produced.append(memoryview(make_batch(payload=b"x" * 100)), 1, NOW)
    log.close(clean=False)
    whole = path.read_bytes()
    for position in range(size - 17, size):
        data = bytearray(whole)
        data[position] ^= 1
        path.write_bytes(data)
        found = [
            _recovered(tmp_path / "t-0", recovery_point=0, log_start=0, only_process_died=died)
            for died in (False, True)
        ]
        assert found[0] == found[1], position


@pytest.mark.usefixtures("small_tail")
def test_a_log_of_which_the_disk_has_refused_a_page_is_checked_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = _open(tmp_path / "t-0")
    for _ in range(8):
        log.produced.append(memoryview(make_batch(payload=b"x" * 100)), 1, NOW)
    path, size = log.segments[0].path, log.size
    log.close(clean=False)
    data = bytearray(path.read_bytes())
    data[3 * size // 8 - 1] ^= 1
    path.write_bytes(data)

    def refused(fd: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(page_cache, "check_writes", refused)
    log = _open(tmp_path / "t-0", only_process_died=True)
    assert log.log_end_offset == 2
    log.close(clean=False)


@pytest.mark.skipif(page_cache._wait_for_writes() is None, reason="the system does not tell of refused pages")
def test_the_system_tells_of_no_refused_pages_of_a_file_in_order(tmp_path: Path) -> None:
    with (tmp_path / "file").open("wb") as file:
        file.write(b"x" * 100_000)
        file.flush()
        page_cache.check_writes(file.fileno())
    with pytest.raises(OSError, match="Bad file descriptor"):
        page_cache.check_writes(1 << 20)
