"""The share partitions that this broker leads. Each is loaded from its durable state at the first ShareFetch.

A share partition is dropped when its leadership ends, when its durable state is newer, and when no share session uses
it and no member holds its records. A later ShareFetch loads it anew.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from ....protocol.errors import ErrorCode, KafkaError
from ...coordinated_log.transactional_producer import TransactionalProducer
from ...runtime.retained_bytes import RetainedBytes
from ...server.handler import as_kafka_error
from ..acknowledgements import DELAY_MAX_MS, AcknowledgedRange
from ..partition import SharePartition
from ..states import StateBatch
from .counters import ShareCounters
from .dead_letters import LetterServices
from .dependencies import FENCED, LetterOffice, Persister, ShareKey, fenced
from .group_settings import ShareGroupSettings
from .led_partition import SHARE_PARTITION_BYTES, LedPartition, Services
from .start_offsets import first_offset
from .transactional_acks import TransactionServices
from .write_queue import Written

if TYPE_CHECKING:
    from ...replication.replica.partition import Partition
    from ...replication.replicas.replicas import Replicas

logger = logging.getLogger(__name__)

SHARE_BYTES_MAX = 256 * 1024 * 1024
"""Memory of all share partitions and share sessions. A principal, or an address, may use half of it."""

_TRANSIENT = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.FENCED_STATE_EPOCH,
    }
)
"""Errors of the state coordinator after which the state is read again."""
_KNOWN_TO_CLIENTS = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)
"""Errors for which clients of ShareFetch are prepared. Other errors would end the Java consumer's `poll`."""
_BACKOFF_S, _BACKOFF_MAX_S = 0.1, 5.0


