"""A start that reads only headers follows the death of a process alone.

After a loss of power, a start that was cut short, or a refused write, all records are checked. Each mutant lacks one
safeguard, and one of the scenes finds it.
"""

from __future__ import annotations

import errno
import gc
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from ottla.dataplane.log import LogConfig, PartitionLog, page_cache
from ottla.dataplane.log.durable_files import write_atomically
from ottla.dataplane.log.recovery import recovery, segment_scan
from ottla.dataplane.storage import page_cache_note
from ottla.dataplane.storage.directory import LogDirectory
from ottla.dataplane.storage.page_cache_note import PageCacheNote
from ottla.protocol.errors import KafkaError
from ottla.protocol.records.record_batch import compute_crc
from tests.dataplane.log.batches import make_batch
from tests.simulation.machine.rooms import DATA, ENOUGH_S, Room, open_data

CONFIG = LogConfig(segment_bytes=100_000, index_interval_bytes=1_000)
LOGS, BATCHES, PAYLOAD = 8, 4, b"x" * 3000
SEEDS = 100

_open = partial(open_data, CONFIG)
_take, _write_note = PageCacheNote.take, PageCacheNote.write


@pytest.fixture(autouse=True)
def short_tail() -> Iterator[None]:
    """Let recovery read only the last batch of each segment whole, since the segments are small."""
    with patch.object(segment_scan, "_TAIL_BYTES", 1):
        yield


def _append(directory: LogDirectory, count: int = BATCHES, flushed: int = BATCHES - 2) -> None:
    """Append batches to all logs, and flush the first `flushed`. No checkpoint says so."""
    for number in range(count):
        for index in range(LOGS):
            log = directory.create("flights", index, bytes(16), CONFIG, now_ms=0)
            if number and number == flushed:
                log.flush()
            log.produced.append(memoryview(make_batch(payload=PAYLOAD)), 1, 1_000)


def _write() -> None:
    _append(_open())


class Found:
    """The result of a start: the log ends, whether any log was recovered by its headers, and whether any batch is
    damaged."""

    def __init__(self) -> None:
        headers_alone: list[bool] = []
        recover = recovery._recover

        def observed(*args: Any, trusts_bodies: bool) -> Any:
            recovered = recover(*args, trusts_bodies=trusts_bodies)
            headers_alone.append(trusts_bodies)
            return recovered

        with patch.object(recovery, "_recover", observed):
            logs = _open().logs.values()
        self.ends = [log.log_end_offset for log in logs]
        self.headers_alone = headers_alone
        self.is_damaged = any(_is_damaged(log) for log in logs)


def _is_damaged(log: PartitionLog) -> bool:
    for segment in log.segments:
        data = segment.path.read_bytes()
        for position, header in segment.walk(0, segment.base_offset):
            if compute_crc(data, position, header.size) != header.crc:
                return True
    return False


def _found(room: Room) -> Found:
    found: Found = room.do(Found)
    return found


def test_after_the_death_of_a_process_headers_are_read_and_nothing_is_lost(room: Room) -> None:
    room.do(_write)
    for _ in range(3):
        found = _found(room)
        assert found.ends == [BATCHES] * LOGS
        assert found.headers_alone == [True] * LOGS
        assert not found.is_damaged


# Scenes


def _power_is_lost(room: Room) -> Found:
    room.do(_write)
    room.lose_power()
    return _found(room)


def _the_volume_is_used_by_another_host(room: Room) -> Found:
    """The volume moves to another host, which loses power, and back to the first host in the same boot. The system
    shows no difference but the note."""

    def write_and_flush() -> None:
        directory = _open()
        _append(directory)
        for log in directory.logs.values():
            log.flush()
        directory.checkpoint()

    boot = room.host.boot
    room.do(write_and_flush)
    room.disk.sync_all("the volume is detached")
    room.host.boot = "boot of another host"
    room.do(lambda: _append(_open(), 2, 0))
    room.lose_power()
    room.host.boot = boot
    return _found(room)


def _a_start_is_cut_short(room: Room) -> Found:
    """After a loss of power the broker is killed when it begins to recover its logs."""

    def pause(*args: object, **options: object) -> None:
        assert room.machine.running is not None
        room.machine.running.block()

    room.do(_write)
    room.lose_power()
    with patch.object(recovery, "_recover", pause):
        process, _ = room.begin(_open)
        room.machine.run(room.machine.now + ENOUGH_S)
        process.kill()
    return _found(room)


def _the_last_write_is_cut_short(room: Room) -> Found:
    """The last write of each log has given the file its length, and not yet its last bytes."""
    room.do(_write)
    for index in range(LOGS):
        room.disk.flip(_segment(index), len(_segment(index).read_bytes()) - 1)
    return _found(room)


