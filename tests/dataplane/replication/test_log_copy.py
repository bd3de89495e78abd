"""The decisions for copying a log that grows and is truncated and trimmed meanwhile, compared with whole histories."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from ottla.dataplane.log import LeaderEpochs
from ottla.dataplane.replication.follower.log_copy import CopyFrom, CutTo, StartAt, next_step

STEPS_MAX = 200


@dataclass
class ListLog:
    """A log as a list of (epoch, mark); offsets are places in the list after `start`."""

    log_start_offset: int = 0
    records: list[tuple[int, int]] = field(default_factory=list)
    leader_epochs: LeaderEpochs = field(default_factory=LeaderEpochs)

    @property
    def log_end_offset(self) -> int:
        return self.log_start_offset + len(self.records)

    def append(self, epoch: int, mark: int) -> None:
        if epoch > self.leader_epochs.latest_epoch:
            self.leader_epochs.assign(epoch, self.log_end_offset)
        self.records.append((epoch, mark))

    def cut(self, offset: int) -> None:
        if offset < self.log_start_offset:
            self.start_at(offset)
            return
        del self.records[offset - self.log_start_offset :]
        self.leader_epochs.truncate_from_end(self.log_end_offset)

    def trim(self, offset: int) -> None:
        del self.records[: offset - self.log_start_offset]
        self.log_start_offset = offset
        self.leader_epochs.truncate_from_start(offset)

    def start_at(self, offset: int) -> None:
        self.records.clear()
        self.leader_epochs.clear()
        self.log_start_offset = offset


def take(original: ListLog, copy: ListLog, records_max: int) -> bool:
    """Take one step; return False if there is none."""
    match next_step(original, copy):
        case None:
            return False
        case StartAt(offset):
            copy.start_at(offset)
        case CutTo(offset):
            assert offset < copy.log_end_offset
            copy.cut(offset)
        case CopyFrom(offset):
            assert offset == copy.log_end_offset
            at = offset - original.log_start_offset
            for epoch, mark in original.records[at : at + records_max]:
                copy.append(epoch, mark)
    return True


EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 5)),
        st.tuples(st.just("lead"), st.just(0)),
        st.tuples(st.just("cut"), st.integers(0, 6)),
        st.tuples(st.just("trim"), st.integers(1, 6)),
        st.tuples(st.just("copy"), st.integers(1, 4)),
    ),
    max_size=40,
)


@given(EVENTS)
def test_the_copy_ends_as_the_original_stands(events: list[tuple[str, int]]) -> None:
    """Any truncation in between comes with a new leader epoch, as truncation by epochs does."""
    original, copy = ListLog(), ListLog()
    epoch = mark = 0
    for event, amount in events:
        if event == "append":
            for _ in range(amount):
                mark += 1
                original.append(epoch, mark)
        elif event == "lead":
            epoch += 1
        elif event == "cut":
            original.cut(max(original.log_start_offset, original.log_end_offset - amount))
            epoch += 1
        elif event == "trim":
            original.trim(min(original.log_end_offset, original.log_start_offset + amount))
        else:
            take(original, copy, amount)
    steps = 0
    while take(original, copy, 3):
        steps += 1
        assert steps < STEPS_MAX, (original, copy)
    assert copy.log_end_offset == original.log_end_offset
    at = original.log_start_offset - copy.log_start_offset
    assert copy.records[at:] == original.records
