"""Partitions change hands: what comes begins where the group committed, what goes is held until all is said about it.

The order in which it happens is the promise. Taking over: the partitions are assigned but not read, the listener is
told, they are read. Giving up: they are read no more, what is automatic is committed, the listener is told, they are
not assigned any more.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable

from ....protocol.errors import ErrorCode, KafkaError
from ...connections.cluster import Backoff
from ...records import OffsetAndMetadata, TopicPartition
from ..assigned import AssignedPartition
from ..fetcher import Fetcher
from ..inbox import Inbox
from ..offsets import CommittedOffsets
from .listener import RebalanceListener


class Handover:
    """Of one consumer; the partitions of its fetcher change nowhere else."""

    def __init__(
        self,
        fetcher: Fetcher,
        inbox: Inbox,
        offsets: CommittedOffsets | None,
        *,
        reset_timestamp: int | None,
        retry_backoff_max_ms: int,
        commit: Callable[[], Awaitable[None]] | None,
    ) -> None:
        """`commit`: what to do before partitions are given up; it raises nothing."""
        self.listener = RebalanceListener()
        self._fetcher = fetcher
        self._inbox = inbox
        self._offsets = offsets
        self._reset_timestamp = reset_timestamp
        self._retry_backoff_max_ms = retry_backoff_max_ms
        self._commit = commit
        self._is_going = False
        """Whether all that is assigned is about to be lost."""
        self._failures: deque[BaseException] = deque()
        self._under_way: asyncio.Task[None] | None = None
        self._lookups: set[asyncio.Task[None]] = set()

    @property
    def owned(self) -> set[TopicPartition]:
        """All that is assigned."""
        return set(self._fetcher.assigned)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Have exactly these, without telling anybody."""
        self._begin_all(self._assign(partitions), None)

    async def take_over(self, partitions: Collection[TopicPartition]) -> None:
        """Have these too. Goes on to its end if the caller is cancelled, as `give_up` does."""
        await self._whole(self._take_over(partitions))

    async def give_up(self, partitions: Collection[TopicPartition], *, lost: bool = False) -> None:
        """Have these no more; `lost`: somebody else may have them already."""
        self._is_going = False
        await self._whole(self._give_up(partitions, lost))

    def hold(self) -> None:
        """Give no more records of what is assigned, nor of what is being taken over: it is about to be lost."""
        self._is_going = True
        self._inbox.hold(self.owned)

    async def settled(self) -> None:
        """Return once nothing is changing hands."""
        if self._under_way is not None:
            await asyncio.wait([self._under_way])

    async def stop(self) -> None:
        """Look up no more offsets."""
        for task in self._lookups:
            task.cancel()
        await asyncio.gather(*self._lookups, return_exceptions=True)

    def fail(self, error: BaseException) -> None:
        """Let the next read raise `error`."""
        self._failures.append(error)
        self._fetcher.wake_waiter()

    def deny(self, denial: KafkaError) -> None:
        """Let the next read raise `denial`. One that comes before that read takes its place."""
        self._fetcher.fail(denial)

    def wake(self) -> None:
        """Let a read that waits look at what has become of the membership."""
        self._fetcher.wake_waiter()

    def raise_failure(self) -> None:
        """Raise what the listener raised, or what went wrong for good, each once."""
        if self._failures:
            raise self._failures.popleft()

    async def _take_over(self, partitions: Collection[TopicPartition]) -> None:
        new = self._assign([*self._fetcher.assigned, *partitions], held=True)
        told = asyncio.Event()
        self._begin_all(new, told)
        await self._tell(self.listener.on_partitions_assigned, partitions)
        for state in new:
            state.held = self._is_going
        told.set()
        self._fetcher.changed()

    async def _give_up(self, partitions: Collection[TopicPartition], lost: bool) -> None:
        if not partitions:
            return
        self._inbox.hold(partitions)
        if self._commit is not None and not lost:
            await self._commit()
        listener = self.listener
        await self._tell(listener.on_partitions_lost if lost else listener.on_partitions_revoked, partitions)
        self._assign(one for one in self._fetcher.assigned if one not in partitions)
        self._fetcher.wake_waiter()

    async def _whole(self, change: Coroutine[None, None, None]) -> None:
        self._under_way = asyncio.ensure_future(change)
        await asyncio.shield(self._under_way)

    async def _tell(
        self,
        event: Callable[[set[TopicPartition]], Awaitable[None] | None],
        partitions: Collection[TopicPartition],
    ) -> None:
        try:
            answer = event(set(partitions))
            if inspect.isawaitable(answer):
                await answer
        except (
            asyncio.CancelledError
        ):  # Not of this task: the partitions change hands whatever a listener waits for.
            self.fail(RuntimeError(f"{event.__qualname__} waited for something that was cancelled"))
        except Exception as error:
            self.fail(error)

    # where to begin

    def _assign(self, partitions: Iterable[TopicPartition], *, held: bool = False) -> list[AssignedPartition]:
        """Returns those that are new, which nothing is fetched of before they have a position."""
        before = self._fetcher.assigned
        self._fetcher.assign(partitions)
        self._inbox.reassigned()
        new = [state for one, state in self._fetcher.assigned.items() if one not in before]
        for state in new:
            state.held = held
        return new

    def _begin_all(self, states: list[AssignedPartition], told: asyncio.Event | None) -> None:
        if self._offsets is None:
            for one in states:
                self._begin(one, None)
        elif states:
            task = asyncio.ensure_future(self._begin_at_committed(self._offsets, states, told))
            self._lookups.add(task)
            task.add_done_callback(self._lookup_ended)

    def _lookup_ended(self, task: asyncio.Task[None]) -> None:
        self._lookups.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fail(error)

    async def _begin_at_committed(
        self, offsets: CommittedOffsets, states: list[AssignedPartition], told: asyncio.Event | None
    ) -> None:
        """Ask until it is known where to begin, or they are not ours any more; reads raise what stands in the way."""
        backoff = Backoff(self._retry_backoff_max_ms)
        while states := [one for one in states if self._fetcher.assigned.get(one.partition) is one]:
            try:
                committed = await offsets.committed([one.partition for one in states])
            except KafkaError as error:
                if error.code is not ErrorCode.UNSTABLE_OFFSET_COMMIT:
                    self._fetcher.fail(error)
                await asyncio.sleep(backoff.next_s())
                continue
            for one in states:
                if one.partition in committed:
                    self._begin(one, committed[one.partition])
            if told is not None and self._reset_timestamp is None:
                await told.wait()  # The listener may seek where there is nothing committed.
            for one in states:
                self._begin(one, committed.get(one.partition))
            self._fetcher.changed()
            return

    def _begin(self, state: AssignedPartition, committed: OffsetAndMetadata | None) -> None:
        partition = state.partition
        if (
            self._fetcher.assigned.get(partition) is not state
            or state.position is not None
            or state.reset_to is not None
        ):
            return  # not ours any more, or the caller has sought a place meanwhile
        if committed is not None:
            self._inbox.resume(state, committed)
        elif self._reset_timestamp is not None:
            state.look_up(self._reset_timestamp)
        else:
            where = f"{partition.topic}-{partition.partition}"
            code = ErrorCode.OFFSET_OUT_OF_RANGE
            self._fetcher.fail(
                KafkaError(code, f"{where} has no committed offset, and auto_offset_reset is 'none'")
            )
