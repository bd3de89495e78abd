"""The consumer groups of a shard. The pure state machine handles a request, its changes go to the log, and then the
client gets its answer.

A group's state moves ahead of the log. No client learns of a change before the whole change is committed. A change that
could not be written is written together with the next change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.consumer_groups import JOIN_EPOCH
from ..coordinated_log.batches import KeyValue
from ..runtime.retained_bytes import RetainedClaim
from .classic.group import ClassicGroup
from .classic.membership import Effect, JoinReply, JoinRequest, SyncReply
from .classic.states import GroupState
from .consumer import classic_members
from .consumer.group import Change, ConsumerGroup, RecordKind
from .consumer.member import HeartbeatReply, MemberHeartbeat
from .consumer.migration import downgrade, must_downgrade, upgrade
from .consumer.records import consumer_record
from .consumer.subscriptions import PatternOf
from .dependencies import GroupDependencies
from .group_table import AnyGroup, GroupTable
from .limits import GroupLimits
from .ordered_answers import OrderedAnswers, Settled
from .records import group_record
from .share.group import ShareGroup
from .writes import ShardWrites

HeartbeatTicket = Callable[[HeartbeatReply | KafkaError], None]


class ConsumerGroups:
    """The part of a shard that handles requests to consumer groups (KIP-848), and to classic groups that become
    consumer groups."""

    def __init__(
        self,
        table: GroupTable,
        writes: ShardWrites,
        limits: GroupLimits,
        dependencies: GroupDependencies,
        now_ms: Callable[[], int],
        new_member_id: Callable[[str], str],
        answer: Callable[[Effect], None],
    ) -> None:
        self._table, self._writes, self._limits = table, writes, limits
        self._dependencies, self._now_ms, self._new_member_id = dependencies, now_ms, new_member_id
        self._answer = answer
        self._answers = OrderedAnswers(writes)

    # ------------------------------------------------------------ the consumer protocol

    def heartbeat(self, group_id: str, beat: MemberHeartbeat, reply: HeartbeatTicket) -> None:
        """Handle ConsumerGroupHeartbeat: `reply` gets the answer or the error.

        The error is GROUP_ID_NOT_FOUND if the group is not a consumer group and cannot become one. A heartbeat with a
        pattern waits until the matching topics are known.
        """
        searches = self._dependencies.topics.searches
        if not beat.regex or beat.epoch < JOIN_EPOCH:
            self._heard(group_id, beat, reply)
            return
        try:
            searches.begin(beat.regex)
        except KafkaError as error:
            reply(error)
            return
        searches.when_complete(beat.regex, lambda: self._heard(group_id, beat, reply))

    def _heard(self, group_id: str, beat: MemberHeartbeat, reply: HeartbeatTicket) -> None:
        if self._writes.closed:
            reply(KafkaError(ErrorCode.NOT_COORDINATOR))
            return
        now = self._now_ms()
        present = self._table.groups.get(group_id)
        try:
            group = present if isinstance(present, ConsumerGroup) else self._made_for(group_id, present, beat)
            claim = self._claimed(group, beat)
            answer = group.heartbeat(beat, now)
        except KafkaError as error:
            reply(error)
            return
        if claim is not None and (member := group.members.get(beat.member_id)) is not None:
            member.claim = claim
        if group is not present:
            self._take_place(group, present)
            self._table.schedule(group)  # its classic members may have earlier deadlines than this member
        self._settle(
            group, lambda code: reply(answer if code is ErrorCode.NONE else KafkaError(code)), beat.member_id
        )

    def _claimed(self, group: ConsumerGroup, beat: MemberHeartbeat) -> RetainedClaim | None:
        """Claim memory for the partitions that the member wants, and return a claim for the other contents of its
        heartbeat.

        Raises KafkaError GROUP_MAX_SIZE_REACHED.
        """
        if beat.epoch < JOIN_EPOCH:
            return None
        memory, topics = self._dependencies.memory, self._dependencies.topics
        claim = memory.heard(beat, beat.holders, group.members.get(beat.member_id))
        if claim is not None:
            pattern = PatternOf(beat.regex or "", beat.principal, beat.client_host.removeprefix("/"))
            wanted = topics.resolve(beat.topics or (), pattern)
            partitions = sum(topics.sizes(wanted).values())
            group.claim = memory.assigned(group.group_id, partitions, beat.holders, group.claim)
        return claim

    def _made_for(
        self, group_id: str, present: ClassicGroup | ShareGroup | None, beat: MemberHeartbeat
    ) -> ConsumerGroup:
        if beat.epoch != JOIN_EPOCH or isinstance(present, ShareGroup):
            problem = "not found" if present is None else "is not a consumer group"
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {problem}.")
        limits, topics = self._limits.consumer, self._dependencies.topics
        settings = self._dependencies.settings_of(group_id)
        if present is None or present.state is GroupState.EMPTY:
            return ConsumerGroup(group_id, limits, topics, settings)
        return upgrade(present, limits, topics, settings, self._now_ms())

    def _take_place(self, group: ConsumerGroup, present: AnyGroup | None) -> None:
        """Put a consumer group in the table in place of a classic group of the same name, whose members have to join
        again."""
        group.note_all()
        if isinstance(present, ClassicGroup):
            for effect in present.kill(self._now_ms(), ErrorCode.REBALANCE_IN_PROGRESS):
                self._answer(effect)
        if present is None:
            group.changes.pop((RecordKind.CLASSIC, ""), None)
        self._table.put(group)

    # ------------------------------------------------------------ the classic protocol

    def join(self, group: ConsumerGroup, request: JoinRequest, reply: Callable[[JoinReply], None]) -> None:
        """Handle JoinGroup of a member that uses the classic protocol."""
        if not self._limits.allows_session(request.session_timeout_ms):
            reply(JoinReply(reply, ErrorCode.INVALID_SESSION_TIMEOUT, request.member_id))
            return
        new_id = self._new_member_id(request.instance_id or request.client_id)
        result = classic_members.join(group, request, new_id, reply, self._now_ms())
        self._settle(
            group,
            lambda code: reply(
                result if code is ErrorCode.NONE else JoinReply(reply, code, request.member_id)
            ),
            result.member_id,
        )

    def sync(
        self,
        group: ConsumerGroup,
        member_id: str,
        instance_id: str | None,
        generation: int,
        named: tuple[str | None, str | None],
        reply: Callable[[SyncReply], None],
    ) -> None:
        """Handle SyncGroup of a member that uses the classic protocol."""
        result = classic_members.sync(group, member_id, instance_id, generation, named, reply, self._now_ms())
        self._settle(
            group,
            lambda code: reply(result if code is ErrorCode.NONE else SyncReply(reply, code)),
            member_id,
        )

    def classic_heartbeat(
        self, group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int
    ) -> ErrorCode:
        """Handle Heartbeat of a member that uses the classic protocol."""
        code = classic_members.heartbeat(group, member_id, instance_id, generation, self._now_ms())
        self._watch(group, member_id)
        return code

    def leave(self, group: ConsumerGroup, member_id: str, instance_id: str | None) -> ErrorCode:
        """Remove one member of a LeaveGroup request. As in Kafka, the answer does not wait for the log."""
        code = classic_members.leave(group, member_id, instance_id, self._now_ms())
        self._settle(group, lambda _code: None)
        return code

    # ------------------------------------------------------------ life

    def tick(self, group: ConsumerGroup) -> None:
        """Fence the group's members whose deadlines have passed, and write the changes to the log."""
        group.tick(self._now_ms())
        self._settle(group, lambda _code: None)

    def bury(self, group: ConsumerGroup) -> list[KeyValue]:
        """End the group; return the tombstones of its records."""
        group.bury()
        self._table.drop(group.group_id)
        return self._records(group, group.take_changes())

    def _watch(self, group: ConsumerGroup, member_id: str | None) -> None:
        """Set the group's timer after a request of a member, or of nobody in particular.

        A request brings forward no deadline but those of its member. So the others are not examined, since the group
        may be large.
        """
        if member_id is None:
            self._table.schedule(group)
        elif (member := group.members.get(member_id)) is not None:
            self._table.no_later(group, member.deadline_ms)

    def _settle(self, group: ConsumerGroup, then: Settled, member_id: str | None = None) -> None:
        """Write the group's changes. `then` gets NONE once all changes so far are committed, or else the error.

        `member_id` is the member that sent the request, if any.
        """
        group_id = group.group_id
        changes = group.take_changes()
        if not changes:
            self._answers.wait(group_id, then)
            self._watch(group, member_id)
            return
        ends = must_downgrade(group, self._limits)
        records = self._downgraded(group, changes) if ends else self._records(group, changes)

        def failed() -> None:
            group.changes = {**dict.fromkeys(changes), **group.changes}

        self._answers.write(group_id, records, then, failed, insist=ends)
        self._watch(group, member_id)

    def _downgraded(self, group: ConsumerGroup, changes: Sequence[Change]) -> list[KeyValue]:
        """Replace the consumer group by a classic group with its members; return the records for that, `changes`
        first."""
        classic = downgrade(group, self._limits, self._new_member_id, self._now_ms())
        classic.claim = group.claim
        group.bury()
        self._table.put(classic)
        self._table.schedule(classic)
        every = dict.fromkeys([*changes, *group.take_changes()])
        return [*self._records(group, every), group_record(classic)]

    def _records(self, group: ConsumerGroup, changes: Iterable[Change]) -> list[KeyValue]:
        """Return the records of these changes, in a form that all brokers of the cluster can read."""
        earlier = self._dependencies.has_earlier_programs()
        return [consumer_record(group, change, is_for_earlier_programs=earlier) for change in changes]
