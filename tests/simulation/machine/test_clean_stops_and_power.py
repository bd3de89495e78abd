"""A clean stop is interrupted at any moment, by the death of its process or of the machine: no flushed record is lost,
no file is damaged, and only a real clean stop is recognised as such.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import pytest

from ottla.dataplane.log import LogConfig, filesystem_sync
from ottla.dataplane.log.clean_shutdown import shut_down_together
from ottla.dataplane.storage import log_closing
from ottla.dataplane.storage.clean_shutdown import FILE_NAME
from ottla.dataplane.storage.directory import LogDirectory
from ottla.protocol.errors import ErrorCode, KafkaError
from tests.dataplane.log.batches import make_batch
from tests.simulation.machine.rooms import DATA, ENOUGH_S, Room, open_data

CONFIG = LogConfig(segment_bytes=600, index_interval_bytes=100)
LOGS, FLUSHED, BATCHES = 3, 6, 15
_SEEDS = 40
_SYNC_S = (0.005, 0.02)


_open = partial(open_data, CONFIG)


def _write() -> LogDirectory:
    """Write records, flush some of them, and checkpoint the flushed ones."""
    directory = _open()
    for sequence in range(BATCHES):
        if sequence == FLUSHED:
            directory.checkpoint()
        for index in range(LOGS):
            log = directory.create("flights", index, bytes(16), CONFIG, now_ms=0)
            batch = make_batch(payload=b"x" * 60, producer=(7, 0, sequence))
            log.produced.append(memoryview(batch), sequence // 4, 1_000)
    return directory


def _found() -> tuple[bool, list[int], list[bool], list[int]]:
    """Return whether the stop was clean, the log ends, whether the logs know their producer, and their epochs."""
    directory = _open()
    assert not directory.failed
    logs = [directory.logs["flights", index] for index in range(LOGS)]
    for log in logs:
        log.check()
    again = [
        log.produced.append(
            memoryview(make_batch(payload=b"x" * 60, producer=(7, 0, log.log_end_offset - 1))), 9, 1_000
        ).duplicate
        for log in logs
    ]
    clean = directory.last_clean_broker_epoch is not None
    return (
        clean,
        [log.log_end_offset for log in logs],
        again,
        [log.leader_epochs.latest_epoch for log in logs],
    )


def _stopped(room: Room, after_s: float) -> float | None:
    """Kill the process this long after it began to close its logs; return the duration of the
    close, None if it died.
    """
    machine = room.machine
    took_s: list[float] = []

    def stop() -> None:
        directory = _write()
        began_s = machine.now
        machine.at(began_s + after_s, process.kill)
        directory.close(clean=True, broker_epoch=5)
        took_s.append(machine.now - began_s)

    process, _ = room.begin(stop)
    machine.run(machine.now + ENOUGH_S)
    return took_s[0] if took_s else None


@pytest.fixture(params=["together", "one by one"])
def slow_room(
    make_room: Callable[[int], Room], monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Callable[[int], Room]:
    """Return a function that makes a room in which a stop takes some time."""

    def make(seed: int) -> Room:
        room = make_room(seed)
        monkeypatch.setattr(log_closing, "TOGETHER_FROM", 1 if request.param == "together" else 1000)
        room.disk.sync_s = _SYNC_S
        return room

    return make


@pytest.mark.parametrize("loses_power", [True, False])
def test_a_stop_that_is_cut_short(slow_room: Callable[[int], Room], *, loses_power: bool) -> None:
    outcomes, lasts_s = set(), 0.0
    for seed in range(_SEEDS):
        room = slow_room(seed)
        took_s = _stopped(room, lasts_s * seed / (_SEEDS - 8) if seed else ENOUGH_S / 2)
        if not seed:
            assert took_s is not None
            lasts_s = took_s
        if loses_power:
            room.lose_power()
        clean, ends, again, epochs = room.do(_found)
        assert all(again), "each knows what its producer sent last"
        if clean or not loses_power:
            assert ends == [BATCHES] * LOGS
            assert epochs == [(BATCHES - 1) // 4] * LOGS
        assert min(ends) >= FLUSHED
        outcomes.add((clean, took_s is not None))
    assert {clean for clean, _ in outcomes} == {True, False}
    assert (True, True) in outcomes


_FAULTS = [("failing_writes", errno.ENOSPC), ("failing_syncs", errno.EIO)]


@pytest.mark.parametrize(("kind", "code"), _FAULTS)
def test_a_stop_on_a_disk_that_refuses_for_a_while(
    slow_room: Callable[[int], Room], kind: str, code: int
) -> None:
    """The disk refuses calls from any moment on, for some of the calls or for all of the rest."""
    outcomes, lasts_s = set(), 0.0
    for seed in range(_SEEDS):
        room = slow_room(seed)
        refuses_s = (0.002, 0.02, 0.1, ENOUGH_S)[seed % 4]
        lasts_s = room.do(
            partial(_refused, room, kind, code, lasts_s * seed / _SEEDS, refuses_s if seed else 0)
        )
        setattr(room.disk, kind, None)
        room.lose_power()
        clean, ends, again, epochs = room.do(_found)
        assert all(again)
        if clean:
            assert ends == [BATCHES] * LOGS
            assert epochs == [(BATCHES - 1) // 4] * LOGS
        assert min(ends) >= FLUSHED
        outcomes.add(clean)
    assert outcomes == {True, False}


def _refused(room: Room, kind: str, code: int, after_s: float, refuses_s: float) -> float:
    """Close the logs on a disk that starts to refuse after `after_s`; return the duration."""
    directory = _write()
    machine = room.machine
    began_s = machine.now
    if refuses_s:
        machine.at(began_s + after_s, partial(setattr, room.disk, kind, code))
        machine.at(began_s + after_s + refuses_s, partial(setattr, room.disk, kind, None))
    with suppress(KafkaError):
        directory.close(clean=True, broker_epoch=5)
    return machine.now - began_s


def _written_and_named() -> None:
    """Rename files to their final names without flushing the names."""
    directory = _write()
    flushes = iter([True, False])

    def flush() -> None:
        if not next(flushes):
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "power fails now")
        filesystem_sync.syncfs(directory._lock_fd)

    with pytest.raises(KafkaError, match="power fails"):
        shut_down_together(list(directory.logs.values()), flush)


def test_power_fails_between_the_two_flushes(make_room: Callable[[int], Room]) -> None:
    for seed in range(20):
        room = make_room(seed)
        room.do(_written_and_named)
        room.lose_power()
        clean, ends, again, epochs = room.do(_found)
        assert (clean, ends) == (False, [BATCHES] * LOGS)
        assert all(again)
        assert epochs == [(BATCHES - 1) // 4] * LOGS


def _write_on(*, flushes: bool) -> None:
    directory = _open()
    assert all(log.fingerprint for log in directory.logs.values())
    assert not (DATA / FILE_NAME).exists()
    for log in directory.logs.values():
        for sequence in range(BATCHES, BATCHES + 5):
            batch = make_batch(payload=b"x" * 60, producer=(7, 0, sequence))
            log.produced.append(memoryview(batch), 9, 1_000)
        if flushes:
            log.flush()


@pytest.mark.parametrize("flushes", [True, False])
@pytest.mark.parametrize("loses_power", [True, False])
def test_a_process_that_dies_after_a_start_that_knew_its_logs(
    make_room: Callable[[int], Room], *, loses_power: bool, flushes: bool
) -> None:
    """New records are recovered, and the knowledge of the earlier stop no longer counts."""
    for seed in range(20):
        room = make_room(seed)
        room.do(lambda: _write().close(clean=True, broker_epoch=5))
        room.do(partial(_write_on, flushes=flushes))
        if loses_power:
            room.lose_power()
        clean, ends, again, _ = room.do(_found)
        assert not clean
        assert all(again)
        assert min(ends) >= (BATCHES + 5 if flushes or not loses_power else BATCHES)


def _lose_the_segment() -> None:
    """Delete the file of a log, open the log, and write to it and flush it."""
    (DATA / "flights-0" / f"{0:020d}.log").unlink()
    directory = _open()
    log = directory.logs["flights", 0]
    log.produced.append(memoryview(make_batch()), 1, 1_000)
    log.flush()
    directory.checkpoint()


def _make_empty() -> None:
    directory = _open()
    directory.create("flights", 0, bytes(16), CONFIG, now_ms=0).leader_epochs.assign(1, 0)
    directory.close(clean=True)


def _end() -> int:
    directory = _open()
    assert not directory.failed
    return directory.logs["flights", 0].log_end_offset


def test_the_name_of_a_segment_that_was_made_anew_is_flushed(make_room: Callable[[int], Room]) -> None:
    for seed in range(10):
        room = make_room(seed)
        room.do(_make_empty)
        room.do(_lose_the_segment)
        room.lose_power()
        assert room.do(_end) == 1, seed
