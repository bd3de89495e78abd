"""The markers that this broker has to write as a leader.

It writes them when the feed brings the decision, in the order in which the quorum decided. It reports them once they
are below the high watermark (rules T8, T9, T11, T19). By then the offsets that a transaction has committed are visible,
or gone: the coordinator whose log the partition is gets notified before its marker is reported (rule T14; KAFKA-17507).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import NamedTuple, Protocol

from ...protocol.cluster.cluster_image import ClusterImage
from ...protocol.cluster.transaction_table import Place, TransactionMetadata, Writer
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.transaction_commands import ReportMarkers, WrittenMarker, WrittenMarkers
from ..log.producers.producer_state import NO_NUMBER
from ..quorum.access import Quorum
from ..replication.replica.partition import Partition
from ..replication.replicas.replicas import Replicas
from .batch_check import is_behind

logger = logging.getLogger(__name__)

MARKERS_PER_TURN = 100
REPORTS_AT_ONCE = 4
"""Maximum number of concurrent reports.

Clients wait for the reports of their markers, so a few reports do not wait for each other's outcome. More reports would
carry few markers each, and cost the quorum more.
"""
RETRY_S = 0.5

_Owed = tuple[str, int, int, Place]
"""Transactional id, number, the writer's producer id, partition."""
_Reported = tuple[Place, int]
"""Partition, leader epoch in which the markers were written."""


_Underway = tuple[Place, int, int, int]
"""Partition, leader epoch, the writer's producer id, number."""


class TransactionEnded(Protocol):
    """A callback for the end of a producer's transaction in a partition of a coordinator's topic.

    The marker is the last record below `end_offset`, or an earlier one.
    """

    def __call__(self, partition: int, producer_id: int, end_offset: int, *, committed: bool) -> None: ...


class _Marker(NamedTuple):
    """A transaction's marker that this broker has appended to a partition's log, below the offset `end`.

    `number` is that of the transaction; NO_NUMBER if the quorum knows of no transaction.
    """

    partition: Partition
    leader_epoch: int
    end: int
    producer_id: int
    number: int
    committed: bool


