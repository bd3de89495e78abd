"""A start that knows a log from the previous stop finds the same state as in its files, and as recovery does, after any
history.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

from hypothesis import example, given, settings
from hypothesis import strategies as st

from ottla.dataplane.log import LogConfig, PartitionLog
from ottla.dataplane.log.checkpoints import CLEAN_SHUTDOWN, RECOVERY_POINTS
from ottla.dataplane.log.clean_shutdown import shut_down_together
from ottla.dataplane.log.copies import end_at
from ottla.dataplane.storage.clean_shutdown import FILE_NAME
from ottla.dataplane.storage.directory import LogDirectory
from ottla.protocol.records.record import ControlRecord, ControlType, encode_batch, encode_control_batch
from tests.dataplane.log.compaction.histories import clean, job_for
from tests.dataplane.storage.data_folders import TOPIC, TOPIC_ID, state

KEY = (TOPIC, 0)
CONFIG = LogConfig(segment_bytes=700, index_interval_bytes=100, retention_ms=-1, producer_id_expiration_ms=60)
COMPACTED = replace(CONFIG, cleanup_policy="compact")
RESTART_MS = 45


class Broker:
    """A data folder with one log, and a clock that each step moves."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.path = root / "used"
        self.now_ms = 1_000
        self.commit_index = 0
        self.leader_epoch = 1
        self.config = CONFIG
        self.starts = 0
        self.directory = self.open(self.path)
        self.directory.create(*KEY, TOPIC_ID, CONFIG, now_ms=self.now_ms)

    @property
    def log(self) -> PartitionLog:
        return self.directory.logs[KEY]

    def open(self, path: Path) -> LogDirectory:
        directory = LogDirectory.open(path, "ottla-1", 2, new_directory_id=b"d" * 16)
        directory.load({TOPIC: self.config}, self.config, now_ms=self.now_ms, threads=1)
        assert not directory.failed
        return directory

    def take(self, step: tuple[Any, ...]) -> None:
        name, *arguments = step
        self.now_ms += 1
        getattr(self, name)(*arguments)
        self.log.check()

    # Actions on the log

    def write(self, producer_id: int, count: int, size: int, transactional: bool, gap: int) -> None:
        """Append as a follower, with some offsets left out before."""
        log, base_sequence, epoch = self.log, -1, -1
        transactional &= producer_id >= 0
        if producer_id >= 0:
            entry = log.producers.get(producer_id)
            epoch = 0 if entry is None else entry.producer_epoch
            base_sequence = 0 if entry is None else entry.last_sequence + 1
            if not transactional and producer_id in log.transactions.open:
                return
        records = [(b"%d" % (number % 3), b"v" * size, self.now_ms - number) for number in range(count)]
        batch = encode_batch(
            records,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=base_sequence,
            transactional=transactional,
        )
        self._append(batch, gap)

    def end(self, producer_id: int, commits: bool, raises_epoch: bool) -> None:
        entry = self.log.producers.get(producer_id)
        epoch = raises_epoch + (0 if entry is None else entry.producer_epoch)
        self.commit_index += 1
        marker = ControlRecord(ControlType(commits), self.commit_index, self.commit_index)
        batch = encode_control_batch(
            marker, timestamp_ms=self.now_ms, producer_id=producer_id, producer_epoch=epoch
        )
        self._append(batch, 0)

    def _append(self, batch: bytes, gap: int) -> None:
        placed = bytearray(batch)
        placed[0:8] = (self.log.log_end_offset + gap).to_bytes(8, "big")
        placed[12:16] = self.leader_epoch.to_bytes(4, "big")
        self.log.append_as_follower(memoryview(placed), self.now_ms)

    def lead(self) -> None:
        self.leader_epoch += 1
        self.log.leader_epochs.assign(self.leader_epoch, self.log.log_end_offset)

    def roll(self) -> None:
        self.log.roll(self.now_ms)

    def delete(self, fraction: float) -> None:
        self.log.advance_log_start_offset(int(self.log.log_end_offset * fraction))
        self._unlink()

    def retain(self) -> None:
        config, self.log.config = self.log.config, replace(CONFIG, retention_bytes=900)
        while self.log.old_segments.retain(self.log.log_end_offset, self.now_ms):
            pass
        self.log.config = config
        self._unlink()

    def truncate(self, fraction: float) -> None:
        first = self.log.segments[0].base_offset
        self.log.truncation.truncate_to(first + int((self.log.log_end_offset - first) * fraction))
        self._unlink()

    def begin_anew(self) -> None:
        self.log.truncation.truncate_fully_and_start_at(self.log.log_end_offset + 3)
        self._unlink()

    def leave_out(self, count: int) -> None:
        end_at(self.log, self.log.log_end_offset + count)

    def compact(self) -> None:
        self.config = self.log.config = COMPACTED
        if len(self.log.segments) > 1 and not self.log.transactions.open:
            clean(self.log, job_for(self.log, 0, now_ms=self.now_ms))
            self._unlink()

    def pass_markers(self) -> None:
        self.log.transactions.high_watermark_moved(self.log.log_end_offset)

    def expire(self) -> None:
        self.now_ms += 40
        self.log.producers.expire(self.now_ms, CONFIG.producer_id_expiration_ms)

    def flush(self) -> None:
        self.log.flush()

    def checkpoint(self) -> None:
        self.directory.checkpoint()

    def settle(self) -> None:
        shut_down_together([self.log], lambda: None)

    def _unlink(self) -> None:
        while self.log.doomed:
            self.log.doomed.pop().unlink(missing_ok=True)

    # Restarts

    def die(self) -> None:
        self.directory.close(clean=False)
        self.directory = self.open(self.path)

    def stop(self) -> None:
        """Start three times: from the stop's summary, from the files, and by recovery of their content."""
        self.directory.close(clean=True)
        self.now_ms += RESTART_MS
        self.starts += 1
        read, recovered = self.root / f"read-{self.starts}", self.root / f"recovered-{self.starts}"
        for copy in (read, recovered):
            shutil.copytree(self.path, copy)
        (recovered / CLEAN_SHUTDOWN).unlink()
        (recovered / RECOVERY_POINTS).unlink()
        os.unlink(recovered / FILE_NAME)
        self.directory = self.open(self.path)
        known = state(self.log)
        assert known == self._of(read, state)
        assert _told(self.log) == self._of(recovered, _told)

    def _of(self, copy: Path, tell: Callable[[PartitionLog], object]) -> object:
        directory = self.open(copy)
        assert directory.logs[KEY].fingerprint is None
        found = tell(directory.logs[KEY])
        directory.close(clean=False)
        shutil.rmtree(copy)
        return found


