"""The cleaner with a real child process: its choices, swaps, memory, and survival of failures."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import pytest_asyncio

from ottla.cli.local_cluster.liveness import is_alive
from ottla.dataplane.log import LogConfig, PartitionLog
from ottla.dataplane.log.checkpoints import read_offsets, write_topic_id
from ottla.dataplane.log.compaction.job import Limits
from ottla.dataplane.storage.cleaner_checkpoints import CLEANER_OFFSETS
from ottla.dataplane.storage.cleaning_process import CleaningProcessDied
from ottla.dataplane.storage.log_cleaner import CleanerSettings, LogCleaner
from ottla.protocol.records.record import encode_batch
from tests.dataplane.log.held_replicas import Held
from tests.poisoned import poisoned

from .histories import NOW_MS, History, look

KEYS = 20
SLOW = Limits(io_bytes_per_second=15_000, io_buffer_bytes=512)


@dataclass(eq=False)
class Replica:
    """A partition in the cleaner's view."""

    topic: str
    log: PartitionLog
    index: int = 0

    @property
    def high_watermark(self) -> int:
        return self.log.log_end_offset


def fill(history: History, rounds: int = 40) -> None:
    for round_ in range(rounds):
        history.write([(b"key-%d" % key, b"%d-%d" % (round_, key) * 4) for key in range(KEYS)])


def wait_for(condition: Callable[[], object], timeout_s: float = 20) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it does not come about"
        time.sleep(0.01)


async def wait_until(condition: Callable[[], object], timeout_s: float = 20) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it does not come about"
        await asyncio.sleep(0.01)


class Bench:
    """Logs in one data folder, and a cleaner that checks on request."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.replicas: Held[Replica] = Held()
        self.now_ms = NOW_MS
        self.held: dict[tuple[str, int], int] = {}
        self.cleaner = self.make_cleaner(Limits())

    def make_cleaner(self, limits: Limits) -> LogCleaner[Replica]:
        self.cleaner = LogCleaner(
            CleanerSettings(limits=limits, backoff_ms=10),
            self.replicas,
            lambda: self.now_ms,
            lambda topic, index: self.held.get((topic, index)),
        )
        return self.cleaner

    def add(self, topic: str, segment_bytes: int = 8000) -> History:
        history = History(self.folder / f"{topic}-0", segment_bytes)
        self.replicas.add(Replica(topic, history.log))
        return history

    @staticmethod
    def configure(log: PartitionLog, config: LogConfig) -> None:
        """Change a log's settings, as a broker does."""
        log.config = config
        log.on_move()

    def lose_log(self) -> None:
        """Delete the only log."""
        (replica,) = self.replicas
        self.replicas.drop(replica)
        replica.log.close(clean=False)
        shutil.rmtree(replica.log.directory)

    def cleaned_files(self) -> list[Path]:
        return list(self.folder.rglob("*.cleaned"))


async def clean_all(bench: Bench) -> None:
    while await bench.cleaner.clean_filthiest():
        pass


@pytest_asyncio.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    await bench.cleaner.close()
    for replica in bench.replicas:
        replica.log.close(clean=False)


def test_the_child_brings_no_event_loop_and_no_server() -> None:
    code = (
        "import sys, ottla.dataplane.log.compaction.worker\n"
        "loaded = [m for m in sys.modules if m == 'asyncio' or m.startswith(('uvloop', 'ottla.dataplane.server',"
        " 'ottla.dataplane.replication', 'ottla.client', 'ottla.metadata_quorum'))]\n"
        "assert not loaded, loaded"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)


async def test_the_dirtiest_log_first_and_each_once(bench: Bench) -> None:
    for topic, rounds in (("a", 20), ("b", 40)):
        fill(bench.add(topic), rounds)
    before = {replica.topic: (look(replica.log), replica.log.size) for replica in bench.replicas}
    await clean_all(bench)
    for replica in bench.replicas:
        seen, size = before[replica.topic]
        after = look(replica.log)
        assert after.state == seen.state
        assert replica.log.size < size / 2
        assert {o: seen.records[o] for o in after.records} == after.records
    rows = (bench.folder / "cleaner-offset-checkpoint").read_text().splitlines()
    assert rows[:2] == ["0", "2"]
    bases = {replica.topic: replica.log.segments[-1].base_offset for replica in bench.replicas}
    assert rows[2:] == [f"a 0 {bases['a']}", f"b 0 {bases['b']}"]
    fresh = bench.make_cleaner(Limits())
    assert not await fresh.clean_filthiest(), "a restarted broker knows the clean part"
    await fresh.close()


