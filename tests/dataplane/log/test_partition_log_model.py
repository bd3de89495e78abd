"""PartitionLog compared with a plain list of batches, through appends, compactions, retention, cuts, clean restarts and
crashes.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ottla.dataplane.log import LogConfig, PartitionLog
from ottla.dataplane.log.segments.descriptors import FileCache
from ottla.dataplane.log.segments.segment import Segment
from ottla.dataplane.log.timestamps import max_timestamp_offset, offset_for_timestamp
from ottla.protocol.records.record_batch import parse_header, walk_batches
from tests.dataplane.log.batches import make_batch

CONFIG = LogConfig(segment_bytes=1500, index_interval_bytes=150, message_timestamp_after_max_ms=2**60)
NOW = 1_000


class LogAgainstAList(RuleBasedStateMachine):
    """A state machine whose `batches` are the truth: (first offset, next offset, leader epoch, max
    timestamp, bytes).
    """

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="ottla-log-"))
        self.batches: list[tuple[int, int, int, int, bytes]] = []
        self.epoch = 0
        self.durable_recovery_point = 0
        self.log_start = 0
        self.end = 0
        self.files = FileCache(appenders_max=1)
        self.log: PartitionLog
        self.neighbour: PartitionLog

    @initialize()
    def start(self) -> None:
        self._open(clean=False)
        self.neighbour = PartitionLog.open(
            self.folder / "t-1", CONFIG, clean_shutdown=False, recovery_point=0, now_ms=NOW, files=self.files
        )

    def teardown(self) -> None:
        if hasattr(self, "log"):
            self.log.close(clean=False)
        shutil.rmtree(self.folder)

    def _open(self, *, clean: bool) -> None:
        self.log = PartitionLog.open(
            self.folder / "t-0",
            CONFIG,
            clean_shutdown=clean,
            recovery_point=self.durable_recovery_point,
            log_start_offset=self.log_start,
            now_ms=NOW,
            files=self.files,
        )
        self.log.durability.before_recovery_point_falls = self._recovery_point_fell

    def _recovery_point_fell(self, offset: int) -> None:
        self.durable_recovery_point = offset

    # Growing

    @rule(
        count=st.integers(1, 5),
        size=st.sampled_from([0, 1, 40, 300, 900]),
        timestamp=st.integers(0, 500),
        new_epoch=st.booleans(),
    )
    def append(self, count: int, size: int, timestamp: int, new_epoch: bool) -> None:
        self.epoch += new_epoch
        data = make_batch(count, bytes([count]) * size, timestamp=timestamp)
        end = self.end
        result = self.log.produced.append(memoryview(data), self.epoch, NOW)
        assert (result.first_offset, result.last_offset, result.size) == (end, end + count - 1, len(data))
        assert not result.duplicate
        self.batches.append((end, end + count, self.epoch, timestamp, bytes(data)))
        self.end = end + count

    @rule(
        counts=st.lists(st.integers(1, 3), min_size=2, max_size=4),
        left_out=st.sampled_from([0, 0, 0, 1, 7]),
        new_epoch=st.booleans(),
    )
    def append_replicated(self, counts: list[int], left_out: int, new_epoch: bool) -> None:
        """Append as a follower. Left-out offsets mean that the leader's log was compacted."""
        self.epoch += new_epoch
        offset, chunk = self.end, bytearray()
        for count in counts:
            offset += left_out
            batch = make_batch(count, b"r" * 30, base_offset=offset, leader_epoch=self.epoch, timestamp=250)
            self.batches.append((offset, offset + count, self.epoch, 250, bytes(batch)))
            offset += count
            chunk += batch
        result = self.log.append_as_follower(memoryview(chunk), NOW)
        assert result.last_offset == offset - 1
        self.end = offset

    @rule()
    def append_elsewhere(self) -> None:
        """Append to another log, which then has the only descriptor for appending."""
        self.neighbour.produced.append(memoryview(make_batch(1, b"n")), 0, NOW)
        assert not self.log.segment_list.active.is_open

    @rule()
    def roll(self) -> None:
        self.log.roll(NOW)

    # In between

    @precondition(lambda self: len(self.log.segments) > 1)
    @rule(data=st.data(), kept=st.integers(0, 2**32))
    def compact(self, data: st.DataObject, kept: int) -> None:
        """Replace some adjoining inactive segments by one, with the batches whose bit in `kept` is set, and the last
        batch, from which the next segment continues.
        """
        inactive = self.log.segments[:-1]
        first = data.draw(st.integers(0, len(inactive) - 1))
        old = inactive[first : data.draw(st.integers(first + 1, len(inactive)))]
        base, after = old[0].base_offset, self.log.segments[first + len(old)].base_offset
        mine = [batch for batch in self.batches if base <= batch[0] < after]
        left = [batch for number, batch in enumerate(mine[:-1]) if kept >> number % 32 & 1] + mine[-1:]
        aside = self.folder / "aside"
        aside.mkdir()
        fresh, size = Segment(aside, base, FileCache()), 0
        for _, after_it, _, _, whole in left:
            header = parse_header(whole)
            fresh.note_batch(header, after_it - 1, size, CONFIG.index_interval_bytes)
            size += len(whole)
        fresh.path.write_bytes(b"".join(batch[4] for batch in left))
        fresh.finish()
        for path in (fresh.path, fresh.offset_index.path, fresh.time_index.path):
            os.rename(path, self.log.directory / (path.name + ".cleaned"))
        aside.rmdir()
        self.log.old_segments.replace(old, [self.log.directory / (fresh.path.name + ".cleaned")])
        self.batches = [batch for batch in self.batches if batch not in mine or batch in left]

    # Cutting

    @precondition(lambda self: self.batches)
    @rule(fraction=st.floats(0, 1))
    def truncate(self, fraction: float) -> None:
        first = self.log.segments[0].base_offset
        offset = first + int((self.end - first) * fraction)
        self.log.truncation.truncate_to(offset)
        within = [batch[0] for batch in self.batches if batch[0] < offset < batch[1]]
        self.batches = [batch for batch in self.batches if batch[1] <= offset]
        self.end = min([offset, *within])
        self.log_start = min(self.log_start, self.end)

    @rule(ahead=st.integers(0, 50))
    def start_anew(self, ahead: int) -> None:
        offset = self.end + ahead
        self.log.truncation.truncate_fully_and_start_at(offset)
        self.batches, self.log_start, self.end = [], offset, offset
        self.durable_recovery_point = min(self.durable_recovery_point, offset)

    @precondition(lambda self: self.batches)
    @rule(fraction=st.floats(0, 1))
    def trim(self, fraction: float) -> None:
        offset = self.log_start + int((self.end - self.log_start) * fraction)
        self.log.advance_log_start_offset(offset)
        self.log_start = offset
        self._forget_dropped()

    @rule(
        fraction=st.floats(0, 1),
        retained_bytes=st.integers(-1, 6000),
        now_ms=st.integers(0, 600),
        age=st.booleans(),
    )
    def retain(self, fraction: float, retained_bytes: int, now_ms: int, age: bool) -> None:
        watermark = self.log_start + int((self.end - self.log_start) * fraction)
        self.log.config = replace(CONFIG, retention_bytes=retained_bytes, retention_ms=100 if age else -1)
        while self.log.old_segments.retain(watermark, now_ms):
            pass
        self.log.config = CONFIG
        assert self.log.log_start_offset <= max(watermark, self.log_start)
        if retained_bytes >= 0 and watermark == self.end:
            biggest = max((segment.size for segment in self.log.segments), default=0)
            assert self.log.size <= retained_bytes + biggest
        self.log_start = max(self.log_start, self.log.segments[0].base_offset)
        self._forget_dropped()

    def _forget_dropped(self) -> None:
        kept = self.log.segments[0].base_offset
        assert self.log.log_start_offset == self.log_start >= kept
        self.batches = [batch for batch in self.batches if batch[0] >= kept]
        while self.log.doomed:
            self.log.doomed.pop().unlink(missing_ok=True)

    # Flushing and restarting

    @rule()
    def flush(self) -> None:
        assert self.log.flush() == self.end
        self.durable_recovery_point = self.end

    @rule()
    def restart_cleanly(self) -> None:
        self.log.close(clean=True)
        self.durable_recovery_point = self.end
        self._open(clean=True)

    @rule(seed=st.integers(0, 2**32), garbage=st.booleans(), lose=st.booleans())
    def crash(self, seed: int, garbage: bool, lose: bool) -> None:
        """Lose or damage unflushed bytes of the last segment."""
        chance = random.Random(seed)
        path = self.log.segments[-1].path
        base = self.log.segments[-1].base_offset
        self.log.close(clean=False)
        mine = [batch for batch in self.batches if batch[0] >= base]
        flushed = sum(len(data) for _, after, _, _, data in mine if after <= self.durable_recovery_point)
        size = sum(len(data) for _, _, _, _, data in mine)
        kept = chance.randint(flushed, size) if lose else size
        with path.open("r+b") as file:
            file.truncate(kept)
            if garbage:
                file.seek(kept)
                file.write(chance.randbytes(chance.randint(1, 400)))
        whole = 0
        for _, _, _, _, data in mine:
            if whole + len(data) > kept:
                break
            whole += len(data)
        lost = 0
        while whole + lost < size:
            lost += len(self.batches.pop()[4])
        ends = [after for first, after, _, _, _ in self.batches if first >= base]
        self.end = ends[-1] if ends else base
        self._open(clean=False)
        self.log_start = min(self.log_start, self.log.log_end_offset)

    # Invariants

    @invariant()
    def ends_agree(self) -> None:
        if hasattr(self, "log"):
            self.log.check()
            assert self.log.log_end_offset == self.end
            for first, _, epoch, _, _ in self.batches:
                if first >= self.log.log_start_offset:
                    assert self.log.leader_epochs.epoch_at(first) == epoch

    @rule(
        fraction=st.floats(0, 1),
        upto=st.floats(0, 1),
        max_bytes=st.integers(0, 2500),
        at_least_one=st.booleans(),
    )
    def read(self, fraction: float, upto: float, max_bytes: int, at_least_one: bool) -> None:
        start, end = self.log.log_start_offset, self.end
        offset, limit = start + int((end - start) * fraction), start + int((end - start) * upto)
        piece = self.log.read(offset, max_bytes, limit, at_least_one=at_least_one)
        data = piece.read()
        piece.release()
        wanted = [b for b in self.batches if b[1] > offset and b[1] <= limit]
        assert b"".join(b[4] for b in wanted).startswith(data)
        walked = list(walk_batches(data))
        if walked:
            assert piece.first_offset in (walked[0][1].base_offset, offset)
            assert len(data) <= max_bytes or (at_least_one and len(walked) == 1)
        elif wanted and wanted[0][0] <= offset:
            assert len(wanted[0][4]) > max_bytes
            assert not at_least_one

    @rule()
    def read_everything(self) -> None:
        offset, found = self.log.log_start_offset, b""
        while offset < self.end:
            piece = self.log.read(offset, 1, self.end, at_least_one=True)
            data = piece.read()
            piece.release()
            found += data
            ends = [header.next_offset for _, header in walk_batches(data)]
            if not ends:
                break  # The last offsets were left out.
            offset = ends[-1]
        assert found == b"".join(b[4] for b in self.batches if b[1] > self.log.log_start_offset)

    @rule(timestamp=st.integers(0, 600), of=st.integers(0, 1_000))
    def look_up_time(self, timestamp: int, of: int) -> None:
        start = self.log.log_start_offset
        if any(b[0] < start < b[1] for b in self.batches):
            return  # Only decoding the batch could tell, and these hold no records.
        visible = [b for b in self.batches if b[0] >= start]
        late = [b for b in visible if b[3] >= timestamp]
        found = offset_for_timestamp(self.log, timestamp, self.end)
        assert found == ((late[0][3], late[0][0], late[0][2]) if late else None)
        if visible:
            for some in (visible, visible[: 1 + of % len(visible)]):
                best = max(some, key=lambda b: (b[3], -b[0]))
                assert max_timestamp_offset(self.log, some[-1][1]) == (best[3], best[0], best[2])


TestLogAgainstAList = LogAgainstAList.TestCase
TestLogAgainstAList.settings = settings(max_examples=40, stateful_step_count=30)