def _told(log: PartitionLog) -> dict[str, object]:
    """Return the state visible to clients and other replicas, as far as it does not depend on flushes."""
    found = state(log)
    segments = log.segments
    return {
        **{name: found[name] for name in ("producers", "transactions", "gaps")},
        "ends": (log.log_start_offset, log.log_end_offset),
        "epochs": [epoch for epoch, start in log.leader_epochs.entries if start < log.log_end_offset],
        "segments": [(each.base_offset, each.size) for each in segments],
        # A transaction whose records were compacted away leaves no trace.
        "aborted": None if log.config.compacted else log.transactions.aborted(0, log.log_end_offset),
        "times": [each.largest_timestamp_ms() for each in segments if each.size],
    }


_FRACTION = st.floats(0, 1)
_PRODUCER = st.integers(0, 2)
_WRITE = st.tuples(
    st.just("write"),
    st.integers(-1, 2),
    st.integers(1, 4),
    st.sampled_from([3, 60, 200]),
    st.booleans(),
    st.sampled_from([0, 0, 0, 0, 2]),
)
_END = st.tuples(st.just("end"), _PRODUCER, st.booleans(), st.sampled_from([False, False, True]))
_OTHER = st.one_of(
    st.tuples(st.sampled_from(["delete", "truncate"]), _FRACTION),
    st.tuples(st.just("leave_out"), st.integers(1, 4)),
    st.tuples(
        st.sampled_from(
            [
                "lead",
                "roll",
                "retain",
                "begin_anew",
                "compact",
                "pass_markers",
                "expire",
                "flush",
                "checkpoint",
            ]
        )
    ),
    st.tuples(st.sampled_from(["settle", "die", "stop", "stop"])),
)


@settings(max_examples=60)
@given(st.lists(st.one_of(_WRITE, _END, _WRITE, _OTHER), min_size=5, max_size=40))
@example([("write", 1, 2, 3, False, 0), ("stop",), ("lead",)])
def test_what_a_stop_knew_is_what_is_there(steps: list[tuple[Any, ...]]) -> None:
    """No power fails here, so no flush is needed."""
    root = Path(tempfile.mkdtemp(prefix="ottla-settled-"))
    with mock.patch.multiple(os, fsync=mock.DEFAULT, fdatasync=mock.DEFAULT):
        broker = Broker(root)
        try:
            for step in (*steps, ("stop",), ("stop",)):
                broker.take(step)
        finally:
            broker.directory.close(clean=False)
            shutil.rmtree(root)
