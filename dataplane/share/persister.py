"""The path to the durable states of share-partitions: on this broker by a call, on another broker by a request.

Leaders of partitions and coordinators of share groups use it. Changes of one turn of the event loop share a request.
A repeated or late write changes nothing, so a change whose outcome is unknown is sent again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from ...protocol.cluster.cluster_image import ClusterImage
from ...protocol.cluster.image_delta import ImageDelta
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.find_coordinator import SharePartition
from ...protocol.messages.share_state_records import UNKNOWN_COUNT
from ..cluster.internal_topics import SHARE_STATE_TOPIC
from ..coordinated_log.key_hash import partition_for
from ..coordinated_log.transactional_producer import TransactionalProducer
from ..peers.requests import PeerLost, PeerRequests
from .feature import check_share_level
from .state.coordinator import ShareStateCoordinator
from .state.requests import API_OF, StateApi, outcomes_of, request_of
from .state.shard import Outcome
from .state.stored_state import (
    UNKNOWN_START,
    Change,
    Delete,
    Initialize,
    Read,
    StoredShareState,
    Summarize,
    Write,
)
from .states import StateBatch

logger = logging.getLogger(__name__)

TIMEOUT_S: Final = 30.0
"""Time after which a change fails with the last error, or with REQUEST_TIMED_OUT."""
_FIRST_DELAY_S: Final = 0.02
_DELAY_MAX_S: Final = 0.5
_ELEMENTS_AT_ONCE: Final = 10_000
_TEMPORARY: Final = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
)


@dataclass(slots=True, eq=False)
class _Attempt:
    """A change on its way to a state coordinator."""

    key: SharePartition
    change: Change
    state_partition: int
    coordinator: int
    outcome: asyncio.Future[Outcome]

    @property
    def elements(self) -> int:
        """Number of elements of the change in a request."""
        return 2 + (len(self.change.batches) if isinstance(self.change, Write) else 0)

    def tell(self, outcome: Outcome) -> None:
        """Set the outcome, unless the caller has it already."""
        if not self.outcome.done():
            self.outcome.set_result(outcome)


class StatePersister:
    """Reads and changes of the durable states of share-partitions, wherever their coordinators are.

    Each method raises KafkaError: FENCED_STATE_EPOCH and FENCED_LEADER_EPOCH if the caller's epoch is over,
    INVALID_REQUEST for a state that is not initialized, UNKNOWN_TOPIC_OR_PARTITION for a partition that is gone,
    UNSUPPORTED_VERSION without share groups, or the last error once the timeout is over. After the other errors a
    change may still take effect.
    """

    def __init__(
        self,
        node_id: int,
        states: ShareStateCoordinator,
        peers: PeerRequests,
        image: Callable[[], ClusterImage],
        create_topic: Callable[[], Awaitable[object]],
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        """Create a persister. `create_topic` creates the topic of states, if it does not exist."""
        self._node_id, self._states, self._peers = node_id, states, peers
        self._image, self._create_topic, self._timeout_s = image, create_topic, timeout_s
        self._loop = asyncio.get_running_loop()
        self._due: list[_Attempt] = []
        self._under_way: set[_Attempt] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    # ------------------------------------------------------------ operations

    async def read(
        self, group_id: str, topic_id: bytes, partition: int, leader_epoch: int
    ) -> StoredShareState:
        """Return the state, and fence leaders of older epochs. The delivery-complete count is unknown."""
        stored = await self._perform(group_id, topic_id, partition, Read(leader_epoch))
        # A request does not return these two, so a call does not either.
        return stored._replace(leader_epoch=leader_epoch, delivery_complete_count=UNKNOWN_COUNT)

    async def write(
        self,
        group_id: str,
        topic_id: bytes,
        partition: int,
        *,
        state_epoch: int,
        leader_epoch: int,
        start_offset: int,
        delivery_complete: int,
        batches: Sequence[StateBatch],
    ) -> None:
        """Store changed states of offsets, and the start offset with its delivery-complete count.

        With the start offset -1 the stored start offset and count stay, as in Kafka.
        """
        write = Write(state_epoch, leader_epoch, start_offset, delivery_complete, tuple(batches))
        await self._perform(group_id, topic_id, partition, write)

    async def write_in_transaction(
        self,
        group_id: str,
        topic_id: bytes,
        partition: int,
        *,
        state_epoch: int,
        leader_epoch: int,
        batches: Sequence[StateBatch],
        writer: TransactionalProducer,
    ) -> None:
        """Store states of offsets that change once the writer's transaction commits.

        After an error the transaction must be aborted: the change may be part of it.
        """
        write = Write(state_epoch, leader_epoch, UNKNOWN_START, UNKNOWN_COUNT, tuple(batches), writer)
        await self._perform(group_id, topic_id, partition, write)

    async def initialize(
        self, group_id: str, topic_id: bytes, partition: int, *, state_epoch: int, start_offset: int
    ) -> None:
        """Create the state, or replace it. With the start offset -1 the partition's leader chooses it."""
        await self._perform(group_id, topic_id, partition, Initialize(state_epoch, start_offset))

    async def delete(self, group_id: str, topic_id: bytes, partition: int) -> None:
        """Delete the state. A state that does not exist is no error."""
        await self._perform(group_id, topic_id, partition, Delete())

    async def summary(self, group_id: str, topic_id: bytes, partition: int) -> StoredShareState:
        """Return the epochs, the start offset and the delivery-complete count, without batches. Without a state the
        start offset is -1."""
        stored = await self._perform(group_id, topic_id, partition, Summarize())
        return stored._replace(batches=())

    # ------------------------------------------------------------ attempts

    async def _perform(
        self, group_id: str, topic_id: bytes, partition: int, change: Change
    ) -> StoredShareState:
        key = SharePartition(group_id, topic_id, partition)
        deadline, delay_s = self._loop.time() + self._timeout_s, _FIRST_DELAY_S
        while True:
            try:
                async with asyncio.timeout_at(deadline):
                    return await self._attempt(key, change)
            except TimeoutError:
                raise KafkaError(
                    ErrorCode.REQUEST_TIMED_OUT, f"the coordinator of {key.key} does not answer"
                ) from None
            except KafkaError as error:
                if not self._is_temporary(key, error.code) or self._loop.time() + delay_s >= deadline:
                    raise
            await asyncio.sleep(delay_s)
            delay_s = min(2 * delay_s, _DELAY_MAX_S)

    def _is_temporary(self, key: SharePartition, code: ErrorCode) -> bool:
        if code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return code in _TEMPORARY
        # The coordinator's image of the cluster may be older than this broker's.
        topic = self._image().topics_by_id.get(key.topic_id)
        return topic is not None and key.partition in topic.partitions

    async def _attempt(self, key: SharePartition, change: Change) -> StoredShareState:
        check_share_level(self._image().features)
        if SHARE_STATE_TOPIC not in self._image().topics:
            await self._create_topic()
        attempt = _Attempt(key, change, *self._coordinator_of(key), self._loop.create_future())
        if not self._due:
            self._loop.call_soon(self._send)
        self._due.append(attempt)
        self._under_way.add(attempt)
        try:
            outcome = await attempt.outcome
        finally:
            self._under_way.discard(attempt)
        if isinstance(outcome, KafkaError):
            raise outcome
        return outcome

    def _coordinator_of(self, key: SharePartition) -> tuple[int, int]:
        """Return the partition of the topic of states that has this state, and the partition's leader. Raises
        KafkaError COORDINATOR_NOT_AVAILABLE."""
        topic = self._image().topics.get(SHARE_STATE_TOPIC)
        if topic is None:
            raise KafkaError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{SHARE_STATE_TOPIC} cannot be created yet"
            )
        index = partition_for(key.key, len(topic.partitions))
        leader = topic.partitions[index].leader
        if leader < 0:
            raise KafkaError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{SHARE_STATE_TOPIC}-{index} has no leader"
            )
        return index, leader

    def image_changed(self, image: ClusterImage, delta: ImageDelta) -> None:
        """End the attempts whose coordinator is another broker now. They are made again."""
        topic = image.topics.get(SHARE_STATE_TOPIC)
        if topic is None or not any(topic_id == topic.id for topic_id, _ in delta.partitions):
            return
        for attempt in self._under_way:
            leader = topic.partitions[attempt.state_partition].leader
            if leader != attempt.coordinator:
                attempt.tell(KafkaError(ErrorCode.NOT_COORDINATOR, f"broker {leader} is the coordinator now"))

    def close(self) -> None:
        """End all attempts, as the broker stops."""
        for task in self._tasks:
            task.cancel()
        for attempt in self._under_way:
            attempt.tell(KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "this broker stops"))

    # ------------------------------------------------------------ requests

    def _send(self) -> None:
        due, self._due = self._due, []
        local = [attempt for attempt in due if attempt.coordinator == self._node_id]
        if local:
            self._start(self._call(local))
        remote = (attempt for attempt in due if attempt.coordinator != self._node_id)
        for (coordinator, _, kind), attempts in groupby(sorted(remote, key=_lane), key=_lane):
            api = next(api for change, api in API_OF.items() if change.__name__ == kind)
            for some in _pieces(attempts):
                self._start(self._request(coordinator, api, some))

    def _start(self, sending: Awaitable[None]) -> None:
        task = asyncio.ensure_future(sending)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _call(self, attempts: Sequence[_Attempt]) -> None:
        outcomes = await self._states.perform([(attempt.key, attempt.change) for attempt in attempts])
        for attempt, outcome in zip(attempts, outcomes, strict=True):
            attempt.tell(outcome)

    async def _request(self, coordinator: int, api: StateApi, attempts: Sequence[_Attempt]) -> None:
        request = request_of(api, [(attempt.key, attempt.change) for attempt in attempts])
        try:
            response = await self._peers.ask(coordinator, request, api.version)
            outcomes = list(outcomes_of(api, response))
            if len(outcomes) != len(attempts):
                raise ValueError(f"{len(outcomes)} results for {len(attempts)} share-partitions")
        except PeerLost as error:
            outcomes = [KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error))] * len(attempts)
        except ValueError as error:
            logger.error("broker %d answers about share states with %s", coordinator, error)
            outcomes = [KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error))] * len(attempts)
        for attempt, outcome in zip(attempts, outcomes, strict=True):
            attempt.tell(outcome)


def _lane(attempt: _Attempt) -> tuple[int, str, str]:
    """Return the coordinator, the group and the kind of change: one request has changes with all of them equal."""
    return attempt.coordinator, attempt.key.group_id, type(attempt.change).__name__


def _pieces(attempts: Iterator[_Attempt]) -> Iterator[list[_Attempt]]:
    """Split attempts for requests of a bounded size, topic by topic: a request names each topic once."""
    piece: list[_Attempt] = []
    elements = 0
    for attempt in sorted(attempts, key=lambda each: each.key.topic_id):
        if piece and elements + attempt.elements > _ELEMENTS_AT_ONCE:
            yield piece
            piece, elements = [], 0
        piece.append(attempt)
        elements += attempt.elements
    if piece:
        yield piece