async def deleted_key_comes_back(bench: Bench, history: History) -> bool:
    """Write a key and delete it, let its tombstone expire, and return whether the value comes back."""
    history.write([(b"gone", b"value")])
    history.write([(b"gone", None)])
    for _ in range(3):
        fill(history, 100)
        await clean_all(bench)
        bench.now_ms += 2 * history.log.config.delete_retention_ms
    return b"gone" in look(history.log).state


async def test_what_a_log_was_cleaned_up_to_does_not_count_for_one_that_takes_its_name(bench: Bench) -> None:
    """This holds across a restart, too.

    A deleted key below that offset would come back: its tombstone goes, and its value stays, since keys are taken to be
    unique there.
    """
    fill(bench.add("t"))
    await clean_all(bench)
    bench.lose_log()
    assert not await bench.cleaner.clean_filthiest()
    await bench.cleaner.close()
    bench.make_cleaner(Limits())
    assert not await deleted_key_comes_back(bench, bench.add("t"))


async def test_a_process_that_ends_before_it_knows_of_a_lost_log_leaves_nothing_to_one_of_its_name(
    bench: Bench,
) -> None:
    history = bench.add("t")
    write_topic_id(history.log.directory, b"a" * 16)
    fill(history)
    await clean_all(bench)
    await bench.cleaner.close()
    bench.lose_log()
    another = bench.add("t")
    write_topic_id(another.log.directory, b"b" * 16)
    bench.make_cleaner(Limits())
    assert not await deleted_key_comes_back(bench, another)


async def test_what_comes_behind_a_cut_was_not_cleaned(bench: Bench) -> None:
    """The log may exceed its old clean end again before the cleaner checks."""
    history = bench.add("t")
    fill(history)
    await clean_all(bench)
    history.log.truncation.truncate_to(100)
    assert not await deleted_key_comes_back(bench, history)


async def test_a_process_that_ends_after_a_cut_has_written_down_how_little_is_clean(bench: Bench) -> None:
    """The next process would consider the new records clean if the log had grown long again by then."""
    history = bench.add("t")

    def written_down() -> int:
        return read_offsets(bench.folder / CLEANER_OFFSETS)["t", 0]

    write_topic_id(history.log.directory, b"a" * 16)
    for cut in (100, 200):
        fill(history)
        await clean_all(bench)
        assert written_down() > cut
        await bench.cleaner.close()
        bench.make_cleaner(Limits())
        await clean_all(bench)  # The next process knows it from the file.
        history.log.truncation.truncate_to(cut)
        assert written_down() <= cut


async def test_what_is_lost_is_written_once_the_disk_takes_it(bench: Bench) -> None:
    """The row was written once.

    While the disk was full the old row stayed, and counted after a restart for a log of that name.
    """
    fill(bench.add("t"))
    await clean_all(bench)
    bench.lose_log()
    in_the_way = bench.folder / f"{CLEANER_OFFSETS}.tmp"
    in_the_way.mkdir()
    await clean_all(bench)
    in_the_way.rmdir()
    await clean_all(bench)
    assert not read_offsets(bench.folder / CLEANER_OFFSETS)


