"""The producer id and epoch by which a leader recognizes duplicates.

They are requested from the cluster, and replaced by the next epoch when a sequence has a gap.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.producers import InitProducerIdRequest
from ..backoff import Backoff
from ..connections.cluster import Cluster
from ..failures import ConnectionLost, NoBrokerReachable, RequestTimedOut
from .accumulator import PartitionQueue, ProducerIdentity
from .leaders import Spawn

MAX_EPOCH = 32_767

SEQUENCE_LOST = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)
"""Answers that mean: the sequence does not continue the leader's."""

_Queue = PartitionQueue[Any]


class Idempotence:
    """The identity (producer id and epoch) under which batches are numbered. A transaction's coordinator sets it for a
    transactional producer, which calls nothing else here."""

    def __init__(
        self,
        cluster: Cluster,
        active: Collection[_Queue],
        retry_backoff_max_ms: int,
        spawn: Spawn,
        wake: Callable[[], None],
        refused: Callable[[KafkaError], None],
    ) -> None:
        """`active` has at any time the queues with waiting batches. `wake` is called when there is an identity, and
        before each further attempt to get one. `refused` is called if the cluster grants none."""
        self.identity: ProducerIdentity | None = None
        self._cluster = cluster
        self._active = active
        self._retry_backoff_max_ms = retry_backoff_max_ms
        self._spawn = spawn
        self._wake = wake
        self._refused = refused
        self._seeking = False

    def seek(self) -> None:
        """Start fetching a producer id and epoch, unless that is in progress."""
        if not self._seeking:
            self._seeking = True
            self._spawn(self._fetch())

    def start_new_sequence(self, queue: _Queue) -> None:
        """Number a queue's waiting batches again, since they do not continue its leader's sequence."""
        identity = queue.identity
        queue.restart_numbering()
        self.give_up(identity)

    def give_up(self, broken: ProducerIdentity | None) -> None:
        """Replace `broken` by its next epoch, unless it was replaced already. After the last epoch a new producer id is
        fetched."""
        if broken is not None and broken == self.identity:
            spent = broken.epoch >= MAX_EPOCH
            self.identity = None if spent else ProducerIdentity(broken.id, broken.epoch + 1)

    async def _fetch(self) -> None:
        backoff = Backoff(self._retry_backoff_max_ms)
        try:
            while self._active:
                request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=2**31 - 1)
                # A broker that is unreachable now may be reachable before the records expire.
                with suppress(ConnectionLost, RequestTimedOut, NoBrokerReachable):
                    response = await self._cluster.ask_any(request)
                    code = ErrorCode.of(response.error_code)
                    if code == ErrorCode.NONE:
                        self.identity = ProducerIdentity(response.producer_id, response.producer_epoch)
                        return
                    if not code.retriable:
                        raise self._cluster.failure(code, "no producer id", operation="IDEMPOTENT_WRITE")
                await asyncio.sleep(backoff.next_s())
                self._wake()
        except KafkaError as error:
            self._refused(error)
        finally:
            self._seeking = False
            self._wake()
