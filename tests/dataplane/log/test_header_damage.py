"""Flipped bits in the fields of a batch that no CRC covers: base offset, length, leader epoch, magic."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.dataplane.log import LogConfig, PartitionLog
from ottla.dataplane.log.verification import check_slice
from ottla.protocol.errors import ErrorCode, KafkaError
from tests.dataplane.log.batches import make_batch

NOW = 10_000
SIZE = 61 + 20  # of a batch of one record, whose value has 13 bytes
EPOCHS = (1, 1, 1, 3, 3, 3, 4, 4)
FIELDS = {
    "base offset up": (5, 1),
    "base offset down": (7, 1),
    "length": (10, 1),
    "leader epoch far above": (13, 16),
    "leader epoch above": (15, 4),
    "leader epoch below": (15, 2),
    "magic": (16, 1),
}
"""Byte of the header, and the bit in it."""
VICTIM = 5
"""Index of the damaged batch, which has epoch 3. It is odd, so that either bit of its offset moves its beginning."""
every_field = pytest.mark.parametrize("field", FIELDS)


def opened(folder: Path, *, recovery_point: int = 0, config: LogConfig | None = None) -> PartitionLog:
    return PartitionLog.open(
        folder, config or LogConfig(), clean_shutdown=False, recovery_point=recovery_point, now_ms=NOW
    )


def written(folder: Path, config: LogConfig | None = None) -> PartitionLog:
    log = opened(folder, config=config)
    for epoch in EPOCHS:
        log.produced.append(memoryview(make_batch(1, b"p" * 13)), epoch, NOW)
    log.flush()
    return log


def flipped(data: bytes, field: str, batch: int = VICTIM) -> bytearray:
    position, bit = FIELDS[field]
    changed = bytearray(data)
    changed[batch * SIZE + position] ^= bit
    return changed


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "t-0"


@pytest.fixture
def whole(folder: Path) -> bytes:
    """Return the bytes of a log that was killed."""
    log = written(folder)
    path = log.segments[0].path
    log.close(clean=False)
    return path.read_bytes()


def segment(folder: Path) -> Path:
    (path,) = folder.glob("*.log")
    return path


@every_field
def test_recovery_keeps_nothing_of_it(folder: Path, whole: bytes, field: str) -> None:
    segment(folder).write_bytes(flipped(whole, field))
    log = opened(folder)
    assert log.log_end_offset <= VICTIM
    assert segment(folder).read_bytes() == whole[: log.log_end_offset * SIZE]
    # Above its own, any of the batches since epoch 3 began may be the wrong one.
    assert log.log_end_offset == (3 if field == "leader epoch below" else VICTIM)
    assert log.leader_epochs.entries == ((1, 0), (3, 3))[: 1 if log.log_end_offset == 3 else 2]
    log.check()
    log.append_as_follower(
        memoryview(bytearray(whole[log.log_end_offset * SIZE :])), NOW, leader_epoch=EPOCHS[-1]
    )
    assert log.leader_epochs.entries == ((1, 0), (3, 3), (4, 6))
    log.check()
    log.close(clean=False)


@every_field
def test_recovery_refuses_it_below_the_recovery_point(folder: Path, whole: bytes, field: str) -> None:
    spoiled = flipped(whole, field)
    segment(folder).write_bytes(spoiled)
    with pytest.raises(KafkaError, match=f"is damaged at byte {VICTIM * SIZE}") as caught:
        opened(folder, recovery_point=len(EPOCHS))
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert segment(folder).read_bytes() == spoiled


def test_an_epoch_above_those_of_batches_in_earlier_segments_is_cut_off_there(folder: Path) -> None:
    log = written(folder, LogConfig(segment_bytes=3 * SIZE))
    paths = [segment.path for segment in log.segments]
    log.close(clean=False)
    assert len(paths) == 3
    data = paths[0].read_bytes()
    paths[0].write_bytes(flipped(data, "leader epoch far above", 2))
    log = opened(folder)
    assert log.log_end_offset == 2
    assert [segment.path for segment in log.segments] == paths[:1]
    assert paths[0].read_bytes() == data[: 2 * SIZE]
    assert log.leader_epochs.entries == ((1, 0),)
    log.check()
    log.close(clean=False)


@every_field
def test_a_follower_takes_nothing_of_it(folder: Path, whole: bytes, field: str) -> None:
    if field == "base offset up":
        pytest.skip("to a follower that is a log with an offset left out, unless the next batch is there")
    log = opened(folder.with_name("t-1"))
    with pytest.raises(KafkaError) as caught:
        log.append_as_follower(
            memoryview(flipped(whole[: (VICTIM + 1) * SIZE], field)), NOW, leader_epoch=EPOCHS[-1]
        )
    assert caught.value.code in (
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    )
    assert log.log_end_offset == 0
    assert log.leader_epochs.entries == ()
    log.close(clean=False)


def test_a_follower_takes_no_batch_that_goes_back(folder: Path, whole: bytes) -> None:
    log = opened(folder.with_name("t-1"))
    with pytest.raises(KafkaError) as caught:
        log.append_as_follower(memoryview(flipped(whole, "base offset up")), NOW, leader_epoch=EPOCHS[-1])
    assert caught.value.code is ErrorCode.INVALID_RECORD
    log.close(clean=False)


def found_by_the_leader(log: PartitionLog, asked: int) -> str | None:
    """Return the leader's error when a follower has fetched the same offset once more."""
    try:
        piece = log.read(asked, 1 << 20, log.log_end_offset, at_least_one=True)
    except KafkaError as error:
        return error.message
    found = check_slice(piece, log.directory, log.leader_epochs.copy(), offset=asked, contiguous=True)
    piece.release()
    return None if found is None else found.message


@every_field
@pytest.mark.parametrize("asked", [0, VICTIM])
def test_a_leader_that_looks_finds_it(folder: Path, whole: bytes, field: str, asked: int) -> None:
    log = opened(folder)
    segment(folder).write_bytes(flipped(whole, field))
    found = found_by_the_leader(log, asked)
    assert found is not None
    assert "is damaged at byte" in found
    log.close(clean=False)


def test_nothing_is_found_in_a_log_in_order(folder: Path, whole: bytes) -> None:
    assert len(whole) == SIZE * len(EPOCHS)
    log = opened(folder, recovery_point=len(EPOCHS))
    log.advance_log_start_offset(4)
    assert [found_by_the_leader(log, asked) for asked in (4, 5, 7)] == [None, None, None]
    log.close(clean=False)


@pytest.mark.parametrize("field", ["base offset up", "base offset down"])
def test_a_read_does_not_begin_with_another_offset(folder: Path, whole: bytes, field: str) -> None:
    """Reads that run over the batch are checked by the verifier and by their readers."""
    log = opened(folder)
    segment(folder).write_bytes(flipped(whole, field))
    with pytest.raises(KafkaError) as caught:
        log.read(VICTIM, SIZE, log.log_end_offset, at_least_one=True)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    log.close(clean=False)
