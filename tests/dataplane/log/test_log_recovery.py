"""A log's reaction to damage, full disks, retries across a restart, and limits."""

from __future__ import annotations

import random
import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ottla.dataplane.log import LogConfig, PartitionLog, RefusedRecords
from ottla.dataplane.log.timestamps import max_timestamp_offset, offset_for_timestamp
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.compression import Compression
from ottla.protocol.records.record import encode_batch
from ottla.protocol.records.record_batch import parse_header, walk_batches
from tests.dataplane.log.batches import make_batch

NOW = 10_000


def _open(
    folder: Path, config: LogConfig | None = None, *, clean: bool = False, recovery_point: int = 0
) -> PartitionLog:
    return PartitionLog.open(
        folder, config or LogConfig(), clean_shutdown=clean, recovery_point=recovery_point, now_ms=NOW
    )


def _append(log: PartitionLog, count: int = 1, payload: bytes = b"p" * 20, **fields: object) -> int:
    batch = make_batch(count, payload, **fields)  # type: ignore[arg-type]
    return log.produced.append(memoryview(batch), 1, NOW).first_offset


def _content(log: PartitionLog) -> bytes:
    content, offset = b"", log.log_start_offset
    while offset < log.log_end_offset:
        piece = log.read(offset, 1 << 20, log.log_end_offset, at_least_one=True)
        data = piece.read()
        piece.release()
        content += data
        offset = [header.next_offset for _, header in walk_batches(data)][-1]
    return content


def _refused(log: PartitionLog, batch: bytearray) -> ErrorCode:
    end = log.log_end_offset
    with pytest.raises(KafkaError) as caught:
        log.produced.append(memoryview(batch), 1, NOW)
    assert log.log_end_offset == end
    return caught.value.code


# New logs


@pytest.mark.parametrize("clean", [False, True])
def test_a_log_in_a_new_folder_is_like_one_in_an_empty_folder(tmp_path: Path, *, clean: bool) -> None:
    (tmp_path / "empty").mkdir()
    empty, new = (_open(tmp_path / name, clean=clean) for name in ("empty", "new"))
    for log in (empty, new):
        log.check()
        assert (log.log_start_offset, log.log_end_offset, log.recovery_point) == (0, 0, 0)
        assert [segment.base_offset for segment in log.segments] == [0]
        assert log.segments[0].path.exists()
        assert log.leader_epochs.entries == ()
        assert log.is_contiguous
        assert _append(log) == 0
    assert _content(empty) == _content(new)
    for log in (empty, new):
        log.close(clean=True)
    assert sorted(path.name for path in (tmp_path / "empty").iterdir()) == sorted(
        path.name for path in (tmp_path / "new").iterdir()
    )


def test_a_new_folder_where_records_had_been_flushed_is_a_loss(tmp_path: Path) -> None:
    with pytest.raises(KafkaError, match="no segment is left"):
        _open(tmp_path / "new", recovery_point=1)


# Damage


@example(seed=4720, flushed=9)  # a last offset delta that reaches over the recovery point
@example(seed=67158, flushed=11)  # the length of the last batch that was flushed: the cut came within it
@settings(max_examples=60)
@given(seed=st.integers(0, 2**32), flushed=st.integers(0, 12))
def test_spoiled_bytes_are_cut_off_above_the_recovery_point_and_refused_below(
    tmp_path_factory: pytest.TempPathFactory, seed: int, flushed: int
) -> None:
    chance = random.Random(seed)
    folder = tmp_path_factory.mktemp("log") / "t-0"
    log = _open(folder)
    starts = []
    for _ in range(12):
        starts.append(log.size)
        _append(log, payload=chance.randbytes(chance.randint(1, 300)))
    path = log.segments[0].path
    whole = path.read_bytes()
    log.close(clean=False)
    spoiled = chance.randrange(len(whole))
    data = bytearray(whole)
    data[spoiled] ^= 1 << chance.randrange(8)
    path.write_bytes(data)
    victim = max(number for number, start in enumerate(starts) if start <= spoiled)
    if spoiled - starts[victim] in range(12, 16):
        return  # The leader epoch is covered by no checksum.
    if victim < flushed:
        with suppress(KafkaError):  # A spoiled record needs a reader's CRC; a spoiled header is noticed here.
            log = _open(folder, recovery_point=flushed)
            assert log.log_end_offset == 12
            log.close(clean=False)
        assert path.read_bytes() == data, "flushed records are not cut"
        return
    log = _open(folder, recovery_point=flushed)
    assert log.log_end_offset == victim
    assert _content(log) == whole[: starts[victim]]
    assert path.stat().st_size == starts[victim]
    log.close(clean=False)


