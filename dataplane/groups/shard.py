"""The groups of one `__consumer_offsets` partition, on the broker that leads the partition.

A shard runs the pure state machines of its groups: classic groups here, consumer groups in `consumer_shell`, share
groups in `share_shell`. It passes them the time, answers the tickets that they return, keeps one timer per group, and
writes what must survive to its log. A record counts once it lies below the high watermark. Offsets become visible then,
in the order of the log.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from ...protocol.errors import ErrorCode, KafkaError
from ..coordinated_log.batches import BatchWriter, KeyValue, TransactionEnd
from ..coordinated_log.log import CoordinatedLog
from ..runtime.retained_bytes import RetainedClaim
from .classic.group import ClassicGroup
from .classic.membership import Effect, JoinReply, JoinRequest, StoreGroup, SyncReply
from .classic.states import GroupState
from .commit_checks import Committer, check_commit, check_transactional_commit
from .consumer.group import ConsumerGroup
from .consumer.offset_checks import check_fetch
from .consumer_shell import ConsumerGroups
from .dependencies import GroupDependencies
from .expiry import consumed_topics, expired, may_go
from .group_table import AnyGroup, GroupTable
from .limits import GroupLimits
from .offsets import CommittedOffset, OffsetStore, TopicPartition
from .pending_offsets import AFTER_ALL
from .records import OffsetRecord, group_record, offset_record
from .replay import Replay
from .share.group import ShareGroup
from .share_shell import ShareGroups
from .writes import ShardWrites

_TOMBSTONES_BYTES = 256 * 1024
_TOMBSTONE_BYTES = 32
_EXPIRED_AT_ONCE = 5_000

JoinTicket = Callable[[JoinReply], None]
SyncTicket = Callable[[SyncReply], None]


def new_member_id(base: str) -> str:
    """Return a new member id. It cannot be guessed, because a client that knows the id can act as the member."""
    from uuid import uuid4

    return f"{base}-{uuid4()}"


class Shard:
    """The groups of one `__consumer_offsets` partition on its leader, with their committed offsets and their timers.

    Invariants: no group in `groups` is DEAD; every group with offsets is in `groups` once the shard is loaded.
    """

    def __init__(
        self,
        log: CoordinatedLog,
        limits: GroupLimits,
        now_ms: Callable[[], int],
        dependencies: GroupDependencies | None = None,
    ) -> None:
        self._log, self._limits, self._now_ms = log, limits, now_ms
        dependencies = dependencies or GroupDependencies()
        self._memory = dependencies.memory.of_shard()
        self._dependencies = replace(dependencies, memory=self._memory)
        self._writes = ShardWrites(log, self._dependencies.wall_ms or now_ms, limits.commit_timeout_ms / 1000)
        self._table = GroupTable(now_ms, self._due)
        # Markers that came below the high watermark while the log was being read.
        self._ended: list[TransactionEnd] = []
        # Offset commits that are being written, by group.
        self._commits: Counter[str] = Counter()
        self.offsets = OffsetStore()
        self.consumer = ConsumerGroups(
            self._table, self._writes, limits, self._dependencies, now_ms, new_member_id, _answer
        )
        self.share = ShareGroups(self._table, self._writes, limits.share, self._dependencies, now_ms)
        self.loaded = False
        self.closed = False

    @property
    def groups(self) -> Mapping[str, AnyGroup]:
        """The shard's groups by id; no group is dead."""
        return self._table.groups

    def has_members(self, group_id: str) -> bool:
        """Return whether a group has members."""
        group = self.groups.get(group_id)
        return group is not None and bool(group.members)

    # ------------------------------------------------------------ life

    async def load(self) -> None:
        """Rebuild the shard's groups and offsets from its log. Until then every request gets
        COORDINATOR_LOAD_IN_PROGRESS."""
        self.offsets = OffsetStore()
        # These markers are in the log, too.
        self._ended.clear()
        replay = Replay(self.offsets, self._memory.count)
        async for data in self._log.read_all():
            if self.closed:
                return
            replay.feed(data)
        if self.closed:
            return
        for group in replay.groups(self._limits, self._dependencies, new_member_id, self._now_ms()):
            self._memory.count_restored(group)
            self._table.put(group)
            self._table.schedule(group)
        for group_id in [*self.offsets.groups(), *self.offsets.pending.groups()]:
            self._make_sure_of(group_id)
        self.loaded = True
        ended, self._ended = self._ended, []
        for end in ended:
            self.transaction_ended(end.producer_id, end.end_offset, committed=end.committed)

    def _make_sure_of(self, group_id: str, claim: RetainedClaim | None = None) -> None:
        """Create an empty classic group if the group is missing: every group with offsets has to be in the table."""
        if group_id not in self.groups:
            self._table.put(ClassicGroup(group_id, self._limits, new_member_id, claim=claim))

    def close(self) -> None:
        """Redirect all waiting clients, as another broker leads this shard now."""
        self.closed = self._writes.closed = True
        self._table.close()
        self.share.close()
        for group in self.groups.values():
            if isinstance(group, ClassicGroup):
                for effect in group.kill(self._now_ms()):
                    _answer(effect)
        self._table.groups.clear()
        self._memory.end()

    def check(self) -> None:
        """Verify the shard. Raises AssertionError if it contradicts itself. Every group, member and offset is
        examined."""
        self._table.check()
        self.offsets.check()
        if min(self._commits.values(), default=1) <= 0:
            raise AssertionError(f"less than no commits are being written: {self._commits}")
        if self.loaded and not self.closed:
            lost = [group_id for group_id in self.offsets.groups() if group_id not in self.groups]
            if lost:
                raise AssertionError(f"offsets of the groups {lost}, which are not here")

    # ------------------------------------------------------------ membership

    def join(self, group_id: str, request: JoinRequest, reply: JoinTicket) -> None:
        """Handle JoinGroup. A new group is created only for a member without an id."""
        group = self.groups.get(group_id)
        member = None if group is None else group.members.get(request.member_id)
        try:
            claim = self._memory.joining(request, request.holders, None if member is None else member.claim)
        except KafkaError as error:
            reply(JoinReply(reply, error.code, request.member_id))
            return
        request = replace(request, claim=claim)
        if isinstance(group, ClassicGroup):
            self._perform(group, group.join(request, reply, self._now_ms()))
        elif isinstance(group, ShareGroup):
            reply(JoinReply(reply, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, ""))
        elif group is not None and group.members:
            self.consumer.join(group, request, reply)
        elif request.member_id:
            reply(JoinReply(reply, ErrorCode.UNKNOWN_MEMBER_ID, request.member_id))
        else:
            self._join_first(group_id, group, request, reply)

    def _join_first(
        self, group_id: str, empty: ConsumerGroup | None, request: JoinRequest, reply: JoinTicket
    ) -> None:
        """Create a classic group if the request makes its sender a member or a pending member.

        Only then does the group replace an empty consumer group. Offsets without a group would never expire, and in a
        new group they expire sooner.
        """
        try:
            claim = self._memory.group(group_id, request.holders)
        except KafkaError as error:
            reply(JoinReply(reply, error.code, request.member_id))
            return
        group = ClassicGroup(group_id, self._limits, new_member_id, claim=claim)
        effects = group.join(request, reply, self._now_ms())
        if group.members or group.pending_ids:
            if empty is not None:
                self._writes.write(self.consumer.bury(empty), lambda _outcome: None, insist=True)
            self._table.put(group)
        self._perform(group, effects)

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
        holders: tuple[str, ...] = (),
    ) -> None:
        """Handle SyncGroup: `reply` gets the member's assignment or an error. The memory of the assignments is claimed
        to the account of `holders`."""
        group = self._group_of_consumers(group_id)
        if group is None:
            reply(SyncReply(reply, ErrorCode.UNKNOWN_MEMBER_ID))
            return
        if isinstance(group, ConsumerGroup):
            self.consumer.sync(group, member_id, instance_id, generation, (protocol_type, protocol), reply)
            return
        if assignments and member_id == group.leader and group.state is GroupState.COMPLETING_REBALANCE:
            assignments = {name: data for name, data in assignments.items() if name in group.members}
            try:
                group.assignment_claim = self._memory.assigning(assignments, holders, group.assignment_claim)
            except KafkaError as error:
                reply(SyncReply(reply, error.code))
                return
        effects = group.sync(
            member_id, instance_id, generation, assignments, reply, self._now_ms(), protocol_type, protocol
        )
        self._perform(group, effects)

    def heartbeat(self, group_id: str, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """Handle Heartbeat. It is cheap: the timer is only moved when it fires."""
        group = self.groups.get(group_id)
        if isinstance(group, ClassicGroup):
            return group.heartbeat(member_id, instance_id, generation, self._now_ms())
        if isinstance(group, ConsumerGroup):
            return self.consumer.classic_heartbeat(group, member_id, instance_id, generation)
        return ErrorCode.UNKNOWN_MEMBER_ID

    def leave(self, group_id: str, member_id: str, instance_id: str | None) -> ErrorCode:
        """Remove one member that a LeaveGroup request names; return the error for it."""
        group = self._group_of_consumers(group_id)
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if isinstance(group, ConsumerGroup):
            return self.consumer.leave(group, member_id, instance_id)
        error, effects = group.leave(member_id, instance_id, self._now_ms())
        self._perform(group, effects)
        return error

    def _group_of_consumers(self, group_id: str) -> ClassicGroup | ConsumerGroup | None:
        """Return the group if members of the classic protocol may be in it. A share group has no such members."""
        group = self.groups.get(group_id)
        return None if isinstance(group, ShareGroup) else group

    # ------------------------------------------------------------ offsets

    def commit(
        self,
        group_id: str,
        member_id: str,
        instance_id: str | None,
        generation: int,
        offsets: Mapping[TopicPartition, CommittedOffset],
        done: Callable[[ErrorCode], None],
        *,
        knows_epochs: bool = True,
        holders: tuple[str, ...] = (),
    ) -> None:
        """Store offsets. `done` gets NONE once they are visible, or else the error.

        `knows_epochs`: true from OffsetCommit 9 on, which consumer groups need. `holders` claim the memory.
        """
        who = Committer(member_id, instance_id, generation)
        error = check_commit(
            self.groups.get(group_id), who, _held(offsets), self._now_ms(), knows_epochs=knows_epochs
        )
        if error is not ErrorCode.NONE or not offsets:
            done(error)
            return
        claim = self._claimed(group_id, offsets, holders)
        if isinstance(claim, ErrorCode):
            done(claim)
            return

        def show(position: int) -> None:
            self._make_sure_of(group_id, claim)
            for partition, committed in offsets.items():
                self.offsets.put(group_id, partition, committed, position)

        written = self._committing(group_id, done)
        self._writes.write(_records(group_id, offsets), written, show)

    def commit_in_transaction(
        self,
        group_id: str,
        who: Committer,
        writer: BatchWriter,
        offsets: Mapping[TopicPartition, CommittedOffset],
        done: Callable[[ErrorCode], None],
        *,
        knows_epochs: bool = True,
        holders: tuple[str, ...] = (),
    ) -> None:
        """Append offsets that count once the writer's transaction commits.

        `done` gets NONE once the offsets are below the high watermark, or else the reason why they are not, or may not
        be. The offsets are in the log when this method returns, unless `done` got an error. So the caller checks in the
        same turn of the event loop that the transaction is open here. `knows_epochs`: true from TxnOffsetCommit 6 on.
        `holders` claim the memory.
        """
        group = self.groups.get(group_id)
        error = check_transactional_commit(group, who, _held(offsets), knows_epochs=knows_epochs)
        if error is not ErrorCode.NONE or not offsets:
            done(error)
            return
        claim = self._claimed(group_id, offsets, holders)
        if isinstance(claim, ErrorCode):
            done(claim)
            return

        def appended(position: int) -> None:
            for partition, committed in offsets.items():
                self.offsets.pending.add(writer.producer_id, group_id, partition, committed, position)

        def show() -> None:
            # If no offset is pending, the group was deleted meanwhile.
            if self.offsets.pending.of_group(group_id):
                self._make_sure_of(group_id, claim)

        written = self._committing(group_id, done)
        self._writes.write_transactional(_records(group_id, offsets), writer, written, appended, show)

    def _claimed(
        self, group_id: str, offsets: Mapping[TopicPartition, CommittedOffset], holders: tuple[str, ...]
    ) -> RetainedClaim | ErrorCode | None:
        """Claim memory for committed offsets, to the account of `holders`. Return the claim of their group if the group
        is missing, or an error."""
        if not self._memory.committing(offsets, holders, self.offsets.view(group_id)):
            return ErrorCode.INVALID_COMMIT_OFFSET_SIZE
        try:
            return None if group_id in self.groups else self._memory.group(group_id, holders)
        except KafkaError:
            return ErrorCode.INVALID_COMMIT_OFFSET_SIZE

    def transaction_ended(self, producer_id: int, end_offset: int, *, committed: bool) -> None:
        """Apply a marker that is below the high watermark: the last record below `end_offset`.

        The producer's pending offsets before the marker become committed offsets, or are dropped. Callers must call
        this before they answer any client that the transaction is over.
        """
        if self.closed:
            return
        if not self.loaded:
            self._ended.append(TransactionEnd(producer_id, committed, end_offset))
            return
        for group_id in self.offsets.end_transaction(producer_id, end_offset, committed=committed):
            self._make_sure_of(group_id)

    def _committing(self, group_id: str, done: Callable[[ErrorCode], None]) -> Callable[[ErrorCode], None]:
        """Keep the group from expiring until the caller calls the returned function, which then calls `done`."""

        def written(outcome: ErrorCode) -> None:
            self._commits[group_id] -= 1
            if not self._commits[group_id]:
                del self._commits[group_id]
            done(outcome)

        self._commits[group_id] += 1
        return written

    def check_fetch(self, group_id: str, member_id: str | None, epoch: int) -> ErrorCode:
        """Return the error if this member may not read the group's committed offsets; NONE if it may. Any client may
        read those of a classic group. A share group has none, which is no error, as in Kafka."""
        group = self.groups.get(group_id)
        return check_fetch(group, member_id, epoch) if isinstance(group, ConsumerGroup) else ErrorCode.NONE

    def forget(self, is_gone: Callable[[TopicPartition, CommittedOffset], bool]) -> None:
        """Remove offsets of logs that are gone: later topics of the same names must not find them."""
        self._forget_offsets(list(self.offsets.select(is_gone)))

    def _forget_offsets(self, gone: list[tuple[str, TopicPartition]]) -> None:
        """Remove offsets from memory at once, and from the log in batches of a size that it accepts.

        A commit that is already being written is removed, too.
        """

        def remove(some: Sequence[tuple[str, TopicPartition]], position: int = AFTER_ALL) -> None:
            for group_id, partition in some:
                self.offsets.remove(group_id, partition, position)

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

    def _write_tombstones(
        self, gone: Iterable[tuple[str, TopicPartition]], show: Callable[[int], None]
    ) -> None:
        records = [offset_record(OffsetRecord(group_id, partition, None)) for group_id, partition in gone]
        self._writes.write(records, lambda _outcome: None, show, insist=True)

    def expire(self) -> None:
        """Remove offsets that have expired by the rules of `expiry`, and then groups that have neither members nor
        offsets.

        If there are very many, the rest wait for the next call. Offsets expire only by both clocks: one clock may have
        been wrong when this process began, and the other may be wrong now.
        """
        steady_ms, wall_ms = self._now_ms(), self._dependencies.wall_ms
        now = steady_ms if wall_ms is None else min(steady_ms, wall_ms())
        gone: list[tuple[str, TopicPartition]] = []
        for group in list(self.groups.values()):
            group_id = group.group_id
            if len(gone) >= _EXPIRED_AT_ONCE:
                break
            if group_id in self._commits:
                continue
            offsets = self.offsets.of_group(group_id)
            pending = self.offsets.pending.of_group(group_id)
            old = set(expired(group, offsets, now, self._limits.offsets_retention_ms)).difference(pending)
            gone += ((group_id, partition) for partition in offsets if partition in old)
            if len(old) == len(offsets) and not pending and may_go(group):
                tombstones = self._bury(group)
                if tombstones:
                    self._writes.write(tombstones, lambda _outcome: None, insist=True)
        self._forget_offsets(gone)
        self._writes.settle_debts()

    def _bury(self, group: AnyGroup) -> list[KeyValue]:
        """Drop a group without members; return its tombstones."""
        if isinstance(group, ConsumerGroup):
            return self.consumer.bury(group)
        if isinstance(group, ShareGroup):
            return self.share.bury(group)
        for effect in group.kill(self._now_ms()):
            _answer(effect)
        self._table.drop(group.group_id)
        return [group_record(group)] if group.generation > 0 else []

    def delete_offsets(
        self,
        group_id: str,
        partitions: Sequence[TopicPartition],
        done: Callable[[ErrorCode, frozenset[str]], None],
    ) -> None:
        """Handle OffsetDelete. `done` gets the outcome, and the topics whose offsets stay because members consume them.

        Raises KafkaError: GROUP_ID_NOT_FOUND, or NON_EMPTY_GROUP if the members do not say which topics they consume.
        """
        group = self.groups.get(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
        consumed = consumed_topics(group, {topic for topic, _ in partitions})
        known = set(self.offsets.known_partitions(group_id))
        gone = [
            (group_id, partition)
            for partition in partitions
            if partition[0] not in consumed and partition in known
        ]
        if not gone:
            done(ErrorCode.NONE, consumed)
            return

        def forget(position: int) -> None:
            for _, partition in gone:
                self.offsets.remove(group_id, partition, position)

        records = [offset_record(OffsetRecord(group_id, partition, None)) for _, partition in gone]
        self._writes.write(records, lambda outcome: done(outcome, consumed), forget)

    def delete_group(self, group_id: str, done: Callable[[ErrorCode], None]) -> None:
        """Remove a group without members, and its offsets. `done` gets the outcome: GROUP_ID_NOT_FOUND,
        NON_EMPTY_GROUP.

        The states of a share group are deleted first. If that fails, `done` gets the error, and the group stays.
        """
        group = self.groups.get(group_id)
        if not isinstance(group, ShareGroup):
            self._delete_stateless(group_id, done)
            return

        def states_deleted(code: ErrorCode) -> None:
            if code is ErrorCode.NONE:
                self._delete_stateless(group_id, done)
            else:
                done(code)

        self.share.delete_states(group, states_deleted)

    def _delete_stateless(self, group_id: str, done: Callable[[ErrorCode], None]) -> None:
        group = self.groups.get(group_id)
        offsets = self.offsets.known_partitions(group_id)
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
            tombstones += self._bury(group)

        def forget(position: int = AFTER_ALL) -> None:
            for partition in offsets:
                self.offsets.remove(group_id, partition, position)
            # A commit that was being written may have created the group again.
            left = self.groups.get(group_id)
            made_since = isinstance(left, ClassicGroup) and left.generation == 0 and may_go(left)
            if made_since and not self.offsets.known_partitions(group_id):
                self._table.drop(group_id)

        forget()
        if not tombstones:
            done(ErrorCode.NONE)
            return
        # Forget again once the tombstones are committed: commits in flight have become visible meanwhile.
        self._writes.write(tombstones, done, forget, insist=True)

    # ------------------------------------------------------------ effects

    def _perform(self, group: ClassicGroup, effects: Sequence[Effect]) -> None:
        self._carry_out(group, effects)
        due = group.due_after(effects, self._now_ms())
        if due is None:
            self._table.schedule(group)
        else:
            self._table.no_later(group, due)

    def _carry_out(self, group: ClassicGroup, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, StoreGroup):
                self._store(group, effect)
            else:
                _answer(effect)

    def _store(self, group: ClassicGroup, what: StoreGroup) -> None:
        def written(outcome: ErrorCode) -> None:
            if what.then is not None:
                _answer(what.then(outcome))
            if not self.closed:
                self._perform(group, group.stored(what.generation, outcome, self._now_ms()))

        self._writes.write([group_record(group)], written)

    def _due(self, group: AnyGroup) -> None:
        if isinstance(group, ConsumerGroup):
            self.consumer.tick(group)
        elif isinstance(group, ShareGroup):
            self.share.tick(group)
        else:
            self._carry_out(group, group.tick(self._now_ms()))
            self._table.schedule(group)


def _held(offsets: Mapping[TopicPartition, CommittedOffset]) -> Iterator[tuple[bytes, int]]:
    """Return (topic id, partition index) of each committed offset, since consumer groups identify topics by id."""
    return ((committed.topic_id, index) for (_, index), committed in offsets.items())


def _records(group_id: str, offsets: Mapping[TopicPartition, CommittedOffset]) -> list[KeyValue]:
    return [offset_record(OffsetRecord(group_id, p, committed)) for p, committed in offsets.items()]


def _answer(effect: Effect) -> None:
    if isinstance(effect, StoreGroup):
        return
    reply = effect.ticket
    assert callable(reply)
    reply(effect)