def _the_disk_refuses_a_page(room: Room, *, flushes: bool, becomes_read_only: bool = False) -> Found:
    """The disk refuses a page of each log, and the broker is killed, perhaps after a flush has told it. The page is
    read again from the disk. If the file system becomes read-only, the broker cannot remove its note."""

    def refuse() -> None:
        directory = _open()
        _append(directory)
        if becomes_read_only:
            room.disk.errors += 1
            room.disk.failing_writes = errno.EROFS
        for log in directory.logs.values():
            room.disk.refuse_sector(log.segments[0].path, log.size // 2)
            if flushes:
                with pytest.raises(KafkaError):
                    log.flush()

    room.do(refuse)
    room.disk.failing_writes = None
    for index in range(LOGS):
        fd = os.open(_segment(index), os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)
    return _found(room)


def _segment(index: int) -> Path:
    return DATA / f"flights-{index}" / f"{0:020d}.log"


_the_disk_refuses_a_flush = partial(_the_disk_refuses_a_page, flushes=True)
_the_disk_refuses_a_page_unnoticed = partial(_the_disk_refuses_a_page, flushes=False)
_the_file_system_becomes_read_only = partial(_the_disk_refuses_a_page, flushes=True, becomes_read_only=True)
SCENES = [
    _power_is_lost,
    _the_volume_is_used_by_another_host,
    _a_start_is_cut_short,
    _the_last_write_is_cut_short,
    _the_disk_refuses_a_flush,
    _the_disk_refuses_a_page_unnoticed,
    _the_file_system_becomes_read_only,
]

Scene = Callable[[Room], Found]
Planted = Callable[[], AbstractContextManager[object]]


def _keeps_damage(make_room: Callable[[int], Room], scene: Scene, planted: Planted = nullcontext) -> bool:
    """Return whether a damaged batch is kept with a seed; the first of these seeds is the last that is played."""
    for seed in range(SEEDS):
        room = make_room(seed)
        with planted():
            if scene(room).is_damaged:
                return True
    return False


@pytest.mark.parametrize("scene", SCENES)
def test_no_damaged_batch_is_kept(make_room: Callable[[int], Room], scene: Scene) -> None:
    assert not _keeps_damage(make_room, scene)


def test_a_process_that_dies_while_it_starts_leaves_the_collector_as_it_was(room: Room) -> None:
    thresholds = gc.get_threshold()
    _a_start_is_cut_short(room)
    assert gc.get_threshold() == thresholds


# Mutants


def _boot_is_not_compared() -> AbstractContextManager[object]:
    real = page_cache.page_cache_of
    return patch.object(page_cache, "page_cache_of", lambda folder: real(folder)._replace(boot="any"))


def _errors_are_not_compared() -> AbstractContextManager[object]:
    real = page_cache.page_cache_of
    return patch.object(page_cache, "page_cache_of", lambda folder: real(folder)._replace(errors=0))


@contextmanager
def _noted_after_the_first_append() -> Iterator[None]:
    """The earlier note stays until the new note replaces it, at a checkpoint after the first append."""
    late: list[PageCacheNote] = []
    checkpoint = LogDirectory.checkpoint

    def take(self: PageCacheNote) -> str | None:
        with patch.object(Path, "unlink"):
            return _take(self)

    def write_late(self: LogDirectory) -> None:
        checkpoint(self)
        while late:
            _write_note(late.pop())

    with (
        patch.object(PageCacheNote, "take", take),
        patch.object(PageCacheNote, "write", lambda self: late.append(self)),
        patch.object(LogDirectory, "checkpoint", write_late),
    ):
        yield


@contextmanager
def _note_is_not_durable() -> Iterator[None]:
    """Neither the removal of the earlier note is flushed, nor the new note."""

    def write(path: Path, data: bytes, *, sync: bool) -> None:
        write_atomically(path, data, sync=False)

    with (
        patch.object(page_cache_note, "sync_directory"),
        patch.object(page_cache_note, "write_atomically", write),
    ):
        yield


def _noted_before_recovery() -> AbstractContextManager[object]:
    def take(self: PageCacheNote) -> str | None:
        reason = _take(self)
        _write_note(self)
        return reason

    return patch.object(PageCacheNote, "take", take)


def _tail_is_not_checked() -> AbstractContextManager[object]:
    return patch.object(segment_scan, "_TAIL_BYTES", 0)


def _note_stays_after_a_refused_flush() -> AbstractContextManager[object]:
    return patch.object(PageCacheNote, "void")


def _refused_pages_are_not_asked_for() -> AbstractContextManager[object]:
    return patch.object(page_cache, "check_writes")


@pytest.mark.parametrize(
    ("mutant", "scene"),
    [
        (_boot_is_not_compared, _power_is_lost),
        (_noted_after_the_first_append, _the_volume_is_used_by_another_host),
        (_note_is_not_durable, _the_volume_is_used_by_another_host),
        (_noted_before_recovery, _a_start_is_cut_short),
        (_tail_is_not_checked, _the_last_write_is_cut_short),
        (_note_stays_after_a_refused_flush, _the_disk_refuses_a_flush),
        (_refused_pages_are_not_asked_for, _the_disk_refuses_a_page_unnoticed),
        (_errors_are_not_compared, _the_file_system_becomes_read_only),
    ],
)
def test_a_missing_safeguard_is_found(
    make_room: Callable[[int], Room], mutant: Planted, scene: Scene
) -> None:
    assert _keeps_damage(make_room, scene, mutant)