class SharePartitions:
    """All share partitions that this broker leads, by group and partition."""

    def __init__(
        self,
        replicas: Replicas,
        persister: Persister,
        settings: ShareGroupSettings,
        office: LetterOffice,
        has_ended: Callable[[TransactionalProducer], Awaitable[bool]],
        wall_ms: Callable[[], int],
        bytes_max: int = SHARE_BYTES_MAX,
    ) -> None:
        """`has_ended` asks the quorum whether a transaction is over, with all its markers."""
        self.settings = settings
        self.counters = ShareCounters()
        self.budget = RetainedBytes(bytes_max)
        self._replicas = replicas
        self._persister = persister
        self._wall_ms = wall_ms
        self._services = Services(
            persister,
            settings.get,
            replicas.monotonic_ms,
            lambda: wall_ms() - replicas.monotonic_ms(),
            self.counters,
            LetterServices(office, settings.get, self.counters, wall_ms),
            TransactionServices(persister, has_ended),
            replicas.doubted,
            self._over,
        )
        self._all: dict[ShareKey, LedPartition] = {}
        self._by_replica: dict[tuple[str, int], dict[str, LedPartition]] = {}
        self._loading: dict[LedPartition, asyncio.Task[None]] = {}
        # Number of share sessions that contain a share partition, whether it is loaded or not.
        self._users: dict[ShareKey, int] = {}

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[LedPartition]:
        return iter(tuple(self._all.values()))

    # ------------------------------------------------------------ for requests

    def find(self, key: ShareKey) -> LedPartition | None:
        """Return a share partition; None if it was not fetched in this leadership, or was dropped."""
        return self._all.get(key)

    def lead(self, key: ShareKey, holders: tuple[str, ...]) -> LedPartition:
        """Return a share partition, and begin to load it at the first call. Its memory counts for `holders`.

        Raises KafkaError: NOT_LEADER_OR_FOLLOWER, UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION.
        """
        led = self._all.get(key)
        if led is None:
            led = self._begin(key, self._replicas.get_by_id(key.topic_id, key.partition), holders)
        return led

    def acknowledge(
        self,
        key: ShareKey,
        member_id: str,
        ranges: Sequence[AcknowledgedRange],
        done: Written,
        *,
        has_renewals: bool,
    ) -> None:
        """Apply acknowledgements of a member. `done` is called once they are durable, perhaps within this call.

        Raises KafkaError, and changes nothing: NOT_LEADER_OR_FOLLOWER, UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION
        if the group took no records of the partition, INVALID_REQUEST, INVALID_RECORD_STATE.
        """
        self._taken(key).acknowledge(member_id, ranges, done, has_renewals=has_renewals)

    def acknowledge_in_transaction(
        self,
        key: ShareKey,
        member_id: str,
        ranges: Sequence[AcknowledgedRange],
        writer: TransactionalProducer,
        done: Written,
    ) -> None:
        """Apply acknowledgements of a member in a producer's transaction. `done` is called once they are part of it, or
        with an error. Raises KafkaError as `acknowledge` does."""
        self._taken(key).acknowledge_in_transaction(member_id, ranges, writer, done)

    def _taken(self, key: ShareKey) -> LedPartition:
        """Return a share partition of which the group has taken records. Raises KafkaError."""
        led = self._all.get(key)
        if led is None or led.share is None:
            replica = self._replicas.get_by_id(key.topic_id, key.partition)
            replica.leading()
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"Acknowledgement: share group {key.group_id} has taken no records of {replica!r}.",
            )
        return led

    def missing_bytes(self, keys: Iterable[ShareKey]) -> int:
        """Return the memory that the share partitions of these keys will take which are not loaded yet."""
        return SHARE_PARTITION_BYTES * sum(key not in self._all for key in keys)

    def used(self, key: ShareKey) -> None:
        """Note that one more share session contains a share partition."""
        self._users[key] = self._users.get(key, 0) + 1
        if (led := self._all.get(key)) is not None:
            led.users = self._users[key]

    def unused(self, key: ShareKey) -> None:
        """Record that a share session has removed a share partition. Without users and open work it is dropped."""
        left = self._users[key] - 1
        if left:
            self._users[key] = left
        else:
            del self._users[key]
        if (led := self._all.get(key)) is not None:
            led.users = left
            if led.is_idle:
                self._over(led, None)

    # ------------------------------------------------------------ loading

    def _begin(self, key: ShareKey, replica: Partition, holders: tuple[str, ...]) -> LedPartition:
        leader_epoch = replica.leading().leader_epoch
        claim = self.budget.claim_anyway(SHARE_PARTITION_BYTES, *holders)
        led = self._all[key] = LedPartition(key, replica, leader_epoch, self._services, claim)
        led.users = self._users.get(key, 0)
        self._by_replica.setdefault((replica.topic, replica.index), {})[key.group_id] = led
        self._loading[led] = asyncio.get_running_loop().create_task(self._load(led))
        return led

    async def _load(self, led: LedPartition) -> None:
        backoff_s = _BACKOFF_S
        try:
            while led.failure is None:
                try:
                    await self._read(led)
                    return
                except KafkaError as error:
                    if error.code not in _TRANSIENT:
                        raise
                    logger.info("%r: its state cannot be read yet: %s", led, error)
                if led.is_idle:
                    self._over(led, None)
                    return
                await asyncio.sleep(backoff_s)
                backoff_s = min(2 * backoff_s, _BACKOFF_MAX_S)
        except Exception as error:
            failure = as_kafka_error(error, f"loading of {led!r}")
            if led.failure is None:
                logger.warning("%r: its state cannot be read: %s", led, failure)
                self._over(led, _for_clients(failure))
        finally:
            self._loading.pop(led, None)

    async def _settle(self, led: LedPartition) -> None:
        """Abort the transaction in which a former leader wrote dead letters."""
        try:
            await led.letters.settle()
        except KafkaError as error:
            logger.info("%r: a transaction of its former leader has not ended yet: %s", led, error)

    async def _read(self, led: LedPartition) -> None:
        """Read the durable state. A group without one begins at its start offset, which is written first: a later
        leader must begin there, too."""
        key, epoch = led.key, led.leader_epoch
        state = await self._persister.read(*key, epoch)
        start_offset, settings = state.start_offset, self.settings.get(key.group_id)
        if start_offset < 0:
            start_offset = await first_offset(led.replica, settings.offset_reset, self._wall_ms)
            await self._persister.write(
                *key,
                state_epoch=state.state_epoch,
                leader_epoch=epoch,
                start_offset=start_offset,
                delivery_complete=0,
                batches=(),
            )
            logger.info(
                "%r begins at offset %d (share.auto.offset.reset=%s)",
                led,
                start_offset,
                settings.offset_reset,
            )
        share = SharePartition.restore(settings.limits, start_offset, self._on_own_clock(state.batches))
        if led.failure is None:
            led.loaded(share, state.state_epoch, state.pending)
        if state.pending and settings.letter_topic:
            await self._settle(led)

    def _on_own_clock(self, batches: Iterable[StateBatch]) -> Iterator[StateBatch]:
        """Yield stored batches with times on the monotonic clock. A time that no leader allows is the latest allowed:
        the clock of another broker may have been wrong."""
        now_ms, ahead_ms = self._services.monotonic_ms(), self._services.wall_ahead_ms()
        for batch in batches:
            shifted = batch.shifted(-ahead_ms)
            yield shifted._replace(not_before_ms=min(shifted.not_before_ms, now_ms + DELAY_MAX_MS))

    # ------------------------------------------------------------ dropping

    def elected(self, partition: Partition) -> None:
        """Drop the share partitions of earlier leader epochs."""
        self._drop(
            partition.topic,
            partition.index,
            KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{partition!r} has a new leader epoch"),
        )

    def resigned(self, topic: str, index: int) -> None:
        """Drop the share partitions of a partition that this broker no longer leads, or whose topic was deleted."""
        self._drop(
            topic,
            index,
            KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"this broker does not lead partition {topic}-{index}"
            ),
        )

    def _drop(self, topic: str, index: int, failure: KafkaError) -> None:
        for led in tuple(self._by_replica.get((topic, index), {}).values()):
            self._over(led, failure)

    def _over(self, led: LedPartition, failure: KafkaError | None) -> None:
        """Forget a share partition. Its waiting fetches get the failure; without a failure none waits."""
        if self._all.get(led.key) is not led:
            return
        del self._all[led.key]
        place = led.replica.topic, led.replica.index
        of_replica = self._by_replica[place]
        del of_replica[led.key.group_id]
        if not of_replica:
            del self._by_replica[place]
        led.end(failure or KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{led!r} is not used"))

    def close(self) -> None:
        """Stop all work, as the broker stops."""
        for task in tuple(self._loading.values()):
            task.cancel()
        for led in self._all.values():
            led.close()
        self._all.clear()
        self._by_replica.clear()


def _for_clients(failure: KafkaError) -> KafkaError:
    """Return an error that clients of ShareFetch know, in place of an error of the state coordinator."""
    if failure.code in FENCED:
        return fenced(failure)
    if failure.code in _KNOWN_TO_CLIENTS:
        return failure
    return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, failure.message)
