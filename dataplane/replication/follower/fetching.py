"""The follower's side of a fetch session with one leader broker, apart from its connection (KIP-227).

A request names the partitions whose position changed since the previous request. An answer brings records, which are
appended at once, so that the next request acknowledges them. Usually one request is outstanding, parked at the leader.
If a partition must be named meanwhile, to follow or acknowledge, the next request follows immediately, and the leader
answers the parked one first.

Rule 2 holds here: if a request named a partition in an older leader epoch, its answer is dropped for that partition.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.settings.config_fields import setting
from ..fetch_values import (
    FIRST_EPOCH,
    NO_SESSION,
    FetchPosition,
    FollowerFetch,
    PartitionAnswer,
    PartitionKey,
    SessionAnswer,
    next_epoch,
)
from ..replica.partition import Partition

logger = logging.getLogger(__name__)

_OUTSTANDING_MAX = 8
POSITIONS_MAX = 500
"""Maximum number of partitions in one request. Each takes microseconds to write and to read, and a leader that returns
gets requests for thousands. The leader reads the same number in one loop iteration."""
TRUNCATIONS_MAX = 4
"""Maximum number of logs that one answer truncates. Each truncation holds the event loop for two syncs of the disk. The
follower asks its leader about the other logs again."""
RETRY_FIRST_S = 0.001
RETRY_MAX_S = 0.2
RETRY_SPACING_S = 0.001
"""Additional retry delay for each waiting partition. If thousands wait, for example for a leader whose disk is full,
frequent requests and refusals would occupy both brokers entirely."""

EXPECTED_ERRORS = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""Errors that occur while the images of brokers differ, and pass once both have caught up."""


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """The size limits in bytes of a Fetch answer from a leader: for one partition and for the whole answer."""

    partition_max_bytes: int = setting("replica.fetch.max.bytes")
    answer_max_bytes: int = setting("replica.fetch.response.max.bytes")


class FetchThrottle(Protocol):
    """A limit on the bytes per second that this broker fetches for throttled partitions while it catches up
    (KIP-73).
    """

    def limit(self, partition: Partition) -> int | None:
        """Return the number of bytes that this broker may now fetch of the partition: None without a limit, 0 if the
        partition must wait.
        """
        ...

    def wait_s(self) -> float:
        """Return the seconds until the throttle permits further bytes of throttled partitions."""
        ...

    def spend(self, size: int) -> None:
        """Subtract `size` received bytes of a throttled partition from the permitted amount."""
        ...


class _NoThrottle:
    def limit(self, partition: Partition) -> int | None:
        return None

    def wait_s(self) -> float:
        return 0.0

    def spend(self, size: int) -> None:
        return


NO_THROTTLE: FetchThrottle = _NoThrottle()


class _Outstanding:
    """An outstanding request. `fenced` contains the partitions that have changed their leader epoch since it was sent,
    or are no longer followed here."""

    __slots__ = ("fenced", "opens_session")

    def __init__(self, *, opens_session: bool) -> None:
        self.opens_session = opens_session
        self.fenced: set[PartitionKey] = set()


