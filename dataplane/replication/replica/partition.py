"""One replica on this broker: its log, its role, and everybody who waits for it.

The role is a `LeaderState` or a `FollowerState`; both are replaced by a new object for each leader epoch. Who
waits is told in the same loop turn in which the log grows or the high watermark moves:

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
    """A replica of one partition. Invariant: log start offset <= high watermark <= log end offset."""

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
        """The mirror whose copy it is now; empty for a partition that takes records from producers."""
        self.leader: LeaderState | None = None
        self.follower: FollowerState | None = None
        self.watchers: dict[int, Watcher] = {}
        self.traffic = Traffic()
        self.record_deletion = RecordDeletion(self)
        self._broker = broker
        self.note_moved = partial(broker.moved.note, self)
        """Called where its log, its high watermark, its role or what it knows of followers changes."""
        log.on_move = self.note_moved
        self._acknowledgements = Acknowledgements()
        self.readers = Readers()
        self._flushing = Flushing(
            log, settings, partial(broker.flush, self), partial(broker.flush_later, self)
        )
        self.following = Following(self, broker, self._flushing, self.readers, high_watermark)

    def __repr__(self) -> str:
        return f"<{self.topic}-{self.index}>"

    # What everybody may ask

    @property
    def high_watermark(self) -> int:
        leader = self.leader
        return self.following.high_watermark if leader is None else leader.high_watermark

    @property
    def acknowledged_offset(self) -> int:
        """How far this replica acknowledges: a follower fetches from here."""
        return (
            self._flushing.flushed_offset
            if self.settings.durable_before_acknowledged
            else self.log.log_end_offset
        )

    @property
    def leader_epoch(self) -> int:
        """Of the current role; -1 before the first."""
        role = self.leader or self.follower
        return -1 if role is None else role.leader_epoch

    @property
    def partition_epoch(self) -> int:
        role = self.leader or self.follower
        return -1 if role is None else role.partition_epoch

    def end_of_epoch(self, epoch: int) -> EpochEnd:
        """The largest epoch of this log that is not above `epoch`, and where it ends."""
        return EpochEnd(*self.log.leader_epochs.end_offset_for(epoch, self.log.log_end_offset))

    def leading(self, current_leader_epoch: int = -1) -> LeaderState:
        """This replica's leadership, for a request that believes in `current_leader_epoch` (-1: it does not
        say).

        KafkaError: NOT_LEADER_OR_FOLLOWER; FENCED_LEADER_EPOCH if the request is behind, UNKNOWN_LEADER_EPOCH
        if this broker is (KIP-320).
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
        """Whether this replica leads, or follows, in the epoch that a request believes in. KafkaError as
        `leading` says."""
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
        """AssertionError if role, log and waiters contradict each other. `log.check()` looks into the log."""
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
        """Lead in `state.leader_epoch`, or take the newer partition epoch of the leadership there is, and look again
        whether its high watermark may move.

        The epoch is in the log before the first record of it. True if a new leadership began.
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
        # Whoever waits for an acknowledgement of an older epoch, in which it led, too, goes on waiting: nothing is cut
        # off here. The new epoch fences a replica that went.
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
        """Before it leads: have the log of a copy end at `offset`: its mirror begins or goes on there."""
        self._leave_role(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.following.end_at(offset)

    def become_follower(self, state: PartitionState) -> bool:
        """Follow `state.leader` (-1: nobody for now). True if the leader epoch is new to this replica."""
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
            # Found at the start, or led without a flush: until it is flushed this replica fetches nothing.
            self._flushing.flush()
        self._role_changed()
        return True

    def _forget_impossible_epochs(self, leader_epoch: int) -> None:
        """The epochs of a log that was recovered are what its batches say, which no checksum covers. Where they are
        above all there have been, the records count as of the epoch before: the next fetch, or those of the followers,
        find out how far that is so."""
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
        """This replica goes away (deleted, reassigned, its disk failed, the broker stops): everyone waiting
        is told `error`."""
        watermark = self.high_watermark
        self._leave_role(error)
        self.following.high_watermark = watermark
        self._role_changed()

    def replace_log(self, log: PartitionLog) -> None:
        """Go on with a log that holds the same records in another folder. The old one must stay until this one
        is flushed: what counts as durable is so in there."""
        self.log = log
        log.on_move = self.note_moved
        self.note_moved()
        self._flushing.replace_log(log)

    def _leave_role(self, error: ErrorCode) -> None:
        led = self.leader is not None
        self.leader = self.follower = None
        if led:  # Nobody waits for a replica that does not lead.
            self._acknowledgements.failed(error)
            self.record_deletion.failed(error)

    def _role_changed(self) -> None:
        self.note_moved()
        if self.watchers:
            for watcher in list(self.watchers.values()):
                watcher.role_changed()
        self.readers.wake()

    def reconfigure(self, settings: ReplicationSettings) -> None:
        """Take new settings of the topic."""
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
        """Take a min.insync.replicas of the topic that is higher than the one before."""
        if min_in_sync > self.settings.min_in_sync:
            self.reconfigure(replace(self.settings, min_in_sync=min_in_sync))

    def _membership_changed(self, leader: LeaderState, now_ms: int) -> None:
        """Who waits goes on waiting where the ISR is too small now: what was appended counts once it is large enough
        again (KIP-966)."""
        self.note_moved()
        self._advance(leader, now_ms)

    # Leading

    def wall_ms(self) -> int:
        """The time, in ms since 1970, by which producers' timestamps are judged."""
        return self._broker.wall_ms()

    def append(
        self, batches: memoryview, *, required_acks: int, max_timestamp: int | None = None
    ) -> AppendResult:
        """Append what a producer sent (writable: offsets and the epoch are patched in place). With `max_timestamp` its
        records were validated before, and that is their largest timestamp.

        With `required_acks` -1 nothing is appended unless the ISR has min.insync.replicas members; the caller
        then waits with `on_high_watermark(result.last_offset + 1, ...)`. What is in the log already is a duplicate,
        however many members there are. KafkaError says why nothing was appended.
        """
        leader = self.leader
        if leader is None:
            # Before its producer's next batch comes, this replica may hear that it leads.
            self.log.produced.refused_for_now(batches)
            leader = self.leading()
        if self.copy_of:
            self.check_is_no_copy()
        if required_acks == -1 and leader.under_min_in_sync:
            original = self.log.produced.original_of(batches)
            if original is not None:
                return original
            self.log.produced.refused_for_now(batches)
            raise self._too_few_in_sync(leader)
        result = self.log.produced.append(batches, leader.leader_epoch, self._broker.wall_ms(), max_timestamp)
        if not result.duplicate:
            self._appended(leader)
        return result

    def append_unsequenced(self, batches: memoryview) -> int:
        """Append, with acks=all, what this broker has composed itself (writable); the offset behind it.

        KafkaError: NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS, KAFKA_STORAGE_ERROR; nothing was appended.
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
        """KafkaError, POLICY_VIOLATION, while its mirror is not promoted."""
        if self.copy_of:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"topic {self.topic} is the copy of mirror {self.copy_of}: it takes no records until that is promoted",
            )

    def append_copied(self, batches: memoryview) -> None:
        """Append what the source of this copy has (writable: leader epochs are patched in place).

        KafkaError: NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR, and what `log.copies.append_copied` raises.
        """
        leader = self.leading()
        append_copied(self.log, batches, leader.leader_epoch, self._broker.wall_ms())
        self._appended(leader)

    def append_marker(
        self, producer_id: int, producer_epoch: int, *, commit: bool, number: int, commit_index: int
    ) -> int:
        """Append the marker that ends a writer's transaction; the offset behind it.

        It counts once the high watermark has passed it; until the ISR is large enough for that it waits.
        KafkaError: NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR.
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
        """Take nobody into the ISR of this leadership until `open_isr`: who is in it may lead cleanly."""
        self.leading().joins_from = NOBODY_JOINS

    def open_isr(self) -> None:
        """Take followers into the ISR that have all that is in the log now."""
        leader = self.leading()
        leader.joins_from = leader.log_end_offset

    def _appended(self, leader: LeaderState) -> None:
        """Something is at the end of the log: flush it, offer it to followers, look at the high watermark."""
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
        """Call `done` once: with NONE when the high watermark reaches `offset` (perhaps within this call), or
        with the error that makes the outcome unknown. A deadline is the caller's: `done` may come after it.
        """
        leader = self.leader
        if leader is None:
            done(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        elif leader.high_watermark >= offset:
            done(ErrorCode.NONE)
        else:
            self._acknowledgements.wait(offset, done)

    def high_watermark_at(self, offset: int) -> asyncio.Future[ErrorCode]:
        """What `on_high_watermark` tells, to be awaited."""
        told: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        self.on_high_watermark(offset, lambda outcome: None if told.done() else told.set_result(outcome))
        return told

    def fetched_by(self, broker_id: int, broker_epoch: int, offset: int) -> None:
        """A follower fetches from `offset` in this leader epoch, and its log agrees with ours below it."""
        leader = self.leader
        if leader is None:
            return
        if offset < leader.log_end_offset:
            self.note_moved()  # It lags, perhaps behind what it had before: time may come to count against it.
        if leader.fetched(broker_id, broker_epoch, offset, self._broker.monotonic_ms()):
            self._watermark_moved()

    def advance(self) -> None:
        """Look again whether the high watermark may move: time passed or a broker's state changed."""
        leader = self.leader
        if leader is not None:
            self._advance(leader, self._broker.monotonic_ms())

    def _advance(self, leader: LeaderState, now_ms: int) -> None:
        if leader.advance(now_ms):
            self._watermark_moved()
        self.record_deletion.look()

    def log_start_moved(self) -> None:
        """The log starts later now: readers hear of it, and followers if this replica leads."""
        for watcher in self.watchers.values():
            watcher.log_start_moved()
        self.readers.wake()

    def isr_committed(self, leader_epoch: int, partition_epoch: int, isr: Iterable[int]) -> None:
        """The quorum answered that it committed this ISR in `leader_epoch` (the metadata feed may have said
        so first)."""
        leader = self.leader
        if leader is None or leader.leader_epoch != leader_epoch:
            return
        now_ms = self._broker.monotonic_ms()
        if leader.update(partition_epoch, isr, leader.replicas, now_ms):
            self._membership_changed(leader, now_ms)

    def flushed(self, offset: int) -> None:
        """Everything below `offset` was on the disk; a cut since then has lowered the recovery point."""
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
        """flush.ms have passed since `HostBroker.flush_later` was called."""
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
