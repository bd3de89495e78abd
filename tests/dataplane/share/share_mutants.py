"""Faulty share partitions, planted one at a time, which the histories of `test_share_model.py` have to find."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

from ottla.dataplane.share import partition as partition_module
from ottla.dataplane.share.acknowledgements import AcknowledgedRange
from ottla.dataplane.share.acquisition import Acquisition
from ottla.dataplane.share.limits import AcquireMode, ShareLimits
from ottla.dataplane.share.partition import SharePartition
from ottla.dataplane.share.state_runs import StateRuns
from ottla.dataplane.share.states import (
    ARCHIVED,
    Acquired,
    Changing,
    DurableState,
    Pending,
    State,
    StateBatch,
    durable_batch,
    without_lock,
)
from ottla.dataplane.share.transitions import Transition
from ottla.protocol.errors import ErrorCode, KafkaError

MUTANTS: dict[str, Callable[[], AbstractContextManager[None]]] = {}


def mutant(plant: Callable[[], Iterator[None]]) -> None:
    MUTANTS[plant.__name__] = contextmanager(plant)


@mutant
def count_not_raised() -> Iterator[None]:
    """A redelivery keeps the delivery count, so a record that no member can process comes back without end."""

    def state(self: Acquisition, delivery_count: int) -> State:
        return Acquired(self._member_id, max(1, delivery_count - 1), self._deadline_ms)

    with patch.object(Acquisition, "_state", state):
        yield


@mutant
def lock_not_ended() -> Iterator[None]:
    """The records of a dead member stay locked."""

    def expire(self: SharePartition, _now_ms: int) -> Transition:
        return self._seal(self._begin())

    with patch.object(SharePartition, "expire", expire):
        yield


@mutant
def lock_lost_by_a_failed_write() -> Iterator[None]:
    """A lock that was in transition when it ended has lost its deadline after a rollback."""
    roll_back = SharePartition.roll_back

    def without_deadlines(self: SharePartition, transition: Transition) -> None:
        with patch.object(SharePartition, "_add_deadline", lambda *_args: None):
            roll_back(self, transition)

    with patch.object(SharePartition, "roll_back", without_deadlines):
        yield


@mutant
def start_offset_moved_over_a_hole() -> Iterator[None]:
    """The start offset moves over a released record once a later record is acknowledged: the record is lost."""

    def drop_finished(self: StateRuns) -> None:
        runs = self.all_runs()
        finished = [last for _, last, state in runs if state.is_finished]
        held = [first for first, _, state in runs if isinstance(state, Acquired | Changing)]
        if finished:
            self.drop_below(min([finished[-1] + 1, *held]))

    original = StateRuns.drop_below

    def drop_below(self: StateRuns, offset: int) -> None:
        with patch.object(StateRuns, "drop_finished", lambda _self: None):
            original(self, offset)

    with (
        patch.object(StateRuns, "drop_finished", drop_finished),
        patch.object(StateRuns, "drop_below", drop_below),
    ):
        yield


@mutant
def acknowledgement_by_a_stranger() -> Iterator[None]:
    """A member whose lock has ended acknowledges the record that another member processes now."""

    def check_held(self: SharePartition, _member_id: str, ranges: Iterable[AcknowledgedRange]) -> None:
        for first, last, _, _ in ranges:
            if last >= self.end_offset > self.start_offset:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "")
            if last >= self.end_offset or not all(
                isinstance(state, Acquired) for _, _, state in self._runs.runs(first, last)
            ):
                raise KafkaError(ErrorCode.INVALID_RECORD_STATE, "")

    with patch.object(SharePartition, "_check_held", check_held):
        yield


@mutant
def release_of_another_member() -> Iterator[None]:
    """The end of a session releases the records of all members."""

    def release(self: SharePartition, _member_id: str, _now_ms: int) -> Transition:
        transition = self._begin()
        for first, last, state in self._runs.all_runs():
            if isinstance(state, Acquired):
                self._change(transition, first, last, self._put_back)
        return self._seal(transition)

    with patch.object(SharePartition, "release", release):
        yield


@mutant
def release_given_up() -> Iterator[None]:
    """The records of a closed session keep their locks if their release was not written."""
    with patch.object(partition_module, "without_lock", lambda state, *_args: state):
        yield


@mutant
def start_offset_of_another_transition() -> Iterator[None]:
    """A transition carries the start offset of an earlier one that has not ended. If the earlier write fails, its
    records are lost at the next failover."""

    def start_after(self: SharePartition, _transition: Transition) -> int:
        return self._runs.end_of_prefix(
            lambda state: (state.after if isinstance(state, Changing) else state).is_finished
        )

    with patch.object(SharePartition, "_start_after", start_after):
        yield


@mutant
def change_visible_before_its_write() -> Iterator[None]:
    """A released record goes to another member before the release is durable."""
    seal = SharePartition._seal

    def sealed(self: SharePartition, transition: Transition) -> Transition:
        seal(self, transition)
        for span in transition.spans:
            self._runs.update(*span, lambda state: state.after if isinstance(state, Changing) else state)
        return transition

    with patch.object(SharePartition, "_seal", sealed):
        yield


@mutant
def hole_skipped() -> Iterator[None]:
    """The next fetch begins behind the window though a record in it was released."""
    with patch.object(SharePartition, "next_fetch_offset", lambda self: self.end_offset):
        yield


@mutant
def last_delivery_in_company() -> Iterator[None]:
    """A record before its last delivery comes with others, which die with it if it stops the client."""
    with patch.object(ShareLimits, "throttled", lambda *_args: None):
        yield


@mutant
def locks_without_limit() -> Iterator[None]:
    """A fetch takes new records though the limit of locks is reached."""
    take_new = Acquisition._take_new

    def without_limit(self: Acquisition, last: int) -> None:
        unfinished, self._runs.unfinished = self._runs.unfinished, -1_000
        try:
            take_new(self, last)
        finally:
            self._runs.unfinished += unfinished + 1_000

    with patch.object(Acquisition, "_take_new", without_limit):
        yield


@mutant
def aborted_transaction_applied() -> Iterator[None]:
    """The acknowledgements of an aborted transaction finish its records, though its outputs are gone."""
    settle = SharePartition.settle

    def applied(self: SharePartition, transaction: Any, batches: Sequence[StateBatch]) -> Transition:
        del batches
        return settle(self, transaction, [StateBatch(0, 2**40, DurableState.ACKNOWLEDGED)])

    with patch.object(SharePartition, "settle", applied):
        yield


@mutant
def unwritten_count_in_the_snapshot() -> Iterator[None]:
    """A snapshot holds a state that was not written."""

    def after(first: int, last: int, state: State) -> StateBatch | None:
        return durable_batch(first, last, state.after if isinstance(state, Changing) else state)

    with patch.object(partition_module, "durable_batch", after):
        yield


@mutant
def count_lost_at_failover() -> Iterator[None]:
    """A new leader counts deliveries from the first on, so a record that no member can process comes back too often."""
    restored = partition_module.restored_state

    def uncounted(batch: StateBatch) -> State:
        return restored(batch._replace(delivery_count=0))

    with patch.object(partition_module, "restored_state", uncounted):
        yield


@mutant
def pending_record_released_with_its_session() -> Iterator[None]:
    """The end of a session releases a record whose acknowledgement is part of an open transaction."""

    def release(self: SharePartition, member_id: str, now_ms: int) -> Transition:
        runs, transition = self._runs, self._begin()
        runs.update(runs.start, runs.end - 1, lambda state: without_lock(state, member_id, now_ms))
        for first, last, state in runs.all_runs():
            if isinstance(state, Acquired | Pending) and state.member_id == member_id:
                self._change(transition, first, last, self._put_back)
        return self._seal(transition)

    with patch.object(SharePartition, "release", release):
        yield


@mutant
def record_limit_exceeded() -> Iterator[None]:
    """A fetch takes the rest of a batch beyond its maximum of records, as before KIP-1206."""
    init = Acquisition.__init__

    def in_whole_batches(self: Acquisition, *arguments: Any) -> None:
        init(self, *arguments[:-1], AcquireMode.BATCH_OPTIMISED)

    with patch.object(Acquisition, "__init__", in_whole_batches):
        yield


@mutant
def dead_record_without_a_letter() -> Iterator[None]:
    """A record is archived before its dead letter is written, and lost if that fails. Apache Kafka 4.4 logs "Failed to
    write to DLQ, proceeding to ARCHIVED regardless"."""
    with patch.object(SharePartition, "_dead", lambda *_args: ARCHIVED):
        yield


@mutant
def aborted_record_delivered() -> Iterator[None]:
    """A read_committed group gets the records of aborted transactions."""
    with patch.object(SharePartition, "archive", lambda *_args: None):
        yield


@mutant
def start_offset_behind_the_log() -> Iterator[None]:
    """The start offset stays at records that retention or DeleteRecords has removed."""
    with patch.object(SharePartition, "archive_below", lambda *_args: None):
        yield