class LeaderSession:
    """The partitions that this broker follows on one leader broker.

    `retry(key, delay_s)` is called for a partition that must be named again after a delay. The caller then calls
    `again(key)`.
    """

    def __init__(
        self,
        broker_id: int,
        limits: FetchLimits,
        retry: Callable[[PartitionKey, float], None],
        on_failure: Callable[[Partition, Exception], None],
        throttle: FetchThrottle = NO_THROTTLE,
    ) -> None:
        self._throttle = throttle
        self._broker_id = broker_id
        self._limits = limits
        self._retry = retry
        self._on_failure = on_failure
        self._partitions: dict[PartitionKey, Partition] = {}
        self._changed: dict[PartitionKey, None] = {}
        self._forgotten: set[PartitionKey] = set()
        self._delays: dict[PartitionKey, float] = {}
        self._told_starts: dict[PartitionKey, int] = {}
        self._outstanding: deque[_Outstanding] = deque()
        self._session_id = NO_SESSION
        self._epoch = FIRST_EPOCH
        self._paused = False

    def __len__(self) -> int:
        return len(self._partitions)

    @property
    def outstanding(self) -> int:
        """Number of Fetch requests to the leader that have no answer yet."""
        return len(self._outstanding)

    @property
    def has_more_to_say(self) -> bool:
        """True if the last Fetch request was too small to name all changed partitions."""
        return bool(self._changed)

    # What to follow

    def follow(self, partition: Partition) -> None:
        """Follow a partition from now on, or in a new leader epoch."""
        key = (partition.topic_id, partition.index)
        self._fence(key)
        self._partitions[key] = partition
        self._forgotten.discard(key)
        self._delays.pop(key, None)
        self._changed[key] = None

    def forget(self, key: PartitionKey) -> None:
        """Stop following a partition that has another leader or no replica here."""
        if self._partitions.pop(key, None) is not None:
            self._fence(key)
            self._changed.pop(key, None)
            self._delays.pop(key, None)
            self._told_starts.pop(key, None)
            self._forgotten.add(key)

    def again(self, key: PartitionKey) -> None:
        """Name a partition in the next Fetch request: a retry is due, or its fetched records are flushed."""
        if key in self._partitions:
            self._changed[key] = None

    def disconnected(self) -> None:
        """Prepare a new fetch session after the connection to the leader broke. Its first request names all
        partitions.
        """
        self._outstanding.clear()
        self._paused = False
        self._new_session()

    def _fence(self, key: PartitionKey) -> None:
        for request in self._outstanding:
            request.fenced.add(key)

    def _new_session(self) -> None:
        self._session_id = NO_SESSION
        self._epoch = FIRST_EPOCH
        self._forgotten.clear()
        self._changed = dict.fromkeys(self._partitions)
        for request in self._outstanding:
            request.fenced.update(self._partitions)

    # Requests and answers

    def next_fetch(self, broker_epoch: int) -> FollowerFetch | None:
        """Return the request to send now; None if there is nothing to send and a request is parked already."""
        outstanding = len(self._outstanding)
        if self._paused:
            return None
        if outstanding and (
            not (self._changed or self._forgotten)
            or self._session_id == NO_SESSION
            or outstanding >= _OUTSTANDING_MAX
        ):
            return None
        if not (self._partitions or self._forgotten):
            return None
        positions = []
        changed, self._changed = iter(self._changed), {}
        for key in changed:
            partition = self._partitions[key]
            follower = partition.follower
            # While records wait to be flushed, the position would fetch them again. `again` is called after the flush.
            if follower is None or partition.acknowledged_offset < partition.log.log_end_offset:
                continue
            limit = self._throttle.limit(partition)
            if limit == 0:
                self._retry(key, self._throttle.wait_s())
                continue
            self._told_starts[key] = partition.log.log_start_offset
            positions.append(
                FetchPosition(
                    key,
                    follower.leader_epoch,
                    partition.log.log_end_offset,
                    partition.log.leader_epochs.latest_epoch,
                    partition.log.log_start_offset,
                    self._limits.partition_max_bytes
                    if limit is None
                    else min(limit, self._limits.partition_max_bytes),
                )
            )
            if len(positions) == POSITIONS_MAX:
                self._changed |= dict.fromkeys(changed)
                break
        if outstanding and not (positions or self._forgotten):
            return None
        fetch = FollowerFetch(
            self._broker_id,
            broker_epoch,
            self._session_id,
            self._epoch,
            positions,
            tuple(self._forgotten),
            self._limits.answer_max_bytes,
        )
        self._forgotten.clear()
        if self._session_id != NO_SESSION:
            self._epoch = next_epoch(self._epoch)
        self._outstanding.append(_Outstanding(opens_session=self._session_id == NO_SESSION))
        return fetch

    def open_anew(self) -> None:
        """Allow the next fetch session with this leader. The caller has waited since the leader ended the previous
        session.
        """
        self._paused = False

    def answered(self, answer: SessionAnswer) -> bool:
        """Process the answer to the oldest outstanding request. The caller then asks for `next_fetch`.

        Returns False if the leader ended the session. The caller then waits a moment and calls `open_anew`.
        """
        request = self._outstanding.popleft()
        if answer.error is not ErrorCode.NONE:
            logger.info("the leader ended the fetch session: %s", answer.error.name)
            self._new_session()
            self._paused = True
            return False
        if request.opens_session and self._session_id == NO_SESSION and answer.session_id != NO_SESSION:
            self._session_id = answer.session_id
            self._epoch = next_epoch(FIRST_EPOCH)
        truncations = 0
        for part in answer.partitions:
            partition = self._partitions.get(part.key)
            if partition is None or part.key in request.fenced or partition.follower is None:
                continue
            if part.error is ErrorCode.NONE and part.diverging is not None:
                truncations += 1
                if truncations > TRUNCATIONS_MAX:
                    self._changed[part.key] = None
                    continue
            try:
                self._take(partition, part)
            except (KafkaError, OSError) as error:
                self._on_failure(partition, error)
                self._later(part.key)
        return True

    def _take(self, partition: Partition, part: PartitionAnswer) -> None:
        key = part.key
        if part.error is ErrorCode.NONE:
            if part.diverging is not None:
                logger.info("%r diverges from its leader's log: %s", partition, part.diverging)
                partition.following.truncate_diverging(part.diverging, part.log_start_offset)
                self._changed[key] = None
                return
            if part.goes_on_at > partition.log.log_end_offset:
                logger.info("%r goes on at offset %d, as its leader's log does", partition, part.goes_on_at)
                partition.following.end_at(part.goes_on_at)
                self._changed[key] = None
            records = part.records
            if records is not None and not isinstance(records, memoryview):
                raise TypeError("an answer that was received holds bytes, not a slice of a log")
            if records is not None and self._throttle.limit(partition) is not None:
                self._throttle.spend(len(records))
            partition.following.append_fetched(records, part.high_watermark, part.log_start_offset)
            if (records is not None and len(records)) or (
                partition.log.log_start_offset != self._told_starts.get(key)
            ):
                self._changed[key] = None
            self._delays.pop(key, None)
        elif part.error is ErrorCode.OFFSET_OUT_OF_RANGE and partition.following.restart_at_leaders_start(
            part.log_start_offset
        ):
            logger.warning(
                "%r starts anew at its leader's log start offset %d", partition, part.log_start_offset
            )
            self._changed[key] = None
        else:
            if part.error not in EXPECTED_ERRORS:
                logger.warning("%r cannot be fetched: %s", partition, part.error.name)
            self._later(key)

    def _later(self, key: PartitionKey) -> None:
        delay = self._delays.get(key, RETRY_FIRST_S)
        self._delays[key] = min(delay * 2, max(RETRY_MAX_S, len(self._delays) * RETRY_SPACING_S))
        self._retry(key, delay)
