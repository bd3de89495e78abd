"""The segments that retention drops, compared with a brute-force model, and the log's state afterwards."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.dataplane.log import LogConfig, PartitionLog, durability
from ottla.dataplane.log.composed import append_marker
from ottla.dataplane.log.producers.producer_snapshot import snapshot_path
from ottla.dataplane.log.retention import KEEP_ALL, Hold, segments_to_drop
from ottla.dataplane.log.timestamps import max_timestamp_offset, offset_for_timestamp
from ottla.dataplane.storage.log_upkeep import LogUpkeep
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.record_batch import TRANSACTIONAL_FLAG
from tests.dataplane.log.batches import make_batch
from tests.dataplane.log.held_replicas import Held, holds_of

NOW = 1_000_000


@dataclass(frozen=True)
class Stored:
    """A segment of the model."""

    base_offset: int
    size: int
    largest_ms: int
    last_write_ms: int = NOW

    def largest_timestamp_ms(self) -> int:
        return self.largest_ms

    def written_ms(self) -> int:
        return self.last_write_ms


def _by_brute_force(
    segments: list[Stored], config: LogConfig, start: int, end: int, watermark: int, now_ms: int
) -> int:
    """Apply the rules one after the other, each to the segments that the previous one left."""
    ends = [segment.base_offset for segment in segments[1:]] + [end]
    left = list(zip(segments, ends, strict=True))

    def first_may_go() -> bool:
        return bool(left) and left[0][1] <= watermark and not (len(left) == 1 and left[0][0].size == 0)

    while first_may_go() and len(left) > 1 and left[0][1] <= start:
        left.pop(0)
    if "delete" in config.cleanup_policy.split(","):
        if config.retention_bytes != -1:
            while first_may_go() and sum(segment.size for segment, _ in left[1:]) >= config.retention_bytes:
                left.pop(0)
        if config.retention_ms != -1:
            while first_may_go() and left[0][0].largest_ms < now_ms - config.retention_ms:
                left.pop(0)
    return len(segments) - len(left)


@st.composite
def _logs(draw: st.DrawFn) -> tuple[list[Stored], int]:
    offset, segments = draw(st.integers(0, 5)), []
    for _ in range(draw(st.integers(1, 6))):
        size = draw(st.integers(0, 3)) * 100
        segments.append(Stored(offset, size, draw(st.integers(NOW - 50, NOW + 20))))
        offset += draw(st.integers(1, 10))
    return segments, offset if segments[-1].size else segments[-1].base_offset


@given(
    _logs(),
    st.sampled_from(["delete", "compact", "compact,delete", "delete,compact"]),
    st.sampled_from([-1, 0, 10, 30, 2**62]),
    st.sampled_from([-1, 0, 100, 250, 500, 2**40]),
    st.integers(0, 70),
    st.integers(0, 70),
)
def test_the_rules_agree_with_brute_force(
    log: tuple[list[Stored], int], policy: str, ms: int, size: int, start: int, watermark: int
) -> None:
    segments, end = log
    config = LogConfig(cleanup_policy=policy, retention_ms=ms, retention_bytes=size)
    start, watermark = min(start, end), min(watermark, end)
    going = segments_to_drop(
        segments,
        config,
        log_start_offset=start,
        log_end_offset=end,
        upper_bound=watermark,
        now_ms=NOW,
    )
    assert going == _by_brute_force(segments, config, start, end, watermark, NOW)


@given(
    _logs(),
    st.sampled_from(["delete", "compact", "compact,delete"]),
    st.sampled_from([-1, 0, 10, 30]),
    st.sampled_from([-1, 0, 100, 250, 500]),
    st.integers(0, 70),
    st.integers(0, 70),
    st.integers(0, 70),
    st.integers(0, 60),
)
def test_a_hold_keeps_records_from_its_offset_on_and_no_others(
    log: tuple[list[Stored], int],
    policy: str,
    ms: int,
    size: int,
    start: int,
    watermark: int,
    needed: int,
    limit_ms: int,
) -> None:
    """The segments that go with a hold are: those that go without it, up to the first that is held, and at least those
    below the log start. A longer limit keeps no fewer segments, and none keeps fewer than no hold."""
    segments, end = log
    config = LogConfig(cleanup_policy=policy, retention_ms=ms, retention_bytes=size)
    start, watermark = min(start, end), min(watermark, end)

    def going(hold: Hold | None) -> int:
        return segments_to_drop(
            segments,
            config,
            log_start_offset=start,
            log_end_offset=end,
            upper_bound=watermark,
            now_ms=NOW,
            hold=hold,
        )

    ends = [segment.base_offset for segment in segments[1:]] + [end]
    alone, kept = going(None), going(KEEP_ALL)
    assert kept == _by_brute_force(segments, LogConfig(cleanup_policy="compact"), start, end, watermark, NOW)
    read = sum(segment_end <= needed for segment_end in ends)
    assert going(Hold(needed, float("inf"))) == max(kept, min(alone, read))
    limited = going(Hold(needed, limit_ms))
    assert max(kept, min(alone, read)) <= limited <= alone
    assert going(Hold(needed, limit_ms + 5)) <= limited
    assert going(Hold(end, limit_ms)) == alone


def _going(
    segments: list[Stored], hold: Hold, now_ms: int, *, retention_ms: int = -1, retention_bytes: int = -1
) -> int:
    return segments_to_drop(
        segments,
        LogConfig(retention_ms=retention_ms, retention_bytes=retention_bytes),
        log_start_offset=0,
        log_end_offset=10 * len(segments),
        upper_bound=10 * len(segments),
        now_ms=now_ms,
        hold=hold,
    )


@pytest.mark.parametrize(
    ("timestamp", "over_ms"),
    [(5_000, 105_000), (-1_000_000, 6_000), (20_000, 120_000)],
    ids=["now", "long ago", "a little ahead"],
)
def test_the_limit_of_age_counts_from_expiry_but_not_before_the_write(timestamp: int, over_ms: int) -> None:
    """Records of long ago would be gone with the next check after their write. They are held from then on."""
    segments = [Stored(0, 100, timestamp, 6_000), Stored(10, 100, 1 << 50)]
    hold = Hold(0, 1_000)
    assert _going(segments, hold, over_ms + 1_000, retention_ms=100_000) == 0
    assert _going(segments, hold, over_ms + 1_001, retention_ms=100_000) == 1


def test_the_limit_of_size_counts_from_the_write_that_made_the_log_too_large() -> None:
    """A steady log writes 100 bytes a second. Timestamps do not matter: these are far ahead."""
    segments = [Stored(10 * n, 1_000, 1 << 60, 10_000 * (n + 1)) for n in range(6)]
    hold = Hold(0, 5_000)
    # At 35 s there are 2,500 bytes after the first segment.
    assert _going(segments, hold, 40_000, retention_bytes=2_500) == 0
    assert _going(segments, hold, 40_001, retention_bytes=2_500) == 1
    assert _going(segments, hold, 50_001, retention_bytes=2_500) == 2
    assert _going(segments, hold, 60_001, retention_bytes=2_500) == 3
    assert _going(segments, hold, 90_001, retention_bytes=2_500) == 3


def test_a_write_that_is_dated_far_ahead_holds_no_longer_than_the_limit() -> None:
    segments = [Stored(0, 100, 0, 1 << 50), Stored(10, 100, 0, 1 << 50)]
    assert _going(segments, Hold(0, 1_000), 50_000, retention_bytes=0) == 2
    near = [Stored(0, 100, 0, 50_900), Stored(10, 100, 0, 50_900)]
    assert _going(near, Hold(0, 1_000), 50_000, retention_bytes=0) == 0, (
        "a clock may have been set back a little"
    )


@given(_logs(), st.sampled_from([0, 100, 250, 500]), st.randoms(use_true_random=False))
def test_the_moment_of_size_lies_between_the_write_of_the_segment_and_the_last_one(
    log: tuple[list[Stored], int], size: int, chance: Random
) -> None:
    dated = sorted(chance.randrange(NOW) for _ in log[0])
    segments = [
        Stored(segment.base_offset, segment.size, segment.largest_ms, ms)
        for segment, ms in zip(log[0], dated, strict=True)
    ]

    def going(hold: Hold | None) -> int:
        return segments_to_drop(
            segments,
            LogConfig(retention_bytes=size),
            log_start_offset=0,
            log_end_offset=log[1],
            upper_bound=log[1],
            now_ms=NOW,
            hold=hold,
        )

    alone = going(None)
    assert going(Hold(0, NOW - dated[-1] - 1)) == alone
    for index in range(alone):
        assert going(Hold(0, NOW - dated[index])) <= index


def _log(folder: Path, config: LogConfig, *, start: int = 0, clean: bool = False) -> PartitionLog:
    return PartitionLog.open(
        folder, config, clean_shutdown=clean, recovery_point=0, log_start_offset=start, now_ms=NOW
    )


@dataclass(eq=False)
class Replica:
    """A replica, as the upkeep of logs sees it, which counts the moves of its log's start."""

    log: PartitionLog
    high_watermark: int
    told: int = 0

    def log_start_moved(self) -> None:
        """Count a move."""
        self.told += 1


