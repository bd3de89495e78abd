"""The handover of partitions: new ones begin at the committed offset, outgoing ones are held until the listener is
done.

The order of the steps is a promise to programs. Taking over: the partitions are assigned but not read, the listener is
notified, they are read. Giving up: reads of them stop, auto-commit commits, the listener is notified, they are no
longer assigned.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable

from ....protocol.errors import ErrorCode, KafkaError
from ...backoff import Backoff
from ...records import OffsetAndMetadata, TopicPartition
from ..assigned import AssignedPartition
from ..fetcher import Fetcher
from ..inbox import Inbox
from ..offsets import CommittedOffsets
from .listener import RebalanceListener


class Handover:
    """The procedure by which a consumer takes over and gives up partitions: positions, commits and listener calls. No
    other object changes the partitions of its fetcher."""

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
        """Create a handover. `commit`: awaited before partitions are given up; it raises nothing."""
        self.listener = RebalanceListener()
        self._fetcher = fetcher
        self._inbox = inbox
        self._offsets = offsets
        self._reset_timestamp = reset_timestamp
        self._retry_backoff_max_ms = retry_backoff_max_ms
        self._commit = commit
        self._is_going = False
        """True while all assigned partitions are about to be lost."""
        self._failures: deque[BaseException] = deque()
        self._under_way: asyncio.Task[None] | None = None
        self._lookups: set[asyncio.Task[None]] = set()

    @property
    def owned(self) -> set[TopicPartition]:
        """The assigned partitions."""
        return set(self._fetcher.assigned)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Assign exactly these partitions to the consumer, without notifying the listener."""
        self._begin_all(self._assign(partitions), None)

    async def take_over(self, partitions: Collection[TopicPartition]) -> None:
        """Assign these partitions to the consumer, in addition to its present ones. A cancelled caller does not
        interrupt it."""
        await self._whole(self._take_over(partitions))

    async def give_up(self, partitions: Collection[TopicPartition], *, lost: bool = False) -> None:
        """Give up these partitions. A cancelled caller does not interrupt it.

        `lost`: another member may have them already, so that nothing is committed.
        """
        self._is_going = False
        await self._whole(self._give_up(partitions, lost))

    def hold(self) -> None:
        """Hand out no more records of the assigned partitions and of those being taken over, which are about to be
        lost.
        """
        self._is_going = True
        self._inbox.hold(self.owned)

    async def settled(self) -> None:
        """Wait until no partition is changing hands."""
        if self._under_way is not None:
            await asyncio.wait([self._under_way])

    async def stop(self) -> None:
        """Cancel the lookups of committed offsets, from which new partitions would be read."""
        for task in self._lookups:
            task.cancel()
        await asyncio.gather(*self._lookups, return_exceptions=True)

    def fail(self, error: BaseException) -> None:
        """Make the next read raise `error`, after earlier errors."""
        self._failures.append(error)
        self._fetcher.wake_waiter()

    def deny(self, denial: KafkaError) -> None:
        """Make the next read raise `denial`, the error about topics that the user may not read. A later denial or
        failure of fetching replaces it."""
        self._fetcher.fail(denial)

    def wake(self) -> None:
        """Wake a waiting read, so that it checks the state of the membership."""
        self._fetcher.wake_waiter()

    def raise_failure(self) -> None:
        """Raise the oldest failure of the listener or of the handover, each once."""
        if self._failures:
            raise self._failures.popleft()

    async def _take_over(self, partitions: Collection[TopicPartition]) -> None:
        new = self._assign([*self._fetcher.assigned, *partitions], held=True)
        notified = asyncio.Event()
        self._begin_all(new, notified)
        await self._tell(self.listener.on_partitions_assigned, partitions)
        for state in new:
            state.held = self._is_going
        notified.set()
        self._fetcher.changed()

    async def _give_up(self, partitions: Collection[TopicPartition], lost: bool) -> None:
        if not partitions:
            return
        self._inbox.hold(partitions)
        if self._commit is not None and not lost:
            await self._commit()
        listener = self.listener
        await self._tell(listener.on_partitions_lost if lost else listener.on_partitions_revoked, partitions)
        self._assign(partition for partition in self._fetcher.assigned if partition not in partitions)
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
        ):  # This task is not cancelled: a listener does not prevent the handover.
            self.fail(RuntimeError(f"{event.__qualname__} waited for something that was cancelled"))
        except Exception as error:
            self.fail(error)

    # where to begin

    def _assign(self, partitions: Iterable[TopicPartition], *, held: bool = False) -> list[AssignedPartition]:
        """Assign the partitions; return the new ones, which are not fetched before they have a position."""
        before = self._fetcher.assigned
        self._fetcher.assign(partitions)
        self._inbox.reassigned()
        new = [state for partition, state in self._fetcher.assigned.items() if partition not in before]
        for state in new:
            state.held = held
        return new

    def _begin_all(self, states: list[AssignedPartition], notified: asyncio.Event | None) -> None:
        if self._offsets is None:
            for state in states:
                self._begin(state, None)
        elif states:
            task = asyncio.ensure_future(self._begin_at_committed(self._offsets, states, notified))
            self._lookups.add(task)
            task.add_done_callback(self._lookup_ended)

    def _lookup_ended(self, task: asyncio.Task[None]) -> None:
        self._lookups.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fail(error)

    async def _begin_at_committed(
        self, offsets: CommittedOffsets, states: list[AssignedPartition], notified: asyncio.Event | None
    ) -> None:
        """Look up committed offsets until the partitions have positions, or are no longer assigned.

        Reads raise the failures.
        """
        backoff = Backoff(self._retry_backoff_max_ms)
        while states := [state for state in states if self._fetcher.assigned.get(state.partition) is state]:
            try:
                committed = await offsets.committed([state.partition for state in states])
            except KafkaError as error:
                if error.code is not ErrorCode.UNSTABLE_OFFSET_COMMIT:
                    self._fetcher.fail(error)
                await asyncio.sleep(backoff.next_s())
                continue
            for state in states:
                if state.partition in committed:
                    self._begin(state, committed[state.partition])
            if notified is not None and self._reset_timestamp is None:
                await notified.wait()  # The listener may seek in partitions without a committed offset.
            for state in states:
                self._begin(state, committed.get(state.partition))
            self._fetcher.changed()
            return

    def _begin(self, state: AssignedPartition, committed: OffsetAndMetadata | None) -> None:
        partition = state.partition
        if (
            self._fetcher.assigned.get(partition) is not state
            or state.position is not None
            or state.reset_to is not None
        ):
            return  # no longer assigned, or the program has called seek meanwhile
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