def test_missing_flushed_records_are_an_error(tmp_path: Path) -> None:
    log = _open(tmp_path / "t-0")
    for _ in range(5):
        _append(log)
    log.flush()
    path, size = log.segments[0].path, log.size
    log.close(clean=False)
    with path.open("r+b") as file:
        file.truncate(size * 3 // 5)
    for clean in (False, True):
        with pytest.raises(KafkaError, match="ends at offset 3, but all up to 5 had been flushed"):
            _open(tmp_path / "t-0", clean=clean, recovery_point=5)


def test_a_damaged_header_is_never_served(tmp_path: Path) -> None:
    log = _open(tmp_path / "t-0", LogConfig(segment_bytes=300))
    for _ in range(9):
        _append(log)
    path = log.segments[0].path
    data = bytearray(path.read_bytes())
    data[88 + 16] = 9
    path.write_bytes(data)
    with pytest.raises(KafkaError, match="is damaged at byte 88") as caught:
        log.read(2, 100, 9, at_least_one=True)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    log.close(clean=False)


@pytest.mark.parametrize("suffix", ["index", "timeindex"])
def test_lost_indexes_are_rebuilt(tmp_path: Path, suffix: str) -> None:
    config = LogConfig(segment_bytes=2000, index_interval_bytes=100)
    log = _open(tmp_path / "t-0", config)
    for number in range(60):
        _append(log, timestamp=number)
    content = _content(log)
    log.close(clean=True)
    for number, path in enumerate(sorted((tmp_path / "t-0").glob("*." + suffix))):
        if number % 2:
            path.unlink()
        else:
            path.write_bytes(path.read_bytes()[:-3])
    log = _open(tmp_path / "t-0", config, clean=True, recovery_point=60)
    assert _content(log) == content
    found = offset_for_timestamp(log, 33, 60)
    assert found is not None
    assert found.offset == 33
    log.close(clean=False)


# Disks that are full


@contextmanager
def _file_size_limit(size: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_fails_the_append_leaves_no_hole_and_is_survived(tmp_path: Path) -> None:
    log = _open(tmp_path / "t-0")
    _append(log, payload=b"a" * 5000)
    before = _content(log)
    with _file_size_limit(6000):
        assert _refused(log, make_batch(payload=b"b" * 5000)) is ErrorCode.KAFKA_STORAGE_ERROR
        assert log.segments[0].path.stat().st_size == len(before)
        assert _content(log) == before
    assert _append(log, payload=b"c" * 5000) == 1
    content = _content(log)
    log.close(clean=False)
    log = _open(tmp_path / "t-0")
    assert _content(log) == content
    log.close(clean=False)


def test_a_closed_log_refuses_everything(tmp_path: Path) -> None:
    log = _open(tmp_path / "t-0")
    log.close(clean=True)
    for call in (
        lambda: _append(log),
        lambda: log.read(0, 1, 1, at_least_one=True),
        log.flush,
        lambda: log.truncation.truncate_to(0),
    ):
        with pytest.raises(KafkaError, match="t-0 is closed"):
            call()


# Retries


@pytest.mark.parametrize("clean", [True, False])
def test_all_five_batches_in_flight_are_known_after_a_restart(tmp_path: Path, clean: bool) -> None:
    config = LogConfig(segment_bytes=250)
    log = _open(tmp_path / "t-0", config)
    for number in range(12):
        _append(log, producer=(7, 3, number))
    log.close(clean=clean)
    log = _open(tmp_path / "t-0", config, clean=clean, recovery_point=12 if clean else 0)
    for number in range(7, 12):
        again = make_batch(1, b"p" * 20, producer=(7, 3, number))
        result = log.produced.append(memoryview(again), 2, NOW)
        assert (result.first_offset, result.duplicate, result.size) == (number, True, 0)
    assert _refused(log, make_batch(producer=(7, 3, 14))) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert _refused(log, make_batch(producer=(7, 2, 12))) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert log.log_end_offset == 12
    log.close(clean=False)


def test_a_cut_forgets_the_batches_it_cut(tmp_path: Path) -> None:
    log = _open(tmp_path / "t-0", LogConfig(segment_bytes=250))
    for number in range(12):
        _append(log, producer=(7, 0, number))
    log.truncation.truncate_to(10)
    assert _append(log, producer=(7, 0, 10)) == 10
    log.truncation.truncate_to(2)
    assert _append(log, producer=(7, 0, 2)) == 2
    log.close(clean=False)


# Leader and follower


@settings(max_examples=30)
@given(
    st.lists(
        st.tuples(st.integers(1, 4), st.binary(max_size=200), st.integers(0, 3)), min_size=1, max_size=20
    )
)
def test_a_follower_holds_the_same_bytes(
    tmp_path_factory: pytest.TempPathFactory, batches: list[tuple[int, bytes, int]]
) -> None:
    folder = tmp_path_factory.mktemp("pair")
    config = LogConfig(message_timestamp_type="LogAppendTime", segment_bytes=700)
    leader, follower = _open(folder / "l-0", config), _open(folder / "f-0", LogConfig(segment_bytes=400))
    epoch = 0
    for count, payload, rise in batches:
        epoch += rise
        leader.produced.append(memoryview(make_batch(count, payload)), epoch, NOW)
    while follower.log_end_offset < leader.log_end_offset:
        piece = leader.read(follower.log_end_offset, 500, leader.log_end_offset, at_least_one=True)
        follower.append_as_follower(memoryview(bytearray(piece.read())), NOW)
        piece.release()
    assert _content(follower) == _content(leader)
    assert follower.leader_epochs.entries == leader.leader_epochs.entries
    assert all(header.max_timestamp == NOW for _, header in walk_batches(_content(leader)))
    leader.close(clean=False)
    follower.close(clean=False)


def test_a_follower_refuses_what_does_not_continue_or_is_damaged(tmp_path: Path) -> None:
    log = _open(tmp_path / "t-0")
    log.append_as_follower(memoryview(make_batch(3, base_offset=0, leader_epoch=1)), NOW)
    spoiled = make_batch(1, base_offset=3)
    spoiled[-1] ^= 1
    for batch, code in (
        (make_batch(1, base_offset=2), ErrorCode.INVALID_RECORD),
        (spoiled, ErrorCode.CORRUPT_MESSAGE),
        (make_batch(1, base_offset=3)[:-1], ErrorCode.CORRUPT_MESSAGE),
    ):
        with pytest.raises(KafkaError) as caught:
            log.append_as_follower(memoryview(batch), NOW)
        assert caught.value.code is code
        assert log.log_end_offset == 3
    log.close(clean=False)


# Limits and time


def test_limits_of_the_topic(tmp_path: Path) -> None:
    log = _open(tmp_path / "t-0", LogConfig(max_message_bytes=200, segment_bytes=1000))
    assert _refused(log, make_batch(payload=b"x" * 131, timestamp=NOW)) is ErrorCode.MESSAGE_TOO_LARGE
    large = make_batch(payload=b"x" * 2000, timestamp=NOW)
    assert _refused(log, large) is ErrorCode.MESSAGE_TOO_LARGE, (
        "upon which producers split, though no segment holds it"
    )
    assert _refused(log, make_batch(timestamp=NOW) * 20) is ErrorCode.RECORD_LIST_TOO_LARGE
    assert _append(log, payload=b"x" * 130, timestamp=NOW + 100) == 0
    log.close(clean=False)


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.LZ4])
def test_records_whose_timestamps_are_out_of_bounds_are_named(
    tmp_path: Path, compression: Compression
) -> None:
    bounds = {"message_timestamp_before_max_ms": 500, "message_timestamp_after_max_ms": 100}
    log = _open(tmp_path / "t-0", LogConfig(**bounds))  # type: ignore[arg-type]

    def refused(*ages: int) -> list[int]:
        batch = encode_batch([(None, b"v", NOW - age) for age in ages], compression=compression)
        with pytest.raises(RefusedRecords) as caught:
            log.produced.append(memoryview(bytearray(batch)), 1, NOW)
        assert caught.value.code is ErrorCode.INVALID_TIMESTAMP
        assert log.log_end_offset == 0
        return [number for number, _ in caught.value.records]

    assert refused(501) == [0]
    assert refused(-101) == [0]
    assert refused(0, 501, 500, -100, -101, 900) == [1, 4, 5]
    log.config = LogConfig(message_timestamp_after_max_ms=100)
    assert refused(9000, -5000, 0) == [1]
    log.config = LogConfig(**bounds, message_timestamp_type="LogAppendTime")  # type: ignore[arg-type]
    batch = encode_batch([(None, b"v", 0)], compression=compression)
    assert log.produced.append(memoryview(bytearray(batch)), 1, NOW).max_timestamp == NOW
    log.close(clean=False)