async def test_a_log_is_not_clean_before_its_new_names_are_flushed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power failure would bring the old segments back."""
    fill(bench.add("t"))
    (replica,) = bench.replicas
    inode, fsync, refuses = replica.log.directory.stat().st_ino, os.fsync, True

    def flush(fd: int) -> None:
        if refuses and os.fstat(fd).st_ino == inode:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        fsync(fd)

    monkeypatch.setattr(os, "fsync", flush)
    assert not await bench.cleaner.clean_filthiest()
    assert not (bench.folder / "cleaner-offset-checkpoint").exists()
    refuses = False
    assert await bench.cleaner.clean_filthiest()
    base = replica.log.segments[-1].base_offset
    assert (bench.folder / "cleaner-offset-checkpoint").read_text().splitlines()[2:] == [f"t 0 {base}"]


async def test_what_is_held_stays_and_replaces_nothing_before_it(bench: Bench) -> None:
    history = bench.add("t")
    fill(history)
    cut = history.log.segments[len(history.log.segments) // 2].base_offset + 1

    def state_at_the_cut() -> dict[bytes | None, bytes | None]:
        below = {o: record for o, record in look(history.log).records.items() if o < cut}
        return {record.key: record.value for _, record in sorted(below.items())}

    before, size = state_at_the_cut(), history.log.size
    bench.held["t", 0] = cut
    await clean_all(bench)
    assert state_at_the_cut() == before
    assert history.log.size < size, "records before the cut are compacted"
    held_size = history.log.size
    del bench.held["t", 0]
    assert await bench.cleaner.clean_filthiest()
    assert history.log.size < held_size


async def test_settings_decide(bench: Bench) -> None:
    history = bench.add("t")
    fill(history)
    log = history.log
    compact = log.config
    bench.configure(log, replace(compact, cleanup_policy="delete"))
    assert not await bench.cleaner.clean_filthiest()
    bench.configure(log, replace(compact, min_compaction_lag_ms=1))
    assert not await bench.cleaner.clean_filthiest(), "all records are from now"
    bench.now_ms += 1000
    assert await bench.cleaner.clean_filthiest()
    fill(history, 30)
    bench.configure(log, replace(compact, min_cleanable_dirty_ratio=1.0))
    assert not await bench.cleaner.clean_filthiest()
    bench.configure(log, replace(compact, min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=500))
    assert await bench.cleaner.clean_filthiest(), "its oldest dirty records have waited long enough"


async def test_a_new_log_of_the_same_name_is_all_dirty(bench: Bench) -> None:
    fill(bench.add("t"))
    assert await bench.cleaner.clean_filthiest()
    gone = bench.replicas[0]
    bench.replicas.drop(gone)
    gone.log.close(clean=False)
    gone.log.directory.rename(bench.folder / "gone")
    fill(bench.add("t"), 80)
    size = bench.replicas[0].log.size
    assert await bench.cleaner.clean_filthiest()
    assert bench.replicas[0].log.size < size / 2


async def test_a_child_that_dies_is_replaced_and_a_log_that_kills_it_is_given_up(bench: Bench) -> None:
    history = bench.add("t")
    fill(history)
    before = look(history.log)
    cleaner = bench.make_cleaner(SLOW)
    for _ in range(3):
        task = asyncio.create_task(cleaner.clean_filthiest())
        await wait_until(lambda: cleaner.process.pid is not None and bench.cleaned_files())
        assert cleaner.process.pid is not None
        os.kill(cleaner.process.pid, signal.SIGKILL)
        with pytest.raises(CleaningProcessDied):
            await task
        assert look(history.log).state == before.state
    assert bench.cleaned_files()
    assert "died over it 3 times" in cleaner.uncleanable[history.log]
    assert not await cleaner.clean_filthiest()
    await cleaner.close()
    cleaner = bench.make_cleaner(Limits())
    assert await cleaner.clean_filthiest(), "leftovers disturb nothing"
    assert look(history.log).state == before.state
    assert not bench.cleaned_files()


@pytest.mark.parametrize("cut", ["truncate", "retention", "policy"])
async def test_a_log_that_moves_on_is_left_as_it_is(bench: Bench, cut: str) -> None:
    history = bench.add("t")
    fill(history, 60)
    log = history.log
    cleaner = bench.make_cleaner(SLOW)
    task = asyncio.create_task(cleaner.clean_filthiest())
    await wait_until(bench.cleaned_files)
    if cut == "truncate":
        log.truncation.truncate_to(log.segments[1].base_offset + 3)
        fill(history, 60)
    elif cut == "retention":
        log.advance_log_start_offset(log.segments[-1].base_offset)
    else:
        bench.configure(log, replace(log.config, cleanup_policy="delete"))
    before = look(log)
    assert not await task
    assert look(log) == before
    assert not bench.cleaned_files()
    assert not cleaner.uncleanable
    await cleaner.close()
    if cut == "truncate":
        assert await bench.make_cleaner(Limits()).clean_filthiest()
        assert look(log).state == before.state


async def test_damage_is_not_rewritten_and_harms_no_other_log(bench: Bench) -> None:
    histories = [bench.add("bad"), bench.add("good")]
    fill(histories[0], 60)
    fill(histories[1], 30)
    bad = histories[0].log
    damaged = bytearray(bad.segments[1].path.read_bytes())
    damaged[200:206] = b"damage"
    bad.segments[1].path.write_bytes(damaged)
    size = histories[1].log.size
    while not await bench.cleaner.clean_filthiest():
        assert bench.cleaner.uncleanable.keys() == {bad}
    assert not await bench.cleaner.clean_filthiest()
    assert "CRC" in bench.cleaner.uncleanable[bad]
    assert histories[1].log.size < size / 2
    assert not bench.cleaned_files()


async def test_a_stop_ends_the_child(bench: Bench) -> None:
    fill(bench.add("t"), 60)
    cleaner = bench.make_cleaner(SLOW)
    cleaner.start()
    await wait_until(bench.cleaned_files)
    pid = cleaner.process.pid
    assert pid is not None
    await cleaner.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_settings_change_while_it_waits(bench: Bench) -> None:
    cleaner = LogCleaner(
        CleanerSettings(backoff_ms=3_600_000), bench.replicas, lambda: bench.now_ms, lambda *_: None
    )
    try:
        cleaner.start()
        await asyncio.sleep(0)  # The cleaner has found nothing, and waits for an hour.
        fill(bench.add("t"))
        size = bench.replicas[0].log.size
        cleaner.reconfigure(CleanerSettings(backoff_ms=3_600_000, limits=Limits(dedupe_bytes=1 << 20)))
        await wait_until(lambda: bench.replicas[0].log.size < size / 2)
    finally:
        await cleaner.close()


async def test_what_it_leaves_alone_is_counted_for_each_folder(bench: Bench) -> None:
    bench.add("t")
    bench.cleaner.uncleanable[bench.replicas[0].log] = "damaged"
    assert bench.cleaner.uncleanable_in(bench.folder) == 1
    assert bench.cleaner.uncleanable_in(bench.folder / "another") == 0


_BROKER = """
import asyncio, sys
from pathlib import Path
from ottla.dataplane.log import LogConfig, PartitionLog
from ottla.dataplane.storage.log_cleaner import CleanerSettings, LogCleaner
from ottla.dataplane.log.checkpoints import read_offsets, write_topic_id
from ottla.dataplane.log.compaction.job import Limits
from ottla.dataplane.storage.cleaner_checkpoints import CLEANER_OFFSETS
from tests.dataplane.log.held_replicas import Held