def _append(log: PartitionLog, count: int, timestamp: int = NOW, **fields: object) -> None:
    for _ in range(count):
        batch = make_batch(1, b"x" * 40, timestamp=timestamp, **fields)  # type: ignore[arg-type]
        log.produced.append(memoryview(batch), 3, NOW)


def test_a_log_whose_records_are_all_over_goes_on_empty_behind_them(tmp_path: Path) -> None:
    config = LogConfig(segment_bytes=400, retention_ms=1000)
    log = _log(tmp_path / "t-0", config)
    _append(log, 10)
    assert log.old_segments.retain(10, NOW + 1000) == 0, "as old as allowed is not too old"
    assert log.old_segments.retain(9, NOW + 1001) == 3, "the last segment reaches above the high watermark"
    assert log.log_start_offset == log.segments[0].base_offset == 9
    assert log.old_segments.retain(10, NOW + 1001) == 1
    assert (log.log_start_offset, log.log_end_offset, log.size) == (10, 10, 0)
    assert log.leader_epochs.entries == ((3, 10),)
    assert log.old_segments.retain(10, NOW + 9000) == 0
    with pytest.raises(KafkaError) as caught:
        log.read(9, 100, 10, at_least_one=True)
    assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
    found = offset_for_timestamp(log, 0, 10), max_timestamp_offset(log)
    assert found == (None, None)
    _append(log, 1)
    log.close(clean=True)
    again = _log(tmp_path / "t-0", config, clean=True)
    assert (again.log_start_offset, again.log_end_offset) == (10, 11)
    again.close(clean=True)