def test_a_duplicate_is_known_before_its_timestamp_is_judged(tmp_path: Path) -> None:
    """Between two attempts of a batch the clock may jump, or the topic's limits may change: it is in the log, and an
    error would deny that.
    """
    log = _open(tmp_path / "t-0", LogConfig(message_timestamp_after_max_ms=100))
    batch = make_batch(timestamp=NOW, producer=(9, 0, 0))
    first = log.produced.append(memoryview(bytearray(batch)), 1, NOW)
    again = log.produced.append(memoryview(bytearray(batch)), 1, NOW - 5_000_000)
    log.config = LogConfig(max_message_bytes=10, message_timestamp_after_max_ms=100)
    smaller_limit = log.produced.append(memoryview(bytearray(batch)), 1, NOW)
    assert again.duplicate
    assert again.first_offset == first.first_offset
    assert smaller_limit == again
    assert log.log_end_offset == 1
    log.close(clean=False)


def test_segments_roll_by_time(tmp_path: Path) -> None:
    log = _open(tmp_path / "t-0", LogConfig(segment_ms=1000))
    for timestamp in (0, 1000, 1001, 1500, 2002):
        _append(log, timestamp=timestamp)
    assert [segment.base_offset for segment in log.segments] == [0, 2, 4]
    log.close(clean=False)