class Replica:
    topic, index = "t", 0
    def __init__(self, log): self.log, self.high_watermark = log, log.log_end_offset

async def main():
    config = LogConfig(segment_bytes=8000, cleanup_policy="compact")
    log = PartitionLog.open(Path(sys.argv[1]), config, clean_shutdown=False, recovery_point=0, now_ms=0)
    limits = Limits(io_bytes_per_second=float(sys.argv[2]), io_buffer_bytes=512)
    replicas = Held(Replica(log))
    cleaner = LogCleaner(CleanerSettings(limits=limits), replicas, lambda: 0, lambda *_: None)
    task = asyncio.create_task(cleaner.clean_filthiest())
    while cleaner.process.pid is None: await asyncio.sleep(0.01)
    print(cleaner.process.pid, flush=True)
    await task

asyncio.run(main())
"""


@pytest.mark.parametrize("wait_for_swap", [False, True])
def test_a_broker_killed_on_the_way_leaves_a_log_that_says_the_same(
    tmp_path: Path, wait_for_swap: bool
) -> None:
    history = History(tmp_path / "t-0", 8000)
    fill(history, 60)
    before = look(history.log)
    segments = len(history.log.segments)
    history.log.close(clean=False)
    broker = subprocess.Popen(
        [sys.executable, "-c", _BROKER, str(tmp_path / "t-0"), "40000"], stdout=subprocess.PIPE, text=True
    )
    assert broker.stdout is not None
    child = int(broker.stdout.readline())
    if wait_for_swap:
        wait_for(lambda: list(tmp_path.rglob("*.deleted")) or broker.poll() is not None)
    else:
        wait_for(lambda: list(tmp_path.rglob("*.cleaned")))
    broker.kill()
    broker.wait()
    broker.stdout.close()
    wait_for(lambda: not is_alive(child))
    log = PartitionLog.open(
        tmp_path / "t-0", history.log.config, clean_shutdown=False, recovery_point=0, now_ms=NOW_MS
    )
    after = look(log)
    assert after.state == before.state
    assert len(log.segments) <= segments
    assert not list(tmp_path.rglob("*.cleaned"))
    log.close(clean=False)


async def test_batches_that_cannot_be_read_are_told_of_and_the_log_is_cleaned(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    history = bench.add("t")
    fill(history, 10)
    batch = encode_batch([(b"key-1", b"v" * 30, NOW_MS)])
    at = history._append(poisoned(batch, "garbage"))
    history._append(poisoned(batch, "garbage"))
    fill(history, 60)
    size = history.log.size
    assert await bench.cleaner.clean_filthiest()
    assert history.log.size < size / 2
    assert not bench.cleaner.uncleanable
    assert bench.cleaner.unreadable_in(bench.folder) == 2
    assert bench.cleaner.unreadable_in(bench.folder / "another") == 0
    assert f"t-0: the records of 2 batches cannot be read, the first at offset {at};" in caplog.text
    bench.replicas.drop(bench.replicas[0])
    assert not await bench.cleaner.clean_filthiest()
    assert bench.cleaner.unreadable_in(bench.folder) == 0
    history.log.close(clean=False)
