"""One replica on this broker: its log, its role, and the callers that wait for it.

The role is a `LeaderState` or a `FollowerState`. Both are replaced by a new object for each leader epoch. Waiting
callers are notified in the loop iteration in which the log grows or the high watermark moves:

- acknowledgements (acks=all) wait for the high watermark, in offset order;
- consumers' parked fetches wait for the high watermark;
- fetch sessions of followers watch the log end and the high watermark.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from ....protocol.errors import ErrorCode, KafkaError
from ...log.composed import append_marker, append_unsequenced
from ...log.copies import append_copied
from ..roles.follower import EpochEnd, FollowerState
from ..roles.leader import NOBODY_JOINS, LeaderState
from .acknowledgements import Acknowledged, Acknowledgements
from .flushing import Flushing
from .following import Following
from .readers import Readers
from .record_deletion import RecordDeletion
from .traffic import Traffic

if TYPE_CHECKING:
    from ....protocol.cluster.cluster_image import PartitionState
    from ...log import AppendResult, PartitionLog
    from .dependencies import HostBroker, Watcher
    from .settings import ReplicationSettings

logger = logging.getLogger(__name__)


class Partition:
    """This broker's replica of one partition: its log, its role and the callers that wait for it. Invariant: log start
    offset <= high watermark <= log end offset.
    """

    __slots__ = (
        "_acknowledgements",
        "_broker",
        "_flushing",
        "copy_of",
        "follower",
        "following",
        "index",
        "leader",
        "log",
        "note_moved",
        "readers",
        "record_deletion",
        "settings",
        "topic",
        "topic_id",
        "traffic",
        "watchers",
    )

    def __init__(
        self,
        topic: str,
        topic_id: bytes,
        index: int,
        log: PartitionLog,
        broker: HostBroker[Partition],
        settings: ReplicationSettings,
        high_watermark: int,
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.log = log
        self.settings = settings
        self.copy_of = ""
        """Name of the mirror that the partition is a copy of; empty if it takes records from producers."""
        self.leader: LeaderState | None = None
        self.follower: FollowerState | None = None
        self.watchers: dict[int, Watcher] = {}
        self.traffic = Traffic()
        self.record_deletion = RecordDeletion(self)
        self._broker = broker
        self.note_moved = partial(broker.moved.note, self)
        """Callback for every change of its log, high watermark, role, or knowledge of followers."""
        log.on_move = self.note_moved
        self._acknowledgements = Acknowledgements()
        self.readers = Readers()
        self._flushing = Flushing(
            log, settings, partial(broker.flush, self), partial(broker.flush_later, self)
        )
        self.following = Following(self, broker, self._flushing, self.readers, high_watermark)

    def __repr__(self) -> str:
        return f"<{self.topic}-{self.index}>"

    # Queries in any role

    @property
    def high_watermark(self) -> int:
        leader = self.leader
        return self.following.high_watermark if leader is None else leader.high_watermark

    @property
    def acknowledged_offset(self) -> int:
        """Offset up to which this replica acknowledges; a follower fetches from here."""
        return (
            self._flushing.flushed_offset
            if self.settings.durable_before_acknowledged
            else self.log.log_end_offset
        )

    @property
    def leader_epoch(self) -> int:
        """Leader epoch of the current role; -1 before the first role."""
        role = self.leader or self.follower
        return -1 if role is None else role.leader_epoch

    @property
    def partition_epoch(self) -> int:
        role = self.leader or self.follower
        return -1 if role is None else role.partition_epoch

    def end_of_epoch(self, epoch: int) -> EpochEnd:
        """Return the largest leader epoch of this log that is not above `epoch`, and the offset after its last
        record.
        """
        return EpochEnd(*self.log.leader_epochs.end_offset_for(epoch, self.log.log_end_offset))

    def leading(self, current_leader_epoch: int = -1) -> LeaderState:
        """Return this replica's leadership, for a request in `current_leader_epoch` (-1: unspecified).

        Raises KafkaError: NOT_LEADER_OR_FOLLOWER; FENCED_LEADER_EPOCH if the request has an older epoch,
        UNKNOWN_LEADER_EPOCH if this broker has (KIP-320).
        """
        leader = self.leader
        if current_leader_epoch >= 0:
            self.check_epoch(current_leader_epoch)
        if leader is None:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"broker {self._broker.broker_id} does not lead {self.topic}-{self.index}",
            )
        return leader

    def check_epoch(self, current_leader_epoch: int) -> None:
        """Check that this replica has its role in the epoch of a request. Raises KafkaError as `leading` does."""
        known = self.leader_epoch
        if current_leader_epoch != known:
            code = (
                ErrorCode.FENCED_LEADER_EPOCH
                if current_leader_epoch < known
                else ErrorCode.UNKNOWN_LEADER_EPOCH
            )
            raise KafkaError(
                code, f"{self!r} is in leader epoch {known}, the request in {current_leader_epoch}"
            )

    def check(self) -> None:
        """Check that role, log and waiting callers are consistent. Raises AssertionError if they are not. `log.check()`
        checks the log itself."""
        log, leader, follower, watermark = self.log, self.leader, self.follower, self.high_watermark
        if leader is not None and follower is not None:
            raise AssertionError(f"{self!r} both leads and follows")
        if not log.log_start_offset <= watermark <= log.log_end_offset:
            raise AssertionError(
                f"{self!r}: {log.log_start_offset} <= high watermark {watermark} <= {log.log_end_offset} does not hold"
            )
        flushed = self._flushing.flushed_offset
        if flushed > log.log_end_offset:
            raise AssertionError(f"{self!r}: flushed to {flushed}, past the log end {log.log_end_offset}")
        if leader is None:
            if self._acknowledgements or self.record_deletion.waiting:
                raise AssertionError(f"{self!r} does not lead, and somebody waits for its leader")
            if follower is not None and log.leader_epochs.latest_epoch > follower.leader_epoch:
                raise AssertionError(
                    f"{self!r} follows in epoch {follower.leader_epoch}, its log has {log.leader_epochs.latest_epoch}"
                )
        else:
            self._check_leading(leader)

    def _check_leading(self, leader: LeaderState) -> None:
        leader.check(self.log.log_start_offset)
        ends = leader.log_end_offset, self.log.log_end_offset
        if ends[0] != ends[1] or leader.durable_offset > self.acknowledged_offset:
            raise AssertionError(
                f"{self!r} leads up to {ends[0]}, durable to {leader.durable_offset}; its log ends at {ends[1]}, "
                f"durable to {self.acknowledged_offset}"
            )
        if self.log.leader_epochs.latest_epoch != leader.leader_epoch:
            raise AssertionError(
                f"{self!r} leads in epoch {leader.leader_epoch}, its log has {self.log.leader_epochs.latest_epoch}"
            )
        self._acknowledgements.check(self, leader.high_watermark, ends[1])

    # Roles

    def become_leader(self, state: PartitionState) -> bool:
        """Lead in `state.leader_epoch`. If this replica leads in it already, take the newer partition epoch, and
        advance the high watermark if possible.

        The epoch is recorded in the log before its first record. Returns whether a new leadership began.
        """
        now_ms = self._broker.monotonic_ms()
        leader = self.leader
        if leader is not None and leader.leader_epoch == state.leader_epoch:
            leader.offline = frozenset(state.offline_replicas)
            if leader.update(state.partition_epoch, state.isr, state.replicas, now_ms):
                self._membership_changed(leader, now_ms)
            else:
                self._advance(leader, now_ms)
            return False
        log = self.log
        self._forget_impossible_epochs(state.leader_epoch)
        log.leader_epochs.assign(state.leader_epoch, log.log_end_offset)
        watermark = max(self.high_watermark, log.log_start_offset)
        # Producers that wait for an acknowledgement from an older epoch, in which this replica led, too, continue to
        # wait: no record is removed. The new epoch fences a replica that was removed.
        self.follower = None
        self.leader = leader = LeaderState(
            broker_id=self._broker.broker_id,
            leader_epoch=state.leader_epoch,
            partition_epoch=state.partition_epoch,
            replicas=state.replicas,
            isr=state.isr,
            brokers=self._broker.brokers,
            log_end_offset=log.log_end_offset,
            durable_offset=self.acknowledged_offset,
            high_watermark=watermark,
            min_in_sync=self.settings.min_in_sync,
            lag_time_max_ms=self.settings.lag_time_max_ms,
            now_ms=now_ms,
            offline=state.offline_replicas,
        )
        leader.check(log.log_start_offset)
        if leader.advance(now_ms):
            self._watermark_moved()
        if leader.durable_offset < leader.log_end_offset:
            self._flushing.flush()
        self._role_changed()
        return True

    def go_on_at(self, offset: int) -> None:
        """Give up the present role, and make the log of a mirror's copy end at `offset`, where the mirror begins or
        continues. The replica may lead afterwards.
        """
        self._leave_role(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.following.end_at(offset)

    def become_follower(self, state: PartitionState) -> bool:
        """Become a follower of the broker `state.leader` (-1: no leader for now). Returns whether the leader epoch is
        new to this replica.
        """
        follower = self.follower
        if follower is not None and follower.leader_epoch == state.leader_epoch:
            self.follower = FollowerState(state.leader, state.leader_epoch, state.partition_epoch)
            return False
        watermark = self.high_watermark
        self._leave_role(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.following.high_watermark = watermark
        self._forget_impossible_epochs(state.leader_epoch)
        self.follower = FollowerState(state.leader, state.leader_epoch, state.partition_epoch)
        if self.acknowledged_offset < self.log.log_end_offset:
            # These records were found at the start, or written as leader without a flush. Until they are flushed this
            # replica does not fetch.
            self._flushing.flush()
        self._role_changed()
        return True

    def _forget_impossible_epochs(self, leader_epoch: int) -> None:
        """Remove leader epochs that are above every epoch there has been.

        The epochs of a recovered log come from its batches, whose epochs no checksum covers. The records then count as
        of the epoch before. The next fetch, by this replica or its followers, finds out up to where that is right.
        """
        epochs = self.log.leader_epochs
        if epochs.latest_epoch <= leader_epoch:
            return
        since = epochs.first_above(leader_epoch)
        assert since is not None
        logger.warning(
            "%r: in leader epoch %d the log has %d from offset %d on: its headers are damaged",
            self, leader_epoch, epochs.latest_epoch, since,
        )  # fmt: skip
        epochs.truncate_from_end(since)

    def retire(self, error: ErrorCode) -> None:
        """End the role of a replica that goes away: deleted, reassigned, its disk failed, or the broker stops. Waiting
        callers get `error`."""
        watermark = self.high_watermark
        self._leave_role(error)
        self.following.high_watermark = watermark
        self._role_changed()

    def replace_log(self, log: PartitionLog) -> None:
        """Continue with a log that has the same records in another folder. The old log must stay until the new one is
        flushed, since only its records are durable."""
        self.log = log
        log.on_move = self.note_moved
        self.note_moved()
        self._flushing.replace_log(log)

    def _leave_role(self, error: ErrorCode) -> None:
        led = self.leader is not None
        self.leader = self.follower = None
        if led:  # Only a leader has waiting callers.
            self._acknowledgements.failed(error)
            self.record_deletion.failed(error)

    def _role_changed(self) -> None:
        self.note_moved()
        if self.watchers:
            for watcher in list(self.watchers.values()):
                watcher.role_changed()
        self.readers.wake()

    def reconfigure(self, settings: ReplicationSettings) -> None:
        """Apply new settings of the topic to flushes and, while the replica leads, to its ISR and high watermark."""
        if settings == self.settings:
            return
        self.settings = settings
        self._flushing.reconfigure(settings)
        leader = self.leader
        if leader is not None:
            leader.min_in_sync = settings.min_in_sync
            leader.lag_time_max_ms = settings.lag_time_max_ms
            leader.durable_offset = self.acknowledged_offset
            self._membership_changed(leader, self._broker.monotonic_ms())

    def tighten(self, min_in_sync: int) -> None:
        """Apply a new min.insync.replicas of the topic if it is higher than the present one; ignore a lower value."""
        if min_in_sync > self.settings.min_in_sync:
            self.reconfigure(replace(self.settings, min_in_sync=min_in_sync))

    def _membership_changed(self, leader: LeaderState, now_ms: int) -> None:
        """Advance the high watermark after a change of the ISR or of min.insync.replicas. If the ISR is too small,
        producers with acks=all continue to wait: their records count once it is large enough again (KIP-966).
        """
        self.note_moved()
        self._advance(leader, now_ms)

    # Leading

    def wall_ms(self) -> int:
        """Return the time in milliseconds since 1970, against which producers' timestamps are checked."""
        return self._broker.wall_ms()

    def append(
        self, batches: memoryview, *, required_acks: int, max_timestamp: int | None = None
    ) -> AppendResult:
        """Append a producer's batches (writable: offsets and epoch are patched in place).

        `max_timestamp` is the largest timestamp of records that were validated before; None validates them here. With
        `required_acks` -1 the ISR must have min.insync.replicas members. The caller then waits with
        `on_high_watermark(result.last_offset + 1, ...)`. A batch that is in the log already is a duplicate, whatever
        the size of the ISR. Raises KafkaError if nothing was appended.
        """
        leader = self.leader
        if leader is None:
            # This replica may become leader before the producer's next batch arrives.
            self.log.produced.refused_for_now(batches, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            leader = self.leading()
        if self.copy_of:
            self.check_is_no_copy()
        if required_acks == -1 and leader.under_min_in_sync:
            original = self.log.produced.original_of(batches)
            if original is not None:
                return original
            self.log.produced.refused_for_now(batches, ErrorCode.NOT_ENOUGH_REPLICAS)
            raise self._too_few_in_sync(leader)
        result = self.log.produced.append(batches, leader.leader_epoch, self._broker.wall_ms(), max_timestamp)
        if not result.duplicate:
            self._appended(leader)
        return result

    def append_unsequenced(self, batches: memoryview) -> int:
        """Append batches composed by this broker (writable), with acks=all; return the offset after them.

        Raises KafkaError: NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS, KAFKA_STORAGE_ERROR; then nothing was appended.
        """
        leader = self.leading()
        if leader.under_min_in_sync:
            raise self._too_few_in_sync(leader)
        result = append_unsequenced(self.log, batches, leader.leader_epoch, self._broker.wall_ms())
        self._appended(leader)
        return result.last_offset + 1

    def _too_few_in_sync(self, leader: LeaderState) -> KafkaError:
        return KafkaError(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"{self.topic}-{self.index} has {len(leader.in_sync.committed)} in-sync replicas, "
            f"min.insync.replicas is {leader.effective_min_in_sync}",
        )

    def check_is_no_copy(self) -> None:
        """Raise KafkaError, POLICY_VIOLATION, if the partition is a copy whose mirror is not promoted."""
        if self.copy_of:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"topic {self.topic} is the copy of mirror {self.copy_of}: it takes no records until that is promoted",
            )

    def append_copied(self, batches: memoryview) -> None:
        """Append the source's batches to this copy (writable: leader epochs are patched in place).

        Raises KafkaError: NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR, and the errors of `log.copies.append_copied`.
        """
        leader = self.leading()
        append_copied(self.log, batches, leader.leader_epoch, self._broker.wall_ms())
        self._appended(leader)

    def append_marker(
        self, producer_id: int, producer_epoch: int, *, commit: bool, number: int, commit_index: int
    ) -> int:
        """Append the marker that ends a transaction of a producer; return the offset after it.

        The marker counts once the high watermark has passed it, which may have to wait until the ISR is large enough.
        Raises KafkaError: NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR.
        """
        leader = self.leading()
        result = append_marker(
            self.log,
            producer_id,
            producer_epoch,
            commit=commit,
            number=number,
            commit_index=commit_index,
            leader_epoch=leader.leader_epoch,
            now_ms=self._broker.wall_ms(),
        )
        self._appended(leader)
        return result.last_offset + 1

    def close_isr(self) -> None:
        """Prevent followers from joining the ISR of this leadership until `open_isr`. Otherwise a member without all
        records could be elected.
        """
        self.leading().joins_from = NOBODY_JOINS

    def open_isr(self) -> None:
        """Let followers join the ISR once they have all present records of the log."""
        leader = self.leading()
        leader.joins_from = leader.log_end_offset

    def _appended(self, leader: LeaderState) -> None:
        """Flush the appended records, offer them to followers, and advance the high watermark."""
        flushing, end, now_ms = self._flushing, self.log.log_end_offset, self._broker.monotonic_ms()
        if self.settings.durable_before_acknowledged:
            moved = leader.appended(end, flushing.flushed_offset, now_ms)
            flushing.flush()
        else:
            moved = leader.appended(end, end, now_ms)
            if end >= flushing.schedule.look_at:
                flushing.grown()
        for watcher in self.watchers.values():
            watcher.records_arrived()
        if moved:
            self._watermark_moved()

    def on_high_watermark(self, offset: int, done: Acknowledged) -> None:
        """Call `done` once: with NONE when the high watermark reaches `offset`, possibly within this call, or with an
        error that leaves the outcome unknown. Deadlines are up to the caller: `done` may be called after one."""
        leader = self.leader
        if leader is None:
            done(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        elif leader.high_watermark >= offset:
            done(ErrorCode.NONE)
        else:
            self._acknowledgements.wait(offset, done)

    def high_watermark_at(self, offset: int) -> asyncio.Future[ErrorCode]:
        """Return a future that is set once the high watermark reaches `offset` (NONE), or to an error that leaves the
        outcome unknown.
        """
        reached: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        self.on_high_watermark(
            offset, lambda outcome: None if reached.done() else reached.set_result(outcome)
        )
        return reached

    def fetched_by(self, broker_id: int, broker_epoch: int, offset: int) -> None:
        """Take a follower's fetch from `offset` in this leader epoch. Its log agrees with this log below the offset."""
        leader = self.leader
        if leader is None:
            return
        if offset < leader.log_end_offset:
            # A lagging follower, perhaps with less than before, may have to leave the ISR in time.
            self.note_moved()
        if leader.fetched(broker_id, broker_epoch, offset, self._broker.monotonic_ms()):
            self._watermark_moved()

    def advance(self) -> None:
        """Advance the high watermark of a leader if possible, after time has passed or a broker's state has changed."""
        leader = self.leader
        if leader is not None:
            self._advance(leader, self._broker.monotonic_ms())

    def _advance(self, leader: LeaderState, now_ms: int) -> None:
        if leader.advance(now_ms):
            self._watermark_moved()
        self.record_deletion.look()

    def log_start_moved(self) -> None:
        """Notify consumers' fetches and followers' sessions that the log start offset moved."""
        for watcher in self.watchers.values():
            watcher.log_start_moved()
        self.readers.wake()

    def isr_committed(self, leader_epoch: int, partition_epoch: int, isr: Iterable[int]) -> None:
        """Take an ISR that the quorum committed in `leader_epoch`, as its answer says. The metadata feed may have
        contained it before."""
        leader = self.leader
        if leader is None or leader.leader_epoch != leader_epoch:
            return
        now_ms = self._broker.monotonic_ms()
        if leader.update(partition_epoch, isr, leader.replicas, now_ms):
            self._membership_changed(leader, now_ms)

    def flushed(self, offset: int) -> None:
        """Note that a flush of the log up to `offset` has ended. A truncation since then has lowered the recovery
        point, beyond which the flush does not count.
        """
        is_more, leader = self._flushing.flushed(offset), self.leader
        if (
            is_more
            and leader is not None
            and self.settings.durable_before_acknowledged
            and leader.appended(
                self.log.log_end_offset, self._flushing.flushed_offset, self._broker.monotonic_ms()
            )
        ):
            self._watermark_moved()

    def flush_time_over(self) -> None:
        """Flush the log if that is due: flush.ms have passed since `HostBroker.flush_later` was called."""
        self._flushing.time_over()

    def _watermark_moved(self) -> None:
        leader = self.leader
        if leader is None:
            return
        self.note_moved()
        watermark = leader.high_watermark
        self.following.high_watermark = watermark
        self.log.transactions.high_watermark_moved(watermark)
        self._acknowledgements.reached(watermark)
        for watcher in self.watchers.values():
            watcher.high_watermark_moved()
        self.readers.wake()