def test_nothing_of_a_transaction_goes_before_it_has_ended(tmp_path: Path) -> None:
    log = _log(tmp_path / "t-0", LogConfig(segment_bytes=250, retention_ms=1000))
    _append(log, 2)
    for sequence in range(4):
        _append(log, 1, attributes=TRANSACTIONAL_FLAG, producer=(7, 0, sequence))
    log.flush()
    assert log.old_segments.retain(6, NOW + 5000) == 1, "the segments before it"
    assert (log.log_start_offset, log.transactions.last_stable_offset(6)) == (2, 2)
    append_marker(log, 7, 0, commit=True, number=1, commit_index=1, leader_epoch=3, now_ms=NOW)
    assert log.old_segments.retain(6, NOW + 5000) == 0, "its marker may still be lost"
    log.flush()
    assert log.old_segments.retain(7, NOW + 5000) > 0
    assert log.log_start_offset > 2
    log.close(clean=False)


def test_a_timestamp_in_the_future_keeps_its_segment_and_those_behind(tmp_path: Path) -> None:
    log = _log(tmp_path / "t-0", LogConfig(segment_bytes=250, retention_ms=1000))
    _append(log, 2)
    _append(log, 1, NOW + 3_000_000)
    _append(log, 4)
    assert log.old_segments.retain(7, NOW + 5000) == 1
    assert log.log_start_offset == 2
    assert log.old_segments.retain(7, NOW + 3_002_000) == 3
    log.close(clean=False)


