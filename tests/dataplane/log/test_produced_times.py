"""A log's statements about times hold for its records, whatever the headers of produced batches claim."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.dataplane.log import LogConfig, PartitionLog, RefusedRecords
from ottla.dataplane.log.timestamps import max_timestamp_offset, offset_for_timestamp
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.compression import Compression
from ottla.protocol.records.record import NewRecord, decode_records, encode_batch
from ottla.protocol.records.record_batch import BatchHeader, check_integrity, parse_header, walk_batches
from tests.dataplane.log.batches import make_batch
from tests.protocol.produced import with_header

NOW = 1_700_000_000_000
DAY_MS = 24 * 3600 * 1000
CODECS = list(Compression)


def opened(folder: Path, config: LogConfig | None = None) -> PartitionLog:
    return PartitionLog.open(folder, config or LogConfig(), clean_shutdown=True, recovery_point=0, now_ms=NOW)


def stored(log: PartitionLog) -> list[BatchHeader]:
    piece = log.read(log.log_start_offset, 1 << 20, log.log_end_offset, at_least_one=True)
    data = piece.read()
    piece.release()
    headers = []
    for position, header in walk_batches(data):
        check_integrity(data, position, header)
        headers.append(header)
    return headers


def lying(claimed_ms: int, *times: int, codec: Compression = Compression.NONE) -> memoryview:
    """Return a batch of records with these times, whose header claims another largest one."""
    records: list[NewRecord] = [(b"key", b"value", time) for time in times]
    return memoryview(with_header(encode_batch(records, compression=codec), max_timestamp=claimed_ms))


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("claimed_ms", [-1, NOW - 10 * DAY_MS, NOW + 10 * DAY_MS])
def test_the_true_largest_timestamp_is_stored(tmp_path: Path, codec: Compression, claimed_ms: int) -> None:
    log = opened(tmp_path / "t-0")
    for number in range(3):
        start = NOW + 10 * number
        result = log.produced.append(lying(claimed_ms, start, start + 5, start + 2, codec=codec), 0, NOW)
        assert result.max_timestamp == start + 5
    assert [header.max_timestamp - NOW for header in stored(log)] == [5, 15, 25]
    for asked, offset in ((0, 0), (5, 1), (6, 3), (25, 7)):
        found = offset_for_timestamp(log, NOW + asked, log.log_end_offset)
        assert found is not None
        assert found.offset == offset
    assert offset_for_timestamp(log, NOW + 26, log.log_end_offset) is None
    latest = max_timestamp_offset(log)
    assert latest is not None
    assert (latest.offset, latest.timestamp) == (7, NOW + 25)
    log.close(clean=False)


def test_an_honest_header_stays_as_it_is(tmp_path: Path) -> None:
    log = opened(tmp_path / "t-0")
    batch = encode_batch([(b"k", b"v", NOW), (b"k", b"v", NOW + 3)])
    log.produced.append(memoryview(bytearray(batch)), 0, NOW)
    assert [header.crc for header in stored(log)] == [parse_header(batch).crc]
    log.close(clean=False)


def test_records_without_a_timestamp_have_none(tmp_path: Path) -> None:
    log = opened(tmp_path / "t-0", LogConfig(message_timestamp_before_max_ms=1000))
    log.produced.append(memoryview(bytearray(encode_batch([(b"k", b"v", -1)]))), 0, NOW)
    assert [header.max_timestamp for header in stored(log)] == [-1]
    log.close(clean=False)


@pytest.mark.parametrize("claimed_ms", [-1, NOW])
def test_old_records_go_and_young_ones_stay(tmp_path: Path, claimed_ms: int) -> None:
    log = opened(tmp_path / "t-0", LogConfig(retention_ms=DAY_MS, segment_bytes=200))
    for time in (NOW - 3 * DAY_MS, NOW - 2 * DAY_MS, NOW - DAY_MS // 2, NOW):
        log.produced.append(lying(claimed_ms, time), 0, NOW)
    while log.old_segments.retain(log.log_end_offset, NOW):
        pass
    assert log.log_start_offset == 2
    log.close(clean=False)


@pytest.mark.parametrize("codec", CODECS)
def test_bounds_hold_for_the_records_own_times(tmp_path: Path, codec: Compression) -> None:
    log = opened(tmp_path / "t-0", LogConfig(message_timestamp_after_max_ms=1000))
    with pytest.raises(RefusedRecords) as caught:
        log.produced.append(lying(NOW, NOW, NOW + 5000, codec=codec), 0, NOW)
    assert caught.value.code is ErrorCode.INVALID_TIMESTAMP
    assert [number for number, _ in caught.value.records] == [1]
    log.produced.append(lying(NOW + 5000, NOW, codec=codec), 0, NOW)
    log.close(clean=False)


@pytest.mark.parametrize("codec", CODECS)
def test_of_a_topic_that_stamps_itself(tmp_path: Path, codec: Compression) -> None:
    log = opened(tmp_path / "t-0", LogConfig(message_timestamp_type="LogAppendTime"))
    log.produced.append(lying(7, 0, 2**50, codec=codec), 0, NOW)
    (header,) = stored(log)
    assert (header.max_timestamp, header.is_log_append_time) == (NOW, True)
    stamped = with_header(encode_batch([(b"k", b"v", NOW)], compression=codec), attributes=codec | 8)
    with pytest.raises(KafkaError) as caught:
        log.produced.append(memoryview(stamped), 0, NOW)
    assert caught.value.code is ErrorCode.INVALID_TIMESTAMP
    log.config = LogConfig()
    log.produced.append(memoryview(with_header(bytes(stamped), max_timestamp=NOW + 10 * DAY_MS)), 0, NOW)
    assert [(batch_header.max_timestamp, batch_header.is_log_append_time) for batch_header in stored(log)][
        1:
    ] == [(NOW, False)]
    log.close(clean=False)


@pytest.mark.parametrize("clean", [True, False])
def test_a_header_that_an_older_broker_stored_without_its_time_tells_the_first_ones(
    tmp_path: Path, clean: bool
) -> None:
    log = opened(tmp_path / "t-0")
    for number in range(3):
        times = NOW + 10 * number, NOW + 10 * number + 5
        batch = with_header(bytes(lying(-1, *times)), base_offset=2 * number, leader_epoch=0)
        log.append_as_follower(memoryview(batch), NOW)
    log.flush()
    for _ in range(2):
        found = offset_for_timestamp(log, NOW + 15, log.log_end_offset)
        assert found is not None
        assert (found.offset, found.timestamp) == (3, NOW + 15)
        latest = max_timestamp_offset(log)
        assert latest is not None
        assert latest.offset == 4
        assert [segment.largest_timestamp_ms() for segment in log.segments] == [NOW + 20]
        log.close(clean=clean)
        log = PartitionLog.open(
            tmp_path / "t-0", LogConfig(), clean_shutdown=clean, recovery_point=6, now_ms=NOW
        )
    log.close(clean=False)


def test_followers_look_at_no_record(tmp_path: Path) -> None:
    """The leader's log is authoritative; a follower must not refuse it."""
    log = opened(tmp_path / "t-0")
    batch = make_batch(2)
    batch[-1] ^= 0xFF
    broken = with_header(bytes(batch), leader_epoch=0)
    log.append_as_follower(memoryview(broken), NOW)
    assert log.log_end_offset == 2
    with pytest.raises(KafkaError):
        list(decode_records(broken))
    log.close(clean=False)
