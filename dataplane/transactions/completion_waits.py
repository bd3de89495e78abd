"""The waits of clients for the completion of a decided transaction, when readers see its end (rule T10)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from ...protocol.cluster.cluster_image import NO_LEADER, ClusterImage
from ...protocol.cluster.transaction_table import Place
from ...protocol.errors import ErrorCode, KafkaError

_Waiting = tuple[int, Place | None, asyncio.Future[None]]
"""A wait for the transaction with this number, in one partition or (None) in all."""


class CompletionWaits:
    """The client requests that wait until a decided transaction is complete, by transactional id. Only the event loop's
    thread uses it."""

    def __init__(self, image: Callable[[], ClusterImage]) -> None:
        self._image = image
        self._waiting: dict[str, list[_Waiting]] = {}
        #: numbers of transactions that have all their markers, though the image does not show it yet
        self._settled: dict[str, int] = {}

    async def over(
        self, transactional_id: str, number: int, timeout_s: float, *, at: Place | None = None
    ) -> None:
        """Wait until a transaction is complete: every partition that has a leader has the transaction's markers below
        its high watermark.

        With `at`, return once this partition has them. A broker that leads it, and is not the client's, is not notified
        of other partitions. Raises KafkaError CONCURRENT_TRANSACTIONS if that takes longer than `timeout_s`. The
        transaction is decided all the same, and the client asks again.
        """
        if self._is_over(transactional_id, number, at):
            return
        completed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = self._waiting.setdefault(transactional_id, [])
        waiting.append((number, at, completed))
        try:
            async with asyncio.timeout(timeout_s):
                await completed
        except TimeoutError:
            raise KafkaError(
                ErrorCode.CONCURRENT_TRANSACTIONS,
                f"transaction {number} of {transactional_id!r} is decided, and its markers are not all written yet",
            ) from None
        finally:
            waiting.remove((number, at, completed))
            if not waiting:
                self._waiting.pop(transactional_id, None)

    def image_changed(self, transactional_ids: Iterable[str], *, leaders_changed: bool) -> None:
        """Check the waits for these transactions again, since they have changed in the image; with `leaders_changed`,
        check all waits."""
        names = (
            list(self._waiting)
            if leaders_changed
            else [name for name in transactional_ids if name in self._waiting]
        )
        for name in names:
            self._tell(name)
        for name in transactional_ids:
            if name in self._settled and not self._is_decided(name, self._settled[name]):
                del self._settled[name]

    def settled(self, transactional_id: str, number: int) -> None:
        """Complete a transaction whose markers are below the high watermarks of all partitions, as the quorum's leader
        reports.

        The leader has sent the decision to this broker before.
        """
        if self._is_decided(transactional_id, number):
            self._settled[transactional_id] = number
            self._tell(transactional_id)

    def _tell(self, transactional_id: str) -> None:
        for number, at, completed in self._waiting.get(transactional_id, ()):
            if not completed.done() and self._is_over(transactional_id, number, at):
                completed.set_result(None)

    def _is_decided(self, transactional_id: str, number: int) -> bool:
        transaction = self._image().transactions.by_id.get(transactional_id)
        return transaction is not None and transaction.number == number and transaction.phase.is_decided

    def _is_over(self, transactional_id: str, number: int, at: Place | None) -> bool:
        transaction = self._image().transactions.by_id.get(transactional_id)
        if transaction is None or transaction.number != number or transaction.phase.is_over:
            return True
        if self._settled.get(transactional_id) == number:
            return True
        if at is not None and transaction.phase.is_decided and at not in transaction.lacking:
            return True
        return transaction.phase.is_decided and not any(map(self._has_leader, transaction.lacking))

    def _has_leader(self, place: Place) -> bool:
        topic = self._image().topics_by_id.get(place[0])
        state = topic.partitions.get(place[1]) if topic is not None else None
        return state is not None and state.leader != NO_LEADER