def test_a_producer_goes_on_after_all_it_wrote_is_gone(tmp_path: Path) -> None:
    config = LogConfig(segment_bytes=400, retention_ms=1000)
    for crash in (False, True):
        folder = tmp_path / f"t-{int(crash)}"
        log = _log(folder, config)
        for sequence in range(6):
            _append(log, 1, producer=(7, 0, sequence))
        for end in 6, 7:
            log.old_segments.retain(end, NOW + 5000)
            log.flush()
            assert log.old_segments.retain(end, NOW + 5000)
            if end == 6:
                _append(log, 1, producer=(7, 0, 6))
        log.flush()
        log.close(clean=not crash)
        again = _log(folder, config, clean=not crash)
        with pytest.raises(KafkaError) as caught:
            _append(again, 1, producer=(7, 0, 9))
        assert caught.value.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        _append(again, 1, producer=(7, 0, 7))
        _append(again, 1, producer=(8, 4, 55))
        again.close(clean=True)


def test_jitter_rolls_segments_earlier_but_never_late(tmp_path: Path) -> None:
    ages = set()
    for number in range(20):
        config = LogConfig(segment_ms=1000, segment_jitter_ms=500)
        log = _log(tmp_path / f"t-{number}", config)
        _append(log, 1)
        age = 0
        while len(log.segments) == 1:
            age += 50
            _append(log, 1, NOW + age)
        ages.add(age)
        log.close(clean=False)
    assert min(ages) > 500
    assert max(ages) <= 1050
    assert len(ages) > 3


def test_upkeep_flushes_what_is_only_kept_for_its_producers(tmp_path: Path) -> None:
    log = _log(tmp_path / "t-0", LogConfig(segment_bytes=250, retention_ms=1000))
    for sequence in range(9):
        _append(log, 1, NOW, producer=(7, 0, sequence))
    assert log.old_segments.retain(9, NOW + 2000) == 2
    assert not log.old_segments.awaits_flush, "the batches that stay are all that may be sent again"
    assert log.old_segments.retain(9, NOW + 2000) == 0
    assert log.old_segments.awaits_flush

    async def keep() -> None:
        pass

    asyncio.run(LogUpkeep(Held(Replica(log, 9)), holds_of(), keep, 1000, lambda: NOW + 2000).check())
    assert ([segment.base_offset for segment in log.segments], log.old_segments.awaits_flush) == ([9], False)
    log.close(clean=False)


