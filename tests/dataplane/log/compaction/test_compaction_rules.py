"""Rules of compaction: cleanable segments, merged segments, the map's capacity, and reads across the remaining gaps."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.dataplane.log import LogConfig, PartitionLog
from ottla.dataplane.log.compaction.grouping import SegmentSizes, group
from ottla.dataplane.log.compaction.offset_map import SLOT_BYTES, OffsetMap
from ottla.dataplane.log.compaction.throttle import CompactionThrottle
from ottla.dataplane.log.timestamps import offset_for_timestamp
from ottla.dataplane.storage.cleaning_choice import (
    LogFacts,
    SegmentFacts,
    dirty_range,
    filthiest,
    rests,
    worth_cleaning,
)
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.compression import Compression
from ottla.protocol.records.record import ControlType, encode_batch
from ottla.protocol.settings.config_key import LONG_MAX
from tests import java

from .histories import NOW_MS, RETENTION_MS, History, Producer, clean, job_for, look


def facts(
    checkpoint: int | None = None,
    *,
    stable: int = 350,
    held: int | None = None,
    start: int = 0,
    ratio: float = 0.5,
    min_lag_ms: int = 0,
    max_lag_ms: int = LONG_MAX,
) -> LogFacts:
    """Return segments of 100 offsets and 10 bytes; the record at offset n has time n. The active one starts at 300."""
    return LogFacts(
        segments=[SegmentFacts(base, 10, base, base + 99) for base in (0, 100, 200, 300)],
        log_start_offset=start,
        log_end_offset=350,
        last_stable_offset=stable,
        held_from=held,
        high_watermark=stable,
        checkpoint=checkpoint,
        min_cleanable_ratio=ratio,
        min_lag_ms=min_lag_ms,
        max_lag_ms=max_lag_ms,
    )


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        (facts(), (0, 300, 1.0, False, False)),
        (facts(200), (200, 300, 1 / 3, False, False)),
        (facts(stable=250), (0, 200, 1.0, False, False)),
        (facts(200, stable=120), (200, 200, 0.0, False, False)),
        (facts(held=250), (0, 200, 1.0, False, False)),
        (facts(held=250, max_lag_ms=700), (0, 200, 1.0, True, False)),
        (facts(held=340, stable=250), (0, 200, 1.0, False, False)),
        (facts(200, held=0, max_lag_ms=700), (200, 200, 0.0, False, False)),
        (facts(300), (300, 300, 0.0, False, False)),
        (facts(400), (300, 300, 0.0, False, True)),
        (facts(50, start=120), (120, 300, 2 / 3, False, True)),
        (facts(min_lag_ms=750), (0, 200, 1.0, False, False)),
        (facts(min_lag_ms=950), (0, 0, 0.0, False, False)),
        (facts(200, max_lag_ms=700), (200, 300, 1 / 3, True, False)),
        (facts(200, max_lag_ms=900), (200, 300, 1 / 3, False, False)),
    ],
)
def test_what_may_be_cleaned(log: LogFacts, expected: tuple[int, int, float, bool, bool]) -> None:
    assert tuple(dirty_range(log, now_ms=1000)) == expected


def test_the_dirtiest_that_is_dirty_enough() -> None:
    logs = [facts(100), facts(), facts(200, ratio=0.1), facts(300)]
    looked_at = [(log, dirty_range(log, 1000)) for log in logs]
    assert filthiest(looked_at) == 1
    assert filthiest([looked_at[2], looked_at[3]]) == 0
    assert filthiest([looked_at[3], (facts(200), dirty_range(facts(200), 1000))]) is None


@given(
    st.sampled_from([None, 0, 50, 100, 200, 300, 400]),
    st.sampled_from([120, 250, 350]),
    st.sampled_from([None, 0, 250]),
    st.sampled_from([0.1, 0.5, 1.0]),
    st.sampled_from([0, 1, 500]),
    st.sampled_from([LONG_MAX, 700, 100_000]),
    st.integers(0, 200_000),
    st.integers(0, 200_000),
)
def test_time_does_not_make_a_log_at_rest_worth_cleaning(
    checkpoint: int | None,
    stable: int,
    held: int | None,
    ratio: float,
    min_lag_ms: int,
    max_lag_ms: int,
    now_ms: int,
    later_ms: int,
) -> None:
    log = facts(
        checkpoint, stable=stable, held=held, ratio=ratio, min_lag_ms=min_lag_ms, max_lag_ms=max_lag_ms
    )
    if rests(log, dirty_range(log, now_ms)):
        assert not worth_cleaning(dirty_range(log, now_ms + later_ms), ratio)


def test_an_idle_log_comes_to_rest() -> None:
    for log in (facts(300), facts(200), facts(200, stable=120, max_lag_ms=700)):
        assert rests(log, dirty_range(log, 1000))
    for log in (
        facts(),
        facts(400),
        facts(200, max_lag_ms=900),
        facts(300, held=250),
        facts(300, min_lag_ms=1),
    ):
        assert not rests(log, dirty_range(log, 1000))


_SIZES = st.tuples(st.integers(1, 2**30), st.integers(0, 60), st.integers(0, 12), st.integers(0, 12))


@given(st.lists(_SIZES, min_size=1, max_size=30))
def test_groups_are_neighbours_within_bounds(sizes: list[tuple[int, int, int, int]]) -> None:
    segments, offset = [], 0
    for span, *rest in sizes:
        segments.append(SegmentSizes(offset, *rest))
        offset += span
    groups = group(segments, offset, segment_bytes=100, index_bytes=20)
    assert [segment for members in groups for segment in members] == segments
    ends = [*(members[0].base_offset for members in groups[1:]), offset]
    for members, end in zip(groups, ends, strict=True):
        assert len(members) == 1 or sum(segment.size for segment in members) <= 100
        assert len(members) == 1 or sum(segment.offset_index_size for segment in members) <= 20
        if len(members) > 1 and members[-1].size:
            assert end - 1 - members[0].base_offset < 2**31


@given(st.lists(st.binary(max_size=3), max_size=300))
def test_a_map_is_a_dict_until_it_is_full(keys: list[bytes]) -> None:
    offsets, model = OffsetMap(0, 0.1), {}
    most = int(1024 * 0.1)
    for offset, key in enumerate(keys):
        if not offsets.put(key, offset):
            assert offsets.full
            assert len(model) == most
            break
        model[key] = offset
    assert {key: offsets.get(key) for key in keys} == {key: model.get(key, -1) for key in keys}
    assert SLOT_BYTES == 24


def test_the_throttle_waits_for_what_was_spent_too_fast() -> None:
    now, slept = [0.0], []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    throttle = CompactionThrottle(1000, lambda: now[0], sleep)
    for _ in range(10):
        throttle.spent(500)
        now[0] += 0.1
    assert 3.5 < now[0] + sum(slept) - sum(slept) <= 5.5
    assert slept


@pytest.mark.parametrize("codec", Compression)
def test_a_compacted_topic_takes_no_record_without_a_key(tmp_path: Path, codec: Compression) -> None:
    for policy, refused in (("delete", False), ("compact", True), ("compact,delete", True)):
        log = PartitionLog.open(
            tmp_path / policy,
            LogConfig(cleanup_policy=policy),
            clean_shutdown=False,
            recovery_point=0,
            now_ms=NOW_MS,
        )
        good = encode_batch([(b"k", b"v", NOW_MS), (b"", None, NOW_MS)], compression=codec)
        bad = encode_batch([(b"k", b"v", NOW_MS), (None, b"v", NOW_MS)], compression=codec)
        log.produced.append(memoryview(bytearray(good)), 0, NOW_MS)
        if refused:
            with pytest.raises(KafkaError, match="no key") as raised:
                log.produced.append(memoryview(bytearray(bad)), 0, NOW_MS)
            assert raised.value.code is ErrorCode.INVALID_RECORD
        else:
            log.produced.append(memoryview(bytearray(bad)), 0, NOW_MS)
        assert log.log_end_offset == (2 if refused else 4)
        log.close(clean=False)


def _with_gaps(folder: Path) -> History:
    """Return a log of keys with few remaining records, a tombstone, an aborted transaction, and two producers."""
    history = History(folder)
    aborting = Producer(5, 0, transactional=True)
    for number in range(60):
        history.write(
            [(b"key-%d" % (number % 3), b"%d" % number), (b"once-%d" % number, b"x" * 20)],
            Producer(number % 2, 0),
            list(Compression)[number % 5],
            timestamp_ms=NOW_MS + 10 * number,
        )
    history.write([(b"key-0", None)], timestamp_ms=NOW_MS + 700)
    history.write([(b"key-1", b"aborted")], aborting)
    history.end(aborting, ControlType.ABORT)
    for number in range(40):
        history.write([(b"later", b"y" * 40)], timestamp_ms=NOW_MS + 1000 + number)
    return history


def test_reading_over_gaps(tmp_path: Path) -> None:
    history = _with_gaps(tmp_path / "t-0")
    log = history.log
    clean(log, job_for(log, 0))
    seen = look(log)
    kept = sorted(seen.records)
    assert len(kept) < log.log_end_offset - 40
    for offset in range(log.log_end_offset):
        piece = log.read(offset, 1, log.log_end_offset, at_least_one=True)
        assert piece.size > 0, f"something follows {offset}"
        piece.release()
    for timestamp in range(NOW_MS - 1, NOW_MS + 1100, 7):
        expected = next((o for o in kept if seen.records[o].timestamp_ms >= timestamp), None)
        found = offset_for_timestamp(log, timestamp, log.log_end_offset)
        assert (None if found is None else found.offset) == expected
        if found is not None:
            assert found.timestamp == seen.records[found.offset].timestamp_ms
    log.close(clean=True)
    reopened = PartitionLog.open(
        log.directory, LogConfig(), clean_shutdown=True, recovery_point=0, now_ms=NOW_MS
    )
    assert look(reopened) == seen
    assert reopened.truncation.truncate_to(kept[3] + 1) is None
    assert max(look(reopened).records) <= kept[3]
    reopened.close(clean=False)


@pytest.mark.java
@java.needs_java
@pytest.mark.timeout(300)
def test_kafka_reads_what_is_left(tmp_path: Path) -> None:
    history = _with_gaps(tmp_path / "t-0")
    log = history.log
    clean(log, job_for(log, 0))
    seen = look(log)
    log.close(clean=True)
    logs = ",".join(str(path) for path in sorted(log.directory.glob("*.log")))
    dump = "org.apache.kafka.tools.DumpLogSegments"
    text = java.run(dump, "--files", logs, "--deep-iteration", "--print-data-log")
    lines = [line for line in text.splitlines() if line.startswith("| offset:")]
    offsets = [int(line.split()[2]) for line in lines]
    assert sorted(seen.records.keys() | seen.markers.keys()) == offsets
    assert "isvalid: false" not in text
    horizons = [line for line in text.splitlines() if str(NOW_MS + RETENTION_MS) in line]
    assert len(horizons) == 1, "the batch with the tombstone"
    indexes = ",".join(str(path) for path in sorted(log.directory.glob("*index")))
    text = java.run(dump, "--files", indexes, "--index-sanity-check")
    assert "mismatch" not in text.lower()
    text = java.run(dump, "--files", indexes, "--verify-index-only")
    assert "mismatch" not in text.lower()
    assert "out of order" not in text
