"""The share groups of a shard. The pure state machine handles a request, its changes go to the log, and then the client
gets its answer.

The states of share-partitions belong to other coordinators. This shell has them initialized and deleted through the
persister, one change of a group's states at a time. A partition is a member's only once its state is initialized.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any
from weakref import WeakValueDictionary

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.share_groups import JOIN_EPOCH, LEAVE_EPOCH
from ..coordinated_log.batches import KeyValue
from ..runtime.retained_bytes import RetainedClaim
from ..server.handler import as_kafka_error
from .consumer.member import HeartbeatReply, TopicPartition
from .dependencies import GroupDependencies
from .group_table import GroupTable
from .limits import ShareGroupLimits
from .ordered_answers import OrderedAnswers, Settled
from .share.group import ShareGroup
from .share.member import ShareHeartbeat
from .share.records import share_record
from .share.state_partitions import NewState
from .writes import ShardWrites

_CALLS_AT_ONCE = 100
"""The maximum number of states that are initialized or deleted at once for one group."""

HeartbeatTicket = Callable[[HeartbeatReply | KafkaError], None]

logger = logging.getLogger(__name__)


class ShareGroups:
    """The part of a shard that handles requests to share groups (KIP-932)."""

    def __init__(
        self,
        table: GroupTable,
        writes: ShardWrites,
        limits: ShareGroupLimits,
        dependencies: GroupDependencies,
        now_ms: Callable[[], int],
    ) -> None:
        self._table, self._writes, self._limits = table, writes, limits
        self._dependencies, self._now_ms = dependencies, now_ms
        self._persister = dependencies.persister
        self._answers = OrderedAnswers(writes)
        self._tasks: set[asyncio.Task[ErrorCode]] = set()
        # A lock lives as long as a change of the group's states is under way or waits.
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    # ------------------------------------------------------------ membership

    def heartbeat(self, group_id: str, beat: ShareHeartbeat, reply: HeartbeatTicket) -> None:
        """Handle ShareGroupHeartbeat: `reply` gets the answer or the error.

        The error is GROUP_ID_NOT_FOUND if the group is of another kind, or does not exist and the member does not join.
        """
        try:
            self._check_open()
            group = self._group_for(group_id, beat.epoch)
            claim = self._claimed(group, beat)
            answer = group.heartbeat(beat, self._now_ms())
        except KafkaError as error:
            reply(error)
            return
        if claim is not None:
            group.members[beat.member_id].claim = claim
        if group_id not in self._table.groups:
            self._table.put(group)
        states = [] if beat.epoch == LEAVE_EPOCH else group.ask_for_states()

        def settled(code: ErrorCode) -> None:
            reply(answer if code is ErrorCode.NONE else KafkaError(code))
            if states:
                self._begin(group, states, code)

        self._settle(group, settled)

    def _group_for(self, group_id: str, epoch: int) -> ShareGroup:
        """Return the group of this id. If it is missing, a new group is returned to a member that joins, by its epoch.
        Raises KafkaError GROUP_ID_NOT_FOUND, with Kafka's messages."""
        present = self._table.groups.get(group_id)
        if isinstance(present, ShareGroup):
            return present
        if present is not None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a share group.")
        if epoch != JOIN_EPOCH:
            kind = "Group" if epoch == LEAVE_EPOCH else "Share group"
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"{kind} {group_id} not found.")
        settings = self._dependencies.settings_of(group_id)
        return ShareGroup(group_id, self._limits, self._dependencies.topics, settings)

    def _claimed(self, group: ShareGroup, beat: ShareHeartbeat) -> RetainedClaim | None:
        """Claim memory for the partitions that the member wants, and return a claim for the other contents of its
        heartbeat.

        Raises KafkaError GROUP_MAX_SIZE_REACHED.
        """
        member = group.members.get(beat.member_id)
        if beat.epoch == LEAVE_EPOCH or (member is None and beat.epoch != JOIN_EPOCH):
            return None
        memory, topics = self._dependencies.memory, self._dependencies.topics
        claim = memory.heard_in_share_group(beat, member)
        if claim is not None:
            names = {*(beat.topics or ()), *(name for each in group.members.values() for name in each.topics)}
            # The members of a topic share its partitions, and each has one at least.
            members = len(group.members) + 1
            partitions = sum(
                topics.counts[topics.ids[name]] + members for name in names if name in topics.ids
            )
            group.claim = memory.assigned(group.group_id, partitions, beat.holders, group.claim)
        return claim

    # ------------------------------------------------------------ states of partitions

    async def alter(
        self, group_id: str, offsets: Mapping[TopicPartition, int], holders: tuple[str, ...]
    ) -> Mapping[TopicPartition, ErrorCode]:
        """Give partitions new states that begin at these offsets; return the outcome of each.

        A missing group is created, to the account of `holders`. Raises KafkaError: NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND
        if the group is of another kind, GROUP_MAX_SIZE_REACHED, and errors of the log.
        """
        async with self._lock(group_id):
            self._check_open()
            group = self._group_for(group_id, JOIN_EPOCH)
            states = group.alter(offsets)
            if not states:
                return {}
            if group_id not in self._table.groups:
                group.claim = self._dependencies.memory.group(group_id, holders)
                self._table.put(group)
            try:
                await self._committed(group)
            except KafkaError:
                _give_up(group, states)
                raise
            return await self._initialized(group, states)

    async def delete_offsets(self, group_id: str, topic_ids: Iterable[bytes]) -> Mapping[bytes, ErrorCode]:
        """Delete the states of these topics; return the outcome for each topic that had a state.

        Raises KafkaError: NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND, and errors of the log.
        """
        async with self._lock(group_id):
            self._check_open()
            return await self._without_states(self._group_for(group_id, LEAVE_EPOCH), topic_ids)

    def delete_states(self, group: ShareGroup, then: Settled) -> None:
        """Delete all states of a group that is about to be deleted. `then` gets the outcome: NON_EMPTY_GROUP."""

        async def delete() -> None:
            async with self._lock(group.group_id):
                self._check_open()
                outcome = await self._without_states(group, group.states.topic_ids)
            for code in filter(None, outcome.values()):
                raise KafkaError(code)

        self._run(group, delete, then)

    def topics_removed(self, topic_ids: frozenset[bytes]) -> None:
        """Forget the states of topics that no longer exist. Their own coordinators drop them."""
        for group in self._all():
            group.forget_topics(topic_ids)
            self._settle(group, _nobody)

    def forget_missing_topics(self) -> None:
        """Forget the states of topics that were deleted while the shard was not loaded."""
        present = self._dependencies.topics.counts.keys()
        for group in self._all():
            group.forget_topics(group.states.topic_ids - present)
            self._settle(group, _nobody)

    def _all(self) -> list[ShareGroup]:
        return [group for group in self._table.groups.values() if isinstance(group, ShareGroup)]

    def _begin(self, group: ShareGroup, states: Sequence[NewState], code: ErrorCode) -> None:
        """Initialize the states that a heartbeat asked for, unless the heartbeat's changes could not be written."""
        if code is not ErrorCode.NONE or self._writes.closed:
            _give_up(group, states)
            return

        async def initialize() -> None:
            async with self._lock(group.group_id):
                await self._initialized(group, states)

        self._run(group, initialize, _nobody)

    async def _initialized(
        self, group: ShareGroup, states: Iterable[NewState]
    ) -> Mapping[TopicPartition, ErrorCode]:
        """Initialize states, and return the outcome of each partition.

        States that the group has given up meanwhile are left out. If one partition of a `NewState` fails, all of it is
        initialized again later, so that a topic's first partitions begin by one rule.
        """
        wanted = [state for state in states if group.awaits(state)]
        outcome = await self._each(
            group,
            {
                (state.topic_id, index): partial(
                    self._persister.initialize,
                    group.group_id,
                    state.topic_id,
                    index,
                    state_epoch=state.state_epoch,
                    start_offset=offset,
                )
                for state in wanted
                for index, offset in state.start_offsets.items()
            },
        )
        self._check_open()
        for state in wanted:
            failed = any(outcome[state.topic_id, index] for index in state.start_offsets)
            group.finish_states(state, initialized=not failed)
        await self._committed(group)
        return outcome

    async def _without_states(
        self, group: ShareGroup, topic_ids: Iterable[bytes]
    ) -> Mapping[bytes, ErrorCode]:
        """Delete the states of a group's topics, and return the outcome of each topic that had a state."""
        wanted = list(topic_ids)
        partitions = group.begin_deletion(wanted)
        await self._committed(group)
        outcome = await self._each(
            group,
            {each: partial(self._persister.delete, group.group_id, *each) for each in sorted(partitions)},
        )
        self._check_open()
        by_topic = {topic_id: ErrorCode.NONE for topic_id, _ in outcome}
        by_topic.update({topic_id: code for (topic_id, _), code in outcome.items() if code})
        group.end_deletion(topic_id for topic_id in wanted if not by_topic.get(topic_id))
        await self._committed(group)
        return by_topic

    async def _each(
        self, group: ShareGroup, calls: Mapping[TopicPartition, Callable[[], Awaitable[None]]]
    ) -> dict[TopicPartition, ErrorCode]:
        """Make the calls to the persister, and return the outcome of each."""
        outcome: dict[TopicPartition, ErrorCode] = {}
        failures: list[str] = []

        async def call(topic_id: bytes, index: int, function: Callable[[], Awaitable[None]]) -> None:
            code = ErrorCode.NONE
            try:
                await function()
            except Exception as error:
                name = self._dependencies.topics.names.get(topic_id, topic_id.hex())
                failure = as_kafka_error(error, f"share-partition {name}-{index} of group {group.group_id}")
                code = failure.code
                failures.append(f"{name}-{index}: {code.name}")
            outcome[topic_id, index] = code

        pending = iter(calls.items())
        while some := list(islice(pending, _CALLS_AT_ONCE)):
            await asyncio.gather(*(call(*partition, function) for partition, function in some))
        if failures:
            logger.warning(
                "share group %s: %d of %d states could not be changed, first %s",
                group.group_id,
                len(failures),
                len(calls),
                failures[0],
            )
        return outcome

    # ------------------------------------------------------------ life

    def tick(self, group: ShareGroup) -> None:
        """Fence the group's silent members, and write the changes to the log."""
        group.tick(self._now_ms())
        self._settle(group, _nobody)

    def bury(self, group: ShareGroup) -> list[KeyValue]:
        """End the group; return the tombstones of its records."""
        group.bury()
        self._table.drop(group.group_id)
        return [share_record(group, change) for change in group.take_changes()]

    def close(self) -> None:
        """Stop changes of states that are under way, as another broker leads this shard now."""
        for task in list(self._tasks):
            task.cancel()

    def _check_open(self) -> None:
        if self._writes.closed:
            raise KafkaError(ErrorCode.NOT_COORDINATOR, "this broker no longer coordinates the group")

    def _lock(self, group_id: str) -> asyncio.Lock:
        """Return the lock under which the states of this group change."""
        return self._locks.setdefault(group_id, asyncio.Lock())

    def _run(self, group: ShareGroup, work: Callable[[], Coroutine[Any, Any, None]], then: Settled) -> None:
        """Run work in the background. `then` gets NONE, or the error that ended it."""

        async def run() -> ErrorCode:
            try:
                await work()
            except Exception as error:
                failure = as_kafka_error(error, f"states of share group {group.group_id}")
                logger.info("states of share group %s are left as they are: %s", group.group_id, failure)
                return failure.code
            return ErrorCode.NONE

        def ended(task: asyncio.Task[ErrorCode]) -> None:
            self._tasks.discard(task)
            then(ErrorCode.NOT_COORDINATOR if task.cancelled() else task.result())

        task = asyncio.get_running_loop().create_task(run(), name="states of a share group")
        self._tasks.add(task)
        task.add_done_callback(ended)

    async def _committed(self, group: ShareGroup) -> None:
        """Wait until all changes of the group so far are committed. Raises KafkaError."""
        outcome: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()

        def settled(code: ErrorCode) -> None:
            if not outcome.done():
                outcome.set_result(code)

        self._settle(group, settled)
        code = await outcome
        if code is not ErrorCode.NONE:
            raise KafkaError(code)

    def _settle(self, group: ShareGroup, then: Settled) -> None:
        """Write the group's changes. `then` gets NONE once all changes so far are committed, or else the error."""
        changes = group.take_changes()
        if not changes:
            self._answers.wait(group.group_id, then)
        else:

            def failed() -> None:
                group.changes = {**dict.fromkeys(changes), **group.changes}

            records = [share_record(group, change) for change in changes]
            self._answers.write(group.group_id, records, then, failed)
        self._table.schedule(group)


def _give_up(group: ShareGroup, states: Iterable[NewState]) -> None:
    for state in states:
        group.finish_states(state, initialized=False)


def _nobody(_code: ErrorCode) -> None:
    """Answer nobody."""
