"""The storage code of brokers and quorum nodes on a virtual disk, and the data that this disk keeps and loses."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from ottla.dataplane.log import LogConfig
from ottla.dataplane.log.inspection import verify_partition
from ottla.dataplane.storage.directory import LogDirectory
from ottla.metadata_quorum.raft import failstop
from ottla.metadata_quorum.raft.disk import Directory
from ottla.metadata_quorum.raft.journal import open_journal
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.record import encode_batch
from tests.simulation.machine.rooms import ENOUGH_S, Room

DATA = Path("/simulated/alpha/data")


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(descriptor)
    os.close(descriptor)


def _make_durable_folder() -> None:
    DATA.mkdir()
    _sync_folder(DATA.parent)


# ------------------------------------------------------------ our storage code


def _open_data() -> LogDirectory:
    directory = LogDirectory.open(DATA, "ottla-1", 2, new_directory_id=b"d" * 16)
    directory.load({}, LogConfig(segment_bytes=4096), now_ms=0)
    return directory


def _filled(directory: LogDirectory, count: int) -> None:
    log = directory.get("flights", 0) or directory.create(
        "flights", 0, bytes(range(16)), LogConfig(segment_bytes=4096), now_ms=0
    )
    for _ in range(count):
        batch = encode_batch([(None, os.urandom(60), 1_000) for _ in range(3)])
        log.produced.append(memoryview(bytearray(batch)), 1, 1_000)


def test_logs_are_written_read_and_recovered(room: Room) -> None:
    def write() -> bytes:
        directory = _open_data()
        _filled(directory, 50)
        log = directory.get("flights", 0)
        assert log is not None
        log.flush()
        found = log.read(60, 700, log.log_end_offset, at_least_one=True)
        assert found.is_cached()
        data = found.read()
        found.release()
        directory.checkpoints.write_high_watermarks({("flights", 0): 99})
        return data

    def recover() -> int:
        directory = _open_data()
        assert directory.last_clean_broker_epoch is None
        assert directory.checkpoints.read_high_watermarks() == {("flights", 0): 99}
        log = directory.get("flights", 0)
        assert log is not None
        found = log.read(60, 700, log.log_end_offset, at_least_one=True)
        assert found.read() == data
        found.release()
        directory.close(clean=True, broker_epoch=7)
        return log.log_end_offset

    data = room.do(write)
    assert room.do(recover) == 150
    contents, problems = room.do(lambda: verify_partition(DATA / "flights-0"))
    assert len(contents) > 3
    assert problems == []
    assert any(
        "syncs /simulated/alpha/data/flights-0/00000000000000000000.log" in event for event in room.events
    )


def test_what_was_flushed_survives_losing_power(make_room: Callable[[int], Room]) -> None:
    for seed in range(12):
        room = make_room(seed)

        def write() -> None:
            directory = _open_data()
            _filled(directory, 20)
            log = directory.get("flights", 0)
            assert log is not None
            log.flush()
            _filled(directory, 9)

        def recover() -> int:
            directory = _open_data()
            assert not directory.failed
            log = directory.get("flights", 0)
            assert log is not None
            return log.log_end_offset

        room.do(write)
        room.lose_power()
        assert 60 <= room.do(recover) <= 87


def test_what_a_log_failed_to_flush_is_not_found_by_the_next_process(room: Room) -> None:
    """The next process must not consider such records durable: the kernel has their pages, the disk does not."""

    def write() -> None:
        directory = _open_data()
        _filled(directory, 10)
        log = directory.get("flights", 0)
        assert log is not None
        log.flush()
        _filled(directory, 10)
        room.disk.failing_syncs = errno.EIO
        with pytest.raises(KafkaError, match="KAFKA_STORAGE_ERROR"):
            log.flush()
        room.disk.failing_syncs = None

    def recovered() -> int:
        log = _open_data().get("flights", 0)
        assert log is not None
        return log.log_end_offset

    room.do(write)
    assert room.do(recovered) == 30
    room.lose_power()
    assert room.do(recovered) == 30


def test_what_a_journal_failed_to_sync_is_not_found_by_the_next_process(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    class GivesUp(Exception):
        pass

    def give_up() -> None:
        raise GivesUp

    monkeypatch.setattr(failstop, "exit_process", give_up)

    def write() -> None:
        disk = Directory(DATA)
        assert disk.lock()
        journal = open_journal(disk, 99, 2000)
        journal.append(b"kept", 2, 1)
        journal.sync()
        journal.append(b"lost", 3, 1)
        room.disk.failing_syncs = errno.EIO
        journal.sync()

    def recovered() -> int:
        room.disk.failing_syncs = None
        disk = Directory(DATA)
        assert disk.lock()
        return open_journal(disk, 99, 2000).last_index

    process, done = room.begin(write)
    assert room.machine.run(room.machine.now + ENOUGH_S, done.done)
    assert isinstance(done.exception(), GivesUp)
    process.kill()
    assert room.do(recovered) == 2
    room.lose_power()
    assert room.do(recovered) == 2


def test_a_folder_in_use_is_locked_until_its_process_is_gone(room: Room) -> None:
    first, done = room.begin(_open_data)
    assert room.machine.run(room.machine.now + ENOUGH_S, done.done)
    with pytest.raises(KafkaError, match="in use by another process"):
        room.do(_open_data)
    first.kill()
    room.do(_open_data)


def test_deleted_topics_leave_nothing(room: Room) -> None:
    def work() -> list[str]:
        directory = _open_data()
        _filled(directory, 20)
        directory.delete("flights", 0)
        directory.remove_deleted()
        return [name for name in os.listdir(DATA) if name.startswith("flights")]

    assert room.do(work) == []


def test_journals_survive_losing_power(make_room: Callable[[int], Room]) -> None:
    for seed in range(12):
        room = make_room(seed)

        def write() -> None:
            disk = Directory(DATA)
            assert disk.lock()
            journal = open_journal(disk, 99, 2000)
            for index in range(2, 40):
                journal.append(os.urandom(100), index, 1)
            journal.sync()
            journal.append(b"more", 40, 1)

        def recover() -> int:
            disk = Directory(DATA)
            assert disk.lock()
            return open_journal(disk, 99, 2000).last_index

        room.do(write)
        room.lose_power()
        assert room.do(recover) in (39, 40)


# ------------------------------------------------------------ the disk


def _write(path: Path, data: bytes, position: int = 0, *, sync: bool = False) -> None:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        assert os.pwrite(descriptor, data, position) == len(data)
        if sync:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


class Model:
    """The possible contents of a folder after a power loss: for each byte of a file, and for the names."""

    def __init__(self) -> None:
        self.names = [frozenset[str]()]
        self.files: dict[str, list[bytes]] = {}

    def check(self, folder: Path) -> None:
        found = frozenset(os.listdir(folder))
        assert found in self.names
        for name in found:
            contents = self.files[name]
            data = (folder / name).read_bytes()
            assert min(map(len, contents)) <= len(data) <= max(map(len, contents))
            for position, byte in enumerate(data):
                allowed = {content[position] if position < len(content) else 0 for content in contents}
                assert byte in allowed, (name, position)


def test_what_is_synced_stays_and_what_is_not_may_go(make_room: Callable[[int], Room]) -> None:
    for seed in range(60):
        room, random, model = make_room(seed), Random(seed), Model()
        _make_durable_folder()
        for _ in range(random.randrange(60)):
            name = random.choice("abcd")
            path = DATA / name
            match random.randrange(5):
                case 0 | 1:
                    before = model.files.setdefault(name, [b""])[-1]
                    data, position = (
                        random.randbytes(random.randrange(1, 2000)),
                        random.randrange(len(before) + 1),
                    )
                    _write(path, data, position)
                    model.files[name].append(before[:position] + data + before[position + len(data) :])
                    model.names.append(model.names[-1] | {name})
                case 2 if path.exists():
                    _write(path, b"", sync=True)
                    model.files[name] = model.files[name][-1:]
                case 3 if path.exists():
                    size = random.randrange(path.stat().st_size + 1)
                    os.truncate(path, size)
                    model.files[name].append(model.files[name][-1][:size])
                case 4:
                    _sync_folder(DATA)
                    model.names = model.names[-1:]
        assert {name: (DATA / name).read_bytes() for name in model.names[-1]} == {
            name: model.files[name][-1] for name in model.names[-1]
        }
        room.lose_power()
        model.check(DATA)


def test_a_folder_whose_name_was_not_synced_may_be_gone_with_all_in_it(
    make_room: Callable[[int], Room],
) -> None:
    outcomes = set()
    for seed in range(20):
        room = make_room(seed)
        DATA.mkdir()
        _write(DATA / "a", b"synced", sync=True)
        _sync_folder(DATA)
        room.lose_power()
        outcomes.add((DATA / "a").exists())
    assert outcomes == {True, False}


def test_a_rename_happens_or_does_not(make_room: Callable[[int], Room]) -> None:
    outcomes = set()
    for seed in range(20):
        room = make_room(seed)
        old, new = Path("/simulated/alpha/old"), Path("/simulated/alpha/new")
        _write(old, b"one", sync=True)
        _write(new, b"two", sync=True)
        _sync_folder(old.parent)
        os.replace(old, new)
        room.lose_power()
        outcomes.add((old.exists() and old.read_bytes(), new.read_bytes()))
    assert outcomes == {(b"one", b"two"), (False, b"one")}


def test_a_move_to_another_folder_is_never_half_done(make_room: Callable[[int], Room]) -> None:
    for seed in range(10):
        room = make_room(seed)
        _make_durable_folder()
        old, new = DATA.with_name("old"), DATA / "new"
        _write(old, b"one", sync=True)
        old.rename(new)
        room.lose_power()
        assert not old.exists()
        assert new.read_bytes() == b"one"


def test_writes_are_torn_and_reordered(make_room: Callable[[int], Room]) -> None:
    torn = reordered = 0
    for seed in range(40):
        room = make_room(seed)
        path = Path("/simulated/alpha/a")
        _write(path, b"0" * 5000, sync=True)
        _sync_folder(path.parent)
        _write(path, b"1" * 2500)
        _write(path, b"2" * 2500, 2500)
        room.lose_power()
        data = path.read_bytes()
        torn += 0 < data.count(b"1") < 2500 or 0 < data.count(b"2") < 2500
        reordered += b"1" not in data and b"2" in data
        assert all(len(set(data[at : at + 512])) == 1 for at in (0, 512, 1024, 3072, 4096))
    assert torn > 5
    assert reordered > 3


def test_a_sync_that_power_interrupts_is_done_or_not(make_room: Callable[[int], Room]) -> None:
    outcomes = set()
    for seed in range(30):
        room = make_room(seed)
        path = Path("/simulated/alpha/a")
        _write(path, b"old", sync=True)
        _sync_folder(path.parent)
        room.disk.sync_s = (1.0, 1.0)
        _, done = room.begin(lambda: _write(Path("/simulated/alpha/a"), b"new", sync=True))
        room.machine.run(room.machine.now + 0.5)
        room.lose_power()
        outcomes.add(path.read_bytes())
        room.machine.run(room.machine.now + 5)
        assert not done.done()
    assert outcomes == {b"old", b"new"}


def test_a_sync_covers_what_was_written_before_it_began(make_room: Callable[[int], Room]) -> None:
    outcomes = set()
    for seed in range(30):
        room = make_room(seed)
        path = Path("/simulated/alpha/a")
        room.disk.stall_probability = 0
        room.disk.sync_s = (1.0, 1.0)
        process, done = room.begin(lambda: _write(Path("/simulated/alpha/a"), b"first", sync=True))
        room.machine.run(room.machine.now + 0.5)
        room.begin(lambda: _write(Path("/simulated/alpha/a"), b"second", 5), process)
        assert not done.done()
        assert room.machine.run(room.machine.now + 1, done.done)
        _sync_folder(path.parent)
        room.lose_power()
        outcomes.add(path.read_bytes())
    assert outcomes == {b"first", b"firstsecond"}


def test_a_full_disk_takes_a_part_then_nothing(room: Room) -> None:
    path = Path("/simulated/alpha/a")
    room.disk.capacity_bytes = 1000
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    assert os.pwrite(descriptor, b"x" * 1500, 0) == 1000
    for refused in (lambda: os.pwrite(descriptor, b"y", 1000), lambda: path.with_name("b").touch()):
        with pytest.raises(OSError, match="No space left") as caught:
            refused()
        assert caught.value.errno == errno.ENOSPC
    assert os.pwrite(descriptor, b"y", 999) == 1
    assert os.statvfs(path).f_bavail == 0
    path.unlink()
    assert room.disk.used_bytes == 1000
    os.close(descriptor)
    assert room.disk.used_bytes == 0
    path.write_bytes(b"z" * 1000)
    assert room.disk.counts["full"] == 3


def test_a_log_on_a_full_disk_refuses_and_goes_on_when_there_is_room(room: Room) -> None:
    def work() -> int:
        directory = _open_data()
        _filled(directory, 5)
        room.disk.capacity_bytes = room.disk.used_bytes + 100
        with pytest.raises(KafkaError) as caught:
            _filled(directory, 1)
        assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
        return room.disk.counts["full"]

    assert room.do(work) > 0


@pytest.mark.parametrize("code", [errno.EIO, errno.EROFS])
def test_a_failing_disk_refuses(room: Room, code: int) -> None:
    path = Path("/simulated/alpha/a")
    _write(path, b"data")
    room.disk.failing = code
    attempts: list[Callable[[], object]] = [
        lambda: _write(path, b"more"),
        lambda: path.unlink(),
        lambda: path.with_name("b").mkdir(),
    ]
    for refused in attempts:
        with pytest.raises(OSError, match=os.strerror(code)) as caught:
            refused()
        assert caught.value.errno == code
    if code == errno.EROFS:
        assert path.read_bytes() == b"data"
    else:
        with pytest.raises(OSError, match=os.strerror(code)):
            path.read_bytes()
    room.disk.failing = None
    assert path.read_bytes() == b"data"


def test_what_a_failed_sync_was_about_is_not_durable_later(room: Room) -> None:
    path = Path("/simulated/alpha/a")
    _write(path, b"old", sync=True)
    _sync_folder(path.parent)
    room.disk.failing_syncs = errno.EIO
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        room.do(lambda: _write(path, b"new", sync=True))
    room.disk.failing_syncs = None
    room.do(lambda: _write(path, b"", sync=True))
    assert path.read_bytes() == b"new"
    room.lose_power()
    assert path.read_bytes() == b"old"


def test_a_slow_disk_takes_its_time(room: Room) -> None:
    room.disk.slow = True
    before = room.machine.now
    room.do(lambda: _write(Path("/simulated/alpha/a"), b"data", sync=True))
    assert room.machine.now - before >= 0.05 or room.disk.counts["slow syncs"] == 1


def test_a_bit_rots_for_good(room: Room) -> None:
    path = Path("/simulated/alpha/a")
    _write(path, b"data", sync=True)
    _sync_folder(path.parent)
    room.disk.flip(path, 1)
    assert path.read_bytes() == b"d\x60ta"
    room.lose_power()
    assert path.read_bytes() == b"d\x60ta"


# ------------------------------------------------------------ Python's file interface


def test_descriptors_end_with_their_process(room: Room) -> None:
    def work() -> int:
        descriptor = os.open(Path("/simulated/alpha/a"), os.O_RDWR | os.O_CREAT)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        with pytest.raises(BlockingIOError):
            fcntl.flock(os.open("/simulated/alpha/a", os.O_RDONLY), fcntl.LOCK_SH | fcntl.LOCK_NB)
        return descriptor

    descriptor = room.do(work)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.pwrite(descriptor, b"late", 0)
    with open("/simulated/alpha/a", "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_files_and_folders_as_pathlib_and_shutil_see_them(room: Room) -> None:
    (DATA / "x" / "y").mkdir(parents=True)
    (DATA / "x" / "text").write_text("one\ntwö\n")
    assert (DATA / "x" / "text").read_text().splitlines() == ["one", "twö"]
    with (DATA / "x" / "text").open("a+") as file:
        file.write("three\n")
        file.seek(0)
        assert file.readlines() == ["one\n", "twö\n", "three\n"]
    with open(os.fsencode(DATA / "x" / "bytes"), "w+b") as binary:
        assert binary.write(b"x" * 20_000) == 20_000
        assert binary.seek(-5, os.SEEK_END) == 19_995
        assert binary.read() == b"xxxxx"
    assert sorted(path.name for path in (DATA / "x").glob("*t*")) == ["bytes", "text"]
    assert {entry.name: entry.is_dir() for entry in os.scandir(DATA / "x")} == {
        "y": True,
        "text": False,
        "bytes": False,
    }
    assert (DATA / "x" / "bytes").stat().st_size == 20_000
    assert abs((DATA / "x" / "bytes").stat().st_mtime - room.host.wall_s()) < 1
    with pytest.raises(FileExistsError):
        (DATA / "x" / "text").touch(exist_ok=False)
    with pytest.raises(IsADirectoryError):
        (DATA / "x").read_bytes()
    with pytest.raises(NotADirectoryError):
        (DATA / "x" / "text" / "z").read_bytes()
    with pytest.raises(OSError, match="not empty"):
        DATA.rmdir()
    (DATA / "x").rename(DATA / "z")
    assert (DATA / "z" / "text").exists()
    shutil.rmtree(DATA)
    assert os.listdir("/simulated/alpha") == []
    assert room.disk.used_bytes == 0


def test_real_files_stay_what_they_are(room: Room, tmp_path: Path) -> None:
    path = tmp_path / "folder" / "real"
    path.parent.mkdir()
    path.write_text("real")
    with open(path, "r+b") as file:
        os.pwrite(file.fileno(), b"R", 0)
        os.fsync(file.fileno())
        fcntl.flock(file, fcntl.LOCK_EX)
    assert path.read_bytes() == b"Real"
    assert [entry.name for entry in os.scandir(path.parent)] == ["real"]
    with pytest.raises(OSError, match="cross-device"):
        os.rename("/simulated/alpha/../alpha", path)
    shutil.rmtree(path.parent)
    assert not path.parent.exists()
