"""The choice of the batches to send in a turn of the loop, and of their connections."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from ..connections.connection import Connection
from .accumulator import PartitionQueue, ProducerBatch, ProducerIdentity
from .in_flight import InFlight, Sent
from .leaders import Leaders
from .sender_options import SenderOptions
from .transaction_state import TransactionState

BATCHES_MAX = 1_000
"""The maximum number of batches in a request, and in a turn of the loop. A broker appends a request's batches in one
turn, too, and each may be for a log that has no open file."""

LOOK_AGAIN_S = 1.0


@dataclass(slots=True)
class Leaving:
    """The batches to send now.

    `look_again_s` is the loop time at which more may be due. `missing_leader` is True if some batch that is due has no
    connection to a leader.
    """

    look_again_s: float
    requests: dict[Connection, Sent] = field(default_factory=dict)
    missing_leader: bool = False


class Departures:
    """The choice of the batches to send next. A turn sends one batch of each partition, and partitions take turns."""

    def __init__(
        self,
        active: dict[PartitionQueue[Any], None],
        leaders: Leaders,
        in_flight: InFlight,
        options: SenderOptions,
        transaction: TransactionState | None,
    ) -> None:
        """`active` has the queues with waiting batches, in the order of their turns. `choose` removes queues without
        waiting batches, and moves others to the end."""
        self._active = active
        self._leaders = leaders
        self._in_flight = in_flight
        self._options = options
        self._transaction = transaction

    def choose(self, now: float, linger_s: float, identity: ProducerIdentity | None) -> Leaving:
        """Remove and return the batches to send, numbered under `identity` (None without idempotence)."""
        options, leaders = self._options, self._leaders
        chosen = Leaving(now + LOOK_AGAIN_S)
        sizes: defaultdict[Connection, int] = defaultdict(int)
        taken = 0
        for queue in list(self._active):
            if not queue.waiting:
                del self._active[queue]
                continue
            leader = leaders.of(queue)
            due_s = queue.due_s(linger_s) or 0.0
            if leader is not None and leader == queue.failed_leader:
                due_s = max(due_s, queue.retry_at_s)
            if due_s > now:
                chosen.look_again_s = min(chosen.look_again_s, due_s)
                continue
            admitted = self._transaction is None or self._transaction.admits(queue.topic, queue.partition)
            connection = leaders.connection_for(queue, leader)
            if connection is None:
                chosen.missing_leader = True
            if not admitted or connection is None:
                continue
            if self._in_flight.count(connection) >= options.max_in_flight:
                continue
            if sizes[connection] >= options.request_bytes:
                chosen.look_again_s = now
                continue
            batch = queue.take(identity, options.max_in_flight, (connection, leader))
            if batch is not None:
                queue.sent_to = leader
                self._depart(queue, batch, chosen.requests.setdefault(connection, []))
                sizes[connection] += batch.size
                taken += 1
                if taken >= BATCHES_MAX:
                    break
        return chosen

    def _depart(self, queue: PartitionQueue[Any], batch: ProducerBatch[Any], request: Sent) -> None:
        request.append((queue, batch))
        del self._active[queue]
        if queue.waiting:
            self._active[queue] = None  # A queue goes to the end, so that partitions take turns.