@pytest.mark.parametrize("compression", list(Compression))
def test_timestamps_are_found_within_a_batch(tmp_path: Path, compression: Compression) -> None:
    log = _open(tmp_path / "t-0")
    for start in (1000, 2000, 1500):
        records = [(None, b"v", start + step) for step in (0, 5, 9, 3)]
        log.produced.append(memoryview(bytearray(encode_batch(records, compression=compression))), 4, NOW)
    for asked, expected in (
        (0, (1000, 0, 4)),
        (1004, (1005, 1, 4)),
        (1010, (2000, 4, 4)),
        (2006, (2009, 6, 4)),
    ):
        assert offset_for_timestamp(log, asked, 12) == expected
    assert offset_for_timestamp(log, 2010, 12) is None
    assert offset_for_timestamp(log, 2000, 4) is None
    assert max_timestamp_offset(log) == (2009, 6, 4)
    assert max_timestamp_offset(log, 4) == (1009, 2, 4)
    log.close(clean=False)


def test_log_append_time_is_stamped_with_a_right_crc(tmp_path: Path) -> None:
    log = _open(tmp_path / "t-0", LogConfig(message_timestamp_type="LogAppendTime"))
    batch = make_batch(2, timestamp=5, producer=(1, 0, 0))
    original = log.produced.append(memoryview(bytearray(batch)), 1, NOW)
    assert original.append_time_ms == NOW
    assert parse_header(_content(log)).is_log_append_time
    again = log.produced.append(memoryview(bytearray(batch)), 1, NOW + 50)
    assert (again.duplicate, again.append_time_ms) == (True, NOW)
    log.close(clean=False)


# Threads


def test_flushing_beside_appends_and_cuts_never_claims_too_much(tmp_path: Path) -> None:
    log = _open(tmp_path / "t-0", LogConfig(segment_bytes=2000))
    stop, failures = threading.Event(), []

    def flush_on() -> None:
        try:
            while not stop.wait(0.0005):
                log.flush()
        except BaseException as error:
            failures.append(error)

    flusher = threading.Thread(target=flush_on)
    flusher.start()
    chance = random.Random(3)
    for _ in range(400):
        _append(log)
        if chance.random() < 0.05:
            log.truncation.truncate_to(max(0, log.log_end_offset - chance.randint(1, 40)))
            assert log.recovery_point <= log.log_end_offset
    stop.set()
    flusher.join()
    assert not failures
    assert log.flush() == log.log_end_offset
    log.close(clean=False)
    reopened = _open(tmp_path / "t-0", LogConfig(segment_bytes=2000), recovery_point=log.recovery_point)
    assert reopened.log_end_offset == log.log_end_offset
    reopened.close(clean=False)
