"""The groups of one `__consumer_offsets` partition, on the broker that leads it.

A shard runs the pure `Group` machines: it gives them the time, answers the tickets they hand back, keeps one
timer per group, and writes what must survive to its log. Whatever is written counts once it lies below the
high watermark; offsets become visible then, in the order of the log.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Protocol

from ...protocol.errors import ErrorCode, KafkaError
from .classic.group import Group, GroupState
from .classic.membership import Effect, JoinReply, JoinRequest, StoreGroup, SyncReply
from .limits import GroupLimits
from .offsets import CommittedOffset, OffsetStore, TopicPartition
from .records import (
    GroupRecord,
    KeyValue,
    OffsetRecord,
    batch_of,
    group_record,
    offset_record,
    read_records,
    restore_group,
)

_TOMBSTONES_BYTES = 256 * 1024
_TOMBSTONE_BYTES = 32

JoinTicket = Callable[[JoinReply], None]
SyncTicket = Callable[[SyncReply], None]


class OffsetsLog(Protocol):
    """One replicated partition of `__consumer_offsets`, as its leader sees it."""

    def append(self, batch: bytearray, done: Callable[[ErrorCode], None]) -> None:
        """Append one batch; `done` is called once, below the high watermark or with why not."""

    def read_all(self) -> AsyncIterator[memoryview]:
        """Whole batches from the log start to the log end, yielding to the loop in between."""


def new_member_id(base: str) -> str:
    """Member ids are unguessable: knowing one is what lets a client speak for a member."""
    return f"{base}-{uuid.uuid4()}"


class Shard:
    """Groups, their offsets and their timers. Invariant: a group in `groups` is never DEAD."""

    def __init__(
        self, log: OffsetsLog, limits: GroupLimits, now_ms: Callable[[], int], commit_timeout_s: float = 5.0
    ) -> None:
        """`commit_timeout_s` is Kafka's `offsets.commit.timeout.ms`."""
        self._log, self._limits, self._now_ms = log, limits, now_ms
        self._commit_timeout_s = commit_timeout_s
        self._timers: dict[str, asyncio.TimerHandle] = {}
        # Offset commits that are being written, by group.
        self._commits: Counter[str] = Counter()
        self.groups: dict[str, Group] = {}
        self.offsets = OffsetStore()
        self.loaded = False
        self.closed = False

    # ------------------------------------------------------------ life

    async def load(self) -> None:
        """Replay the log. Until it is done every request is answered COORDINATOR_LOAD_IN_PROGRESS."""
        stored: dict[str, GroupRecord] = {}
        async for data in self._log.read_all():
            if self.closed:
                return
            for record in read_records(data):
                if isinstance(record, GroupRecord):
                    stored[record.group_id] = record
                elif record.committed is None:
                    self.offsets.remove(record.group_id, record.partition)
                else:
                    self.offsets.put(record.group_id, record.partition, record.committed)
        if self.closed:
            return
        now = self._now_ms()
        for group_id, record in stored.items():
            if record.value is not None:
                self.groups[group_id] = restore_group(record, self._limits, new_member_id, now)
                self._set_timer(self.groups[group_id])
        for group_id in self.offsets.groups():
            self._make_group(group_id)
        self.loaded = True

    def _make_group(self, group_id: str) -> Group:
        """The group, made if need be: offsets alone make one, too."""
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = Group(group_id, self._limits, new_member_id)
        return group

    def close(self) -> None:
        """Another broker leads this shard now: everyone waiting is sent there."""
        self.closed = True
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        for group in self.groups.values():
            for effect in group.kill(self._now_ms()):
                _answer(effect)
        self.groups.clear()

    # ------------------------------------------------------------ membership

    def join(self, group_id: str, request: JoinRequest, reply: JoinTicket) -> None:
        """JoinGroup; a new group is made only for a member without an id."""
        group = self.groups.get(group_id)
        if group is None:
            if request.member_id:
                reply(JoinReply(reply, ErrorCode.UNKNOWN_MEMBER_ID, request.member_id))
                return
            group = self._make_group(group_id)
        self._perform(group, group.join(request, reply, self._now_ms()))

    def sync(
        self,
        group_id: str,
        member_id: str,
        instance_id: str | None,
        generation: int,
        assignments: Mapping[str, bytes],
        protocol_type: str | None,
        protocol: str | None,
        reply: SyncTicket,
    ) -> None:
        """SyncGroup."""
        group = self.groups.get(group_id)
        if group is None:
            reply(SyncReply(reply, ErrorCode.UNKNOWN_MEMBER_ID))
            return
        effects = group.sync(
            member_id, instance_id, generation, assignments, reply, self._now_ms(), protocol_type, protocol
        )
        self._perform(group, effects)

    def heartbeat(self, group_id: str, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """Heartbeat; cheap: the timer is only moved when it fires."""
        group = self.groups.get(group_id)
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return group.heartbeat(member_id, instance_id, generation, self._now_ms())

    def leave(self, group_id: str, member_id: str, instance_id: str | None) -> ErrorCode:
        """One member of a LeaveGroup."""
        group = self.groups.get(group_id)
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        error, effects = group.leave(member_id, instance_id, self._now_ms())
        self._perform(group, effects)
        return error

    # ------------------------------------------------------------ offsets

    def commit(
        self,
        group_id: str,
        member_id: str,
        instance_id: str | None,
        generation: int,
        offsets: Mapping[TopicPartition, CommittedOffset],
        done: Callable[[ErrorCode], None],
    ) -> None:
        """Store offsets; `done` once they are visible, or with the reason why they will not be."""
        group = self.groups.get(group_id)
        if group is None:
            if generation >= 0:
                done(ErrorCode.ILLEGAL_GENERATION)
                return
            group = Group(group_id, self._limits, new_member_id)
        error = group.check_commit(member_id, instance_id, generation, self._now_ms())
        if error is not ErrorCode.NONE or not offsets:
            done(error)
            return

        def show() -> None:
            self._make_group(group_id)
            for partition, committed in offsets.items():
                self.offsets.put(group_id, partition, committed)

        def written(outcome: ErrorCode) -> None:
            self._commits[group_id] -= 1
            if not self._commits[group_id]:
                del self._commits[group_id]
            done(outcome)

        self._commits[group_id] += 1
        self._write((offset_record(OffsetRecord(group_id, p, c)) for p, c in offsets.items()), written, show)

    def forget_topic(self, topic: str) -> None:
        """A topic was deleted: offsets in it must not be found by a later topic of the same name."""
        self._forget_offsets(list(self.offsets.of_topic(topic)))

    def _forget_offsets(self, gone: list[tuple[str, TopicPartition]]) -> None:
        """At once, and in batches that the log takes; a commit that is written already goes with them."""

        def remove(some: Sequence[tuple[str, TopicPartition]]) -> None:
            for group_id, partition in some:
                self.offsets.remove(group_id, partition)

        remove(gone)
        batch: list[tuple[str, TopicPartition]] = []
        size = 0
        for group_id, partition in gone:
            batch.append((group_id, partition))
            size += len(group_id.encode()) + len(partition[0]) + _TOMBSTONE_BYTES
            if size >= _TOMBSTONES_BYTES:
                self._write_tombstones(batch, partial(remove, batch))
                batch, size = [], 0
        if batch:
            self._write_tombstones(batch, partial(remove, batch))

    def _write_tombstones(self, gone: Iterable[tuple[str, TopicPartition]], show: Callable[[], None]) -> None:
        records = [offset_record(OffsetRecord(group_id, partition, None)) for group_id, partition in gone]
        self._write(records, lambda _outcome: None, show)

    def expire(self) -> None:
        """Forget offsets that were committed, and whose group was left, longer than the retention ago, and
        then groups that have neither members nor offsets."""
        now, retention = self._now_ms(), self._limits.offsets_retention_ms
        gone: list[tuple[str, TopicPartition]] = []
        for group in list(self.groups.values()):
            group_id = group.group_id
            if group.state is not GroupState.EMPTY or group.pending_ids or group_id in self._commits:
                continue
            left_ms = group.state_changed_ms if group.protocol_type else 0
            offsets = self.offsets.of_group(group_id)
            old = [p for p, each in offsets.items() if now - max(left_ms, each.commit_time_ms) >= retention]
            gone += ((group_id, partition) for partition in old)
            if len(old) == len(offsets):
                self._forget_group(group)
                if group.generation > 0:
                    self._write([group_record(group)], lambda _outcome: None)
        self._forget_offsets(gone)

    def _forget_group(self, group: Group) -> None:
        group.kill(self._now_ms())
        del self.groups[group.group_id]
        timer = self._timers.pop(group.group_id, None)
        if timer is not None:
            timer.cancel()

    def delete_group(self, group_id: str, done: Callable[[ErrorCode], None]) -> None:
        """Remove a group without members, and its offsets (GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP)."""
        group = self.groups.get(group_id)
        offsets = self.offsets.of_group(group_id)
        if group is None and not offsets:
            done(ErrorCode.GROUP_ID_NOT_FOUND)
            return
        tombstones: list[KeyValue] = [offset_record(OffsetRecord(group_id, p, None)) for p in offsets]
        if group is not None:
            try:
                group.check_deletable()
            except KafkaError as error:
                done(error.code)
                return
            self._forget_group(group)
            tombstones.append(group_record(group))

        def forget() -> None:
            for partition in offsets:
                self.offsets.remove(group_id, partition)

        forget()
        # Once more when that is committed: commits on their way have shown theirs meanwhile.
        self._write(tombstones, done, forget)

    # ------------------------------------------------------------ effects

    def _perform(self, group: Group, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, StoreGroup):
                self._store(group, effect.generation)
            else:
                _answer(effect)
        self._set_timer(group)

    def _store(self, group: Group, generation: int) -> None:
        def written(outcome: ErrorCode) -> None:
            if not self.closed:
                self._perform(group, group.stored(generation, outcome, self._now_ms()))

        self._write([group_record(group)], written)

    def _write(
        self,
        records: Iterable[KeyValue],
        done: Callable[[ErrorCode], None],
        show: Callable[[], None] = lambda: None,
    ) -> None:
        """Append records: `show` once they are committed, however late; `done` with outcome or timeout."""
        late = False

        def time_out() -> None:
            nonlocal late
            late = True
            done(ErrorCode.COORDINATOR_NOT_AVAILABLE)

        def written(error: ErrorCode) -> None:
            timer.cancel()
            if error is ErrorCode.NONE and not self.closed:
                show()
            if not late:
                done(_for_clients(error))

        timer = asyncio.get_running_loop().call_later(self._commit_timeout_s, time_out)
        self._log.append(batch_of(list(records), self._now_ms()), written)

    # ------------------------------------------------------------ time

    def _set_timer(self, group: Group) -> None:
        """One timer per group, set no later than its next deadline; heartbeats do not touch it."""
        deadline = group.next_deadline_ms
        timer = self._timers.get(group.group_id)
        if deadline is None or self.closed:
            if timer is not None:
                timer.cancel()
                del self._timers[group.group_id]
            return
        loop = asyncio.get_running_loop()
        delay_s = max(0, deadline - self._now_ms()) / 1e3
        if timer is not None:
            if not timer.cancelled() and timer.when() <= loop.time() + delay_s:
                return
            timer.cancel()
        self._timers[group.group_id] = loop.call_later(delay_s, self._tick, group)

    def _tick(self, group: Group) -> None:
        self._timers.pop(group.group_id, None)
        if self.groups.get(group.group_id) is group:
            self._perform(group, group.tick(self._now_ms()))


def _answer(effect: Effect) -> None:
    if isinstance(effect, StoreGroup):
        return
    reply = effect.ticket
    assert callable(reply)
    reply(effect)


_CLIENT_ERRORS = {
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
}


def _for_clients(error: ErrorCode) -> ErrorCode:
    """What a failed write to the offsets log means to a group member, as Kafka maps it."""
    return _CLIENT_ERRORS.get(error, error)