class Markers:
    """The transaction markers that this broker has to write as a partition's leader, and to report to the quorum. Only
    the event loop's thread uses it.

    Markers of one partition are appended in the order of their commit indexes.
    """

    def __init__(
        self,
        broker_id: int,
        replicas: Replicas,
        image: Callable[[], ClusterImage],
        quorum: Quorum,
        coordinators: Mapping[str, TransactionEnded],
    ) -> None:
        """`coordinators` are notified of the ends of transactions in the topics with their state."""
        self._broker_id = broker_id
        self._replicas = replicas
        self._image = image
        self._quorum = quorum
        self._coordinators = coordinators
        #: transactional ids with changes, which are examined once all markers in `_owed` are written
        self._changed: dict[str, None] = {}
        self._owed: deque[_Owed] = deque()
        self._turn: asyncio.Handle | None = None
        #: markers that wait behind a marker that could not be written, in the order of the commit indexes
        self._stuck: dict[Place, list[_Owed]] = {}
        #: markers that are in the log, and not yet known to the quorum
        self._underway: set[_Underway] = set()
        self._unreported: dict[_Reported, dict[int, int]] = {}
        self._reporting: dict[asyncio.Task[None], None] = {}
        #: true while a new report task has not yet taken the markers to report
        self._report_begins = False
        self._retries: dict[asyncio.TimerHandle, None] = {}

    def image_changed(self, transactional_ids: Iterable[str]) -> None:
        """Write the markers of these transactions whose outcome (commit or abort) the image shows as decided."""
        known = self._image().transactions.by_id
        for name in transactional_ids:
            if name in known and known[name].phase.is_decided:
                self._changed[name] = None
        self._write_some()

    def elected(self, partition: Partition) -> None:
        """Append the missing markers to a partition that this broker leads from now on, before anything else is
        appended."""
        place = (partition.topic_id, partition.index)
        here = self._image().transactions.at(place)
        decided = sorted(
            (
                (transaction.commit_index, producer_id)
                for producer_id, transaction in here.items()
                if transaction.phase.is_decided
            )
        )
        uncleanly = self._was_elected_uncleanly(place)
        if uncleanly:
            # A leader that is elected cleanly after this replica does not search for transactions to abort.
            partition.close_isr()
        for _, producer_id in decided:
            transaction = here[producer_id]
            writer = transaction.writers[producer_id]
            if (
                uncleanly
                and writer.committed
                and not self._abort_what_is_older(partition, transaction, writer)
            ):
                waiting = self._stuck[place] = [*self._stuck.get(place, ())]
                self._later(partial(self._begin_again, partition, partition.leader_epoch, waiting))
                return
            self._write(partition, transaction, writer)
        if uncleanly:
            self._abort_what_nobody_knows(partition, partition.leader_epoch)

    def close(self) -> None:
        """Stop writing and reporting transaction markers, as the broker stops."""
        for handle in [*self._retries, *([self._turn] if self._turn is not None else [])]:
            handle.cancel()
        for task in self._reporting:
            task.cancel()

    # ------------------------------------------------------------ writing

    def _write_some(self) -> None:
        """Write a bounded number of markers in each turn of the loop: a transaction may have thousands of
        partitions."""
        if self._turn is not None:
            return
        if not self._owed:
            self._owe_what_was_decided()
        for _ in range(min(MARKERS_PER_TURN, len(self._owed))):
            self._write_owed(self._owed.popleft())
        if self._owed or self._changed:
            self._turn = asyncio.get_running_loop().call_soon(self._next_turn)

    def _owe_what_was_decided(self) -> None:
        """Put the markers of decided transactions into `_owed`, in the order of their commit indexes.

        This is not done at each change: a transaction of many writers changes with each report of some of its markers,
        and its other markers would be put there as often.
        """
        known = self._image().transactions.by_id
        found = [known[name] for name in self._changed if name in known]
        self._changed.clear()
        decided = sorted(
            (transaction for transaction in found if transaction.phase.is_decided),
            key=lambda transaction: transaction.commit_index,
        )
        for transaction in decided:
            for writer, place in transaction.outstanding:
                self._owed.append(
                    (transaction.transactional_id, transaction.number, writer.producer_id, place)
                )

    def _next_turn(self) -> None:
        self._turn = None
        self._write_some()

    def _write_owed(self, owed: _Owed) -> None:
        """Write a marker of a decided transaction if the image shows that it is still missing, and this broker leads
        the partition."""
        name, number, producer_id, place = owed
        partition = self._replicas.find_by_id(*place)
        transaction = self._image().transactions.by_id.get(name)
        if partition is None or partition.leader is None or transaction is None:
            return
        writer = transaction.writers.get(producer_id)
        if transaction.number == number and writer is not None and place in writer.outstanding:
            self._write(partition, transaction, writer)

    def _write(self, partition: Partition, transaction: TransactionMetadata, writer: Writer) -> None:
        """Write the marker unless a former leader has written it; then it is enough that the marker is replicated.

        The position of a former leader's marker is unknown, except that it is below the log end. That suffices: below
        the log end there are no records of a later transaction of this writer, since none can exist while this marker
        is missing; and the former leader knew no more than this broker knew when it was elected.
        """
        producer_id, number, place = writer.producer_id, transaction.number, self._place(partition)
        owed = (transaction.transactional_id, number, producer_id, place)
        if place in self._stuck:
            self._stuck[place].append(owed)
            return
        underway = (place, partition.leader_epoch, producer_id, number)
        if underway in self._underway:
            return
        end = partition.log.log_end_offset
        if not _has_marker(partition, transaction, writer):
            try:
                end = partition.append_marker(
                    producer_id,
                    transaction.marker_epoch(writer),
                    commit=writer.committed,
                    number=number,
                    commit_index=transaction.commit_index,
                )
            except KafkaError as error:
                logger.warning("a marker of %r cannot be written: %s", partition, error)
                waiting = self._stuck[place] = [owed]
                self._later(partial(self._try_again, place, waiting))
                return
        self._underway.add(underway)
        self._when_replicated(
            _Marker(partition, partition.leader_epoch, end, producer_id, number, writer.committed)
        )

    def _try_again(self, place: Place, waiting: list[_Owed]) -> None:
        if self._takes_back(place, waiting):
            for owed in waiting:
                self._write_owed(owed)

    def _takes_back(self, place: Place, waiting: list[_Owed]) -> bool:
        """Remove these markers from those that wait for the partition until an append succeeds. Return whether they
        were still waiting.

        They do not if an election has taken the wait over, which first writes earlier markers.
        """
        if self._stuck.get(place) is not waiting:
            return False
        del self._stuck[place]
        return True

    def _later(self, again: Callable[[], None]) -> None:
        """Call `again` after `RETRY_S`: a full disk may have room by then. After a failed disk the next leader writes
        the marker."""

        def now() -> None:
            del self._retries[timer]
            again()

        timer = asyncio.get_running_loop().call_later(RETRY_S, now)
        self._retries[timer] = None

    def _was_elected_uncleanly(self, place: Place) -> bool:
        """Return whether the partition's leader was elected uncleanly. Copies are exempt: their source continues its
        transactions."""
        image = self._image()
        topic = image.topics_by_id.get(place[0])
        if topic is None or image.mirrors.mirror_of(topic.id) is not None:
            return False
        return place[1] in topic.partitions and topic.partitions[place[1]].unclean

    def _begin_again(self, partition: Partition, leader_epoch: int, waiting: list[_Owed]) -> None:
        if not self._takes_back(self._place(partition), waiting):
            return
        if partition.leader is not None and partition.leader_epoch == leader_epoch:
            self.elected(partition)
        for owed in waiting:
            self._write_owed(owed)

    def _abort_what_is_older(
        self, partition: Partition, transaction: TransactionMetadata, writer: Writer
    ) -> bool:
        """Abort open records of the producer's earlier transaction, whose abort was lost with the former leader.

        The commit of the next transaction must not commit those records, and its own records must not be aborted. If
        the log has the marker of the producer's last aborted transaction here, or the producer has aborted none under
        this epoch, all open records belong to the next transaction. Otherwise none do, since they would lie after that
        marker. Return false if the abort cannot be written.
        """
        entry = partition.log.producers.get(writer.producer_id)
        if entry is None or writer.producer_id not in partition.log.transactions.open:
            return True
        aborted = None
        if transaction.keeps_epoch(writer):
            aborted = transaction.aborted.get(self._place(partition))
        if entry.producer_epoch == writer.producer_epoch and (aborted is None or is_behind(aborted, entry)):
            return True
        try:
            self.abort_unknown(partition, writer.producer_id)
        except KafkaError as error:
            logger.warning("a transaction of %r cannot be aborted: %s", partition, error)
            return False
        return True

    def _abort_what_nobody_knows(self, partition: Partition, leader_epoch: int) -> None:
        """Abort transactions whose markers were lost with the former leader; then let followers join the ISR.

        The quorum has closed them long ago, or aborts them because of this election. Here they would stay open for
        ever.
        """
        if partition.leader is None:
            return
        known = self._image().transactions.at(self._place(partition))
        for producer_id in [
            producer_id for producer_id in partition.log.transactions.open if producer_id not in known
        ]:
            try:
                self.abort_unknown(partition, producer_id)
            except KafkaError as error:
                logger.warning("a transaction of %r cannot be aborted: %s", partition, error)
                self._later(partial(self._abort_what_nobody_knows, partition, leader_epoch))
                return
        if partition.leader_epoch == leader_epoch:
            partition.open_isr()

    def abort_unknown(self, partition: Partition, producer_id: int) -> int:
        """Abort a transaction that is open in the log but not for the quorum; return the offset after the marker.

        Raises KafkaError: NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR.
        """
        entry = partition.log.producers.get(producer_id)
        assert entry is not None
        end = partition.append_marker(
            producer_id, entry.producer_epoch, commit=False, number=NO_NUMBER, commit_index=-1
        )
        self._when_replicated(
            _Marker(partition, partition.leader_epoch, end, producer_id, NO_NUMBER, committed=False)
        )
        return end

    # ------------------------------------------------------------ reporting

    def _when_replicated(self, marker: _Marker) -> None:
        marker.partition.on_high_watermark(marker.end, partial(self._replicated, marker))

    def _replicated(self, marker: _Marker, error: ErrorCode) -> None:
        """Report a marker that is below the high watermark. If this leadership has ended, the next leader handles the
        marker."""
        partition, producer_id = marker.partition, marker.producer_id
        place = self._place(partition)
        if error is not ErrorCode.NONE:
            self._underway.discard((place, marker.leader_epoch, producer_id, marker.number))
            return
        if (ended := self._coordinators.get(partition.topic)) is not None:
            ended(partition.index, producer_id, marker.end, committed=marker.committed)
        if marker.number == NO_NUMBER:
            return
        self._unreported.setdefault((place, marker.leader_epoch), {})[producer_id] = marker.number
        underway = sum(not task.done() for task in self._reporting)
        if not self._report_begins and underway < REPORTS_AT_ONCE:
            self._report_begins = True
            task = asyncio.create_task(self._report(), name="transaction markers")
            self._reporting[task] = None
            task.add_done_callback(self._reporting.pop)

    async def _report(self) -> None:
        """Report the markers that are below the high watermark to the quorum: all that have gathered meanwhile in one
        command."""
        self._report_begins = False
        while self._unreported:
            reporting, self._unreported = self._unreported, {}
            command = ReportMarkers(
                broker_id=self._broker_id,
                broker_epoch=self._quorum.broker_epoch,
                partitions=[_written(reported, writers) for reported, writers in reporting.items()],
            )
            try:
                await self._quorum.submit(command)
            except KafkaError as error:
                if error.code is ErrorCode.STALE_BROKER_EPOCH:
                    return  # Another process has this broker's id: this one ends.
                logger.info(
                    "the quorum does not know yet of %d partitions' markers: %s", len(reporting), error
                )
                for reported, writers in reporting.items():
                    self._unreported[reported] = writers | self._unreported.get(reported, {})
                await asyncio.sleep(RETRY_S)
                continue
            for (place, leader_epoch), writers in reporting.items():
                self._underway.difference_update(
                    (place, leader_epoch, producer_id, number) for producer_id, number in writers.items()
                )

    @staticmethod
    def _place(partition: Partition) -> Place:
        return partition.topic_id, partition.index


def _has_marker(partition: Partition, transaction: TransactionMetadata, writer: Writer) -> bool:
    """Return whether a former leader has written the marker into this log.

    Commit indexes rise along a log. So the marker is there if a marker with a higher index is there, and the producer
    has no open transaction: the producer may be unknown, if the log was copied from an offset after deleted records.
    Equal indexes prove nothing, since the markers of a transaction's writers come in any order. A marker that is
    written again ends nothing.
    """
    log, producer_id = partition.log, writer.producer_id
    if is_behind(transaction.number, log.producers.get(producer_id)):
        return True
    return (
        transaction.commit_index < log.transactions.last_commit_index
        and producer_id not in log.transactions.open
    )


def _written(reported: _Reported, writers: dict[int, int]) -> WrittenMarkers:
    (topic_id, index), leader_epoch = reported
    return WrittenMarkers(
        topic_id=topic_id,
        partition=index,
        leader_epoch=leader_epoch,
        writers=[
            WrittenMarker(producer_id=producer_id, number=number) for producer_id, number in writers.items()
        ],
    )