def test_files_of_new_segments_are_not_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ext4 flushes a file that was cut to no bytes when it is closed, and the event loop closes full segments."""
    cut = []
    monkeypatch.setattr(os, "ftruncate", lambda fd, size: cut.append((fd, size)))
    log = _log(tmp_path / "t-0", LogConfig(segment_bytes=250))
    for sequence in range(9):
        _append(log, 1, NOW, producer=(7, 0, sequence))
    log.flush()
    assert len(log.segments) > 3
    log.close(clean=True)
    assert cut == []


def test_dropping_segments_renames_their_files_and_unlinks_none(tmp_path: Path) -> None:
    """Unlinking waits for a disk that discards blocks, and the event loop drops segments."""
    folder = tmp_path / "t-0"
    log = _log(folder, LogConfig(segment_bytes=250, retention_ms=1000))
    for sequence in range(9):
        _append(log, 1, NOW, producer=(7, 0, sequence))
    log.flush()
    inodes = {entry.inode() for entry in os.scandir(folder)}
    named = set(folder.glob("*.snapshot"))
    assert log.old_segments.retain(9, NOW + 2000)
    gone = named - set(folder.glob("*.snapshot"))
    assert gone
    assert inodes <= {entry.inode() for entry in os.scandir(folder)}
    assert {path.with_name(path.name + ".deleted") for path in gone} <= set(log.doomed)
    log.close(clean=False)


def test_upkeep_drops_at_once_and_unlinks_after_the_delay(tmp_path: Path) -> None:
    config = LogConfig(segment_bytes=250, retention_bytes=300, file_delete_delay_ms=1000)
    replicas: Held[Replica] = Held()
    for number in range(3):
        log = _log(tmp_path / f"t-{number}", config)
        _append(log, 100)
        replicas.add(Replica(log, 100))
    clock = [NOW]
    kept = []

    async def keep() -> None:
        kept.append(clock[0])

    upkeep = LogUpkeep(replicas, holds_of(), keep, 1000, lambda: clock[0])

    def doomed() -> int:
        return len(list(tmp_path.glob("*/*.deleted")))

    async def scenario() -> None:
        await upkeep.check()
        assert {replica.log.log_start_offset for replica in replicas} == {96}
        assert all(replica.told for replica in replicas)
        assert {len(replica.log.segments) for replica in replicas} == {2}
        before = doomed()
        assert before >= 3 * 48
        await upkeep.sweep()
        clock[0] += 999
        await upkeep.sweep()
        assert doomed() == before
        clock[0] += 1
        await upkeep.sweep()
        assert doomed() == 0
        assert kept == [NOW], "written down when they have moved, and not again"

    asyncio.run(scenario())
    for replica in replicas:
        replica.log.close(clean=False)


def test_files_that_a_dead_process_had_renamed_are_unlinked_after_the_delay(tmp_path: Path) -> None:
    config = LogConfig(segment_bytes=250, retention_bytes=300, file_delete_delay_ms=1000)
    dead = _log(tmp_path / "t-0", config)
    _append(dead, 100)
    assert dead.old_segments.retain(100, NOW)
    dead.close(clean=False)
    left = set(tmp_path.glob("*/*.deleted"))
    assert left
    log = _log(tmp_path / "t-0", config)
    clock = [NOW]

    async def keep() -> None:
        return

    upkeep = LogUpkeep(Held(Replica(log, 100)), holds_of(), keep, 1000, lambda: clock[0])

    asyncio.run(upkeep.sweep())
    assert set(tmp_path.glob("*/*.deleted")) == left
    clock[0] += 1000
    asyncio.run(upkeep.sweep())
    assert not set(tmp_path.glob("*/*.deleted"))
    log.close(clean=False)


def test_no_segment_goes_before_a_snapshot_that_was_written_during_a_flush_is_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The flush was past it, and counted it as flushed: after a power failure its producer was unknown."""
    log = _log(tmp_path / "t-0", LogConfig(segment_bytes=400, retention_ms=1000))
    for sequence in range(6):
        _append(log, 1, producer=(7, 0, sequence))
    log.roll(NOW)
    snapshot = snapshot_path(log.directory, log.log_end_offset)
    snapshot.unlink()  # As in a log that continues after a gap.
    flushed: set[int] = set()

    def watch(name: str) -> None:
        real = getattr(os, name)

        def noted(fd: int) -> None:
            real(fd)
            flushed.add(os.fstat(fd).st_ino)

        monkeypatch.setattr(os, name, noted)

    def sync_file(path: Path) -> None:
        if path == log.segment_list.active.path and not snapshot.exists():
            assert log.old_segments.retain(6, NOW + 5000) == 0  # The event loop does this meanwhile.
        real_sync(path)

    for name in ("fsync", "fdatasync"):
        watch(name)
    real_sync = durability.sync_file
    monkeypatch.setattr(durability, "sync_file", sync_file)
    log.flush()
    while not log.old_segments.retain(6, NOW + 5000):
        log.flush()
    assert snapshot.stat().st_ino in flushed
    log.close(clean=False)
