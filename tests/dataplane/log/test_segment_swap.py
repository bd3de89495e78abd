"""Compacted segments swapped into a log: what readers see, and what a crash after any step leaves."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from ottla.dataplane.log import LogConfig, PartitionLog
from ottla.dataplane.log.segments.descriptors import FileCache
from ottla.dataplane.log.segments.segment import Segment
from ottla.dataplane.log.timestamps import offset_for_timestamp
from ottla.protocol.errors import KafkaError
from ottla.protocol.records.record_batch import walk_batches
from tests.dataplane.log.batches import make_batch

NOW = 10_000
CONFIG = LogConfig(segment_bytes=400, index_interval_bytes=100)
KEPT = (0, 3, 5, 9, 13, 15)
"""Offsets that the compaction of the tests keeps, of those below the active segment: the last ones of segments, too."""


def _open(folder: Path, *, recovery_point: int = 0, clean: bool = False) -> PartitionLog:
    return PartitionLog.open(folder, CONFIG, clean_shutdown=clean, recovery_point=recovery_point, now_ms=NOW)


def _filled(folder: Path) -> PartitionLog:
    log = _open(folder)
    for number in range(18):
        log.produced.append(memoryview(make_batch(1, b"%d" % number * 33, timestamp=number)), 1, NOW)
    log.flush()
    return log


def _offsets(log: PartitionLog) -> list[int]:
    offsets, offset = [], log.log_start_offset
    while offset < log.log_end_offset:
        piece = log.read(offset, 1 << 20, log.log_end_offset, at_least_one=True)
        found = [header.base_offset for _, header in walk_batches(piece.read())]
        piece.release()
        if not found:
            break  # Nothing lies there: the last offsets were left out.
        offsets += found
        offset = found[-1] + 1
    return offsets


def _compact(log: PartitionLog, groups: list[list[Segment]]) -> list[Path]:
    """Write for each group of segments one .cleaned file with the batches of KEPT."""
    files = FileCache()
    paths = []
    for group in groups:
        base = group[0].base_offset
        aside = log.directory / "aside"
        aside.mkdir()
        fresh = Segment(aside, base, files)
        data = bytearray()
        for segment in group:
            raw = segment.path.read_bytes()
            for position, header in segment.walk(0, segment.base_offset):
                if header.base_offset in KEPT:
                    fresh.note_batch(header, header.last_offset, len(data), 100)
                    data += raw[position : position + header.size]
        fresh.path.write_bytes(data)
        fresh.finish()
        for path in (fresh.path, fresh.offset_index.path, fresh.time_index.path):
            os.rename(path, log.directory / (path.name + ".cleaned"))
        paths.append(log.directory / (fresh.path.name + ".cleaned"))
        aside.rmdir()
    return paths


def test_readers_see_what_is_left_and_a_slice_of_before_stays_whole(tmp_path: Path) -> None:
    log = _filled(tmp_path / "t-0")
    inactive = log.segments[:-1]
    assert len(inactive) >= 4
    active_base = log.segments[-1].base_offset
    before = log.read(4, 100, log.log_end_offset, at_least_one=True)
    log.old_segments.replace(inactive, _compact(log, [list(inactive[:2]), list(inactive[2:])]))
    assert [header.base_offset for _, header in walk_batches(before.read())] == [4]
    before.release()
    left = [offset for offset in KEPT if offset < active_base] + list(range(active_base, 18))
    assert _offsets(log) == left
    found = offset_for_timestamp(log, 6, log.log_end_offset)
    assert found is not None
    assert found.offset == 9
    log.produced.append(memoryview(make_batch()), 2, NOW)
    log.close(clean=False)
    for clean in (False, True):
        again = _open(tmp_path / "t-0", recovery_point=5, clean=clean)
        assert _offsets(again) == [*left, 18]
        again.close(clean=True)


@pytest.mark.parametrize("two", [False, True], ids=["into one", "into two"])
def test_a_crash_after_any_step_leaves_the_old_or_the_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, two: bool
) -> None:
    log = _filled(tmp_path / "t-0")
    inactive = list(log.segments[:-1])
    groups = [inactive[:2], inactive[2:]] if two else [inactive]
    active_base = log.segments[-1].base_offset
    states: list[Path] = []

    def copy() -> None:
        states.append(tmp_path / f"after-{len(states)}")
        shutil.copytree(tmp_path / "t-0", states[-1])

    real_rename = os.rename

    def rename(source: Path, target: Path) -> None:
        copy()
        real_rename(source, target)

    new = _compact(log, groups)
    monkeypatch.setattr(os, "rename", rename)
    monkeypatch.setattr(Path, "rename", lambda self, target: rename(self, target))
    log.old_segments.replace(inactive, new)
    copy()
    monkeypatch.undo()
    log.close(clean=False)
    whole = list(range(18))
    compacted = [offset for offset in whole if offset in KEPT or offset >= active_base]
    seen = []
    for state in states:
        again = _open(state, recovery_point=17)
        offsets = _offsets(again)
        # In between, segments whose successors hold nothing of theirs may still be the old ones.
        assert set(compacted) <= set(offsets)
        assert offsets == sorted(set(offsets))
        assert not list(state.glob("*.swap")) + list(state.glob("*.cleaned"))
        assert set(state.glob("*.deleted")) <= set(again.doomed)
        names = {path.stem for path in state.glob("*.log")}
        assert names >= {path.stem for path in state.glob("*.index")}
        seen.append(offsets)
        again.produced.append(memoryview(make_batch()), 1, NOW)
        again.close(clean=True)
        assert _offsets(_open(state, recovery_point=19, clean=True)) == [*offsets, 18]
    assert seen[0] == whole
    assert seen[-1] == compacted
    decided = next(number for number, offsets in enumerate(seen) if offsets != whole)
    assert all(offsets != whole for offsets in seen[decided:])


def test_a_crash_while_a_swap_is_finished_or_undone_is_mended_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = _filled(tmp_path / "t-0")
    inactive = list(log.segments[:-1])
    compacted = [*(offset for offset in KEPT if offset < log.segments[-1].base_offset)]
    for path in _compact(log, [inactive]):
        for kind in (".log", ".index", ".timeindex"):
            stem = path.name.split(".")[0]
            (log.directory / f"{stem}{kind}.cleaned").rename(log.directory / f"{stem}{kind}.swap")
    log.close(clean=False)
    (tmp_path / "t-0" / "offset-gaps").touch()
    steps = 0
    unlink, rename = Path.unlink, Path.rename
    while True:
        state = tmp_path / f"crash-{steps}"
        shutil.copytree(tmp_path / "t-0", state)
        left = steps

        def step(real: object, *args: object, **kwargs: object) -> object:
            nonlocal left
            if left == 0:
                raise InterruptedError
            left -= 1
            return real(*args, **kwargs)  # type: ignore[operator]

        with monkeypatch.context() as patched:
            patched.setattr(Path, "unlink", lambda *a, **k: step(unlink, *a, **k))
            patched.setattr(Path, "rename", lambda *a, **k: step(rename, *a, **k))
            try:
                _open(state, recovery_point=17).close(clean=False)
                done = True
            except (InterruptedError, KafkaError):
                done = False
        again = _open(state, recovery_point=17)
        assert _offsets(again)[: len(compacted)] == compacted
        again.close(clean=False)
        shutil.rmtree(state)
        if done:
            break
        steps += 1
    assert steps > 5


def test_what_does_not_fit_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    log = _filled(tmp_path / "t-0")
    first, second, third, *_ = log.segments
    files = _compact(log, [[second]])
    for old, new in (
        ([log.segments[-1]], files),
        ([first, third], files),
        ([third], files),
        ([second], []),
        ([second], [files[0].with_suffix("")]),
        ([], files),
    ):
        with pytest.raises(ValueError, match=r"\S"):
            log.old_segments.replace(old, new)
    log.advance_log_start_offset(second.base_offset)
    with pytest.raises(ValueError, match="any more"):
        log.old_segments.replace([first], files)
    assert _offsets(log) == list(range(second.base_offset, 18))
    log.old_segments.replace([second], files)
    log.close(clean=True)


def test_a_follower_keeps_the_gaps_of_its_leader_through_a_crash(tmp_path: Path) -> None:
    log = _open(tmp_path / "t-0")
    for offset in (0, 7, 8, 20):
        batch = make_batch(1, base_offset=offset, leader_epoch=1)
        log.append_as_follower(memoryview(batch), NOW)
    log.close(clean=False)
    again = _open(tmp_path / "t-0")
    assert _offsets(again) == [0, 7, 8, 20]
    again.truncation.truncate_to(12)
    assert again.log_end_offset == 12
    assert _offsets(again)[-1] == 8
    again.close(clean=True)
    assert again.recovery_point == 12
    for clean in (True, False):
        cut = _open(tmp_path / "t-0", recovery_point=12, clean=clean)
        assert (cut.log_end_offset, _offsets(cut)) == (12, [0, 7, 8])
        cut.close(clean=True)
    cut = _open(tmp_path / "t-0", recovery_point=12, clean=True)
    cut.append_as_follower(memoryview(make_batch(1, base_offset=12, leader_epoch=2)), NOW)
    assert _offsets(cut) == [0, 7, 8, 12]
    cut.close(clean=True)
