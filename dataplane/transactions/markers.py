"""The markers that this broker owes as a leader: it writes them when the feed brings the decision, in the order in
which the quorum decided, and reports them once they are below the high watermark (rules T8, T9, T11, T19).

By then the offsets that a transaction has committed are visible, or gone: before it is reported, the groups of that
`__consumer_offsets` partition are told (rule T14; KAFKA-17507)."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple, Protocol

from ...protocol.cluster.cluster_image import ClusterImage
from ...protocol.cluster.transaction_table import Place, TransactionMetadata, Writer
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.transaction_commands import ReportMarkers, WrittenMarker, WrittenMarkers
from ..cluster.internal_topics import OFFSETS_TOPIC
from ..log.producers.producer_state import NO_NUMBER
from ..quorum.access import Quorum
from ..replication.replica.partition import Partition
from ..replication.replicas.replicas import Replicas
from .batch_check import is_behind

logger = logging.getLogger(__name__)

MARKERS_PER_TURN = 100
REPORTS_AT_ONCE = 4
"""Commands under way. Clients wait for their markers to be told, so a few do not wait for each other's outcome; more
would each have a few markers, and cost the quorum more."""
RETRY_S = 0.5

_Owed = tuple[str, int, int, Place]
"""Transactional id, number, the writer's producer id, partition."""
_Reported = tuple[Place, int]
"""Partition, leader epoch in which the markers were written."""


_Underway = tuple[Place, int, int, int]
"""Partition, leader epoch, the writer's producer id, number."""


class OffsetsEnded(Protocol):
    """The transaction of a producer has ended in a partition of `__consumer_offsets`, with a marker right below
    `end_offset`, or somewhere below it."""

    def __call__(self, partition: int, producer_id: int, end_offset: int, *, committed: bool) -> None: ...


class _Marker(NamedTuple):
    """One in the log: below `end`. `number` is that of the transaction, NO_NUMBER if the quorum knows of none."""

    partition: Partition
    leader_epoch: int
    end: int
    producer_id: int
    number: int
    committed: bool


class Markers:
    """One writer: the event loop. Markers of one partition are appended in the order of their commit indexes."""

    def __init__(
        self,
        broker_id: int,
        replicas: Replicas,
        image: Callable[[], ClusterImage],
        quorum: Quorum,
        offsets_ended: OffsetsEnded,
    ) -> None:
        self._broker_id = broker_id
        self._replicas = replicas
        self._image = image
        self._quorum = quorum
        self._offsets_ended = offsets_ended
        #: transactional ids that have something new, and are looked through once nothing is owed of earlier ones
        self._changed: dict[str, None] = {}
        self._owed: deque[_Owed] = deque()
        self._turn: asyncio.Handle | None = None
        #: what waits behind a marker that could not be written, in the order of the commit indexes
        self._stuck: dict[Place, list[_Owed]] = {}
        #: what is in the log, and not yet known to the quorum
        self._underway: set[_Underway] = set()
        self._unreported: dict[_Reported, dict[int, int]] = {}
        self._reporting: dict[asyncio.Task[None], None] = {}
        #: whether one of them has not taken yet what is to be reported
        self._report_begins = False
        self._retries: dict[asyncio.TimerHandle, None] = {}

    def image_changed(self, transactional_ids: Iterable[str]) -> None:
        """Some of these may have been decided."""
        known = self._image().transactions.by_id
        for name in transactional_ids:
            if name in known and known[name].phase.is_decided:
                self._changed[name] = None
        self._write_some()

    def elected(self, partition: Partition) -> None:
        """This broker leads it from now on; what is missing is written before anything else is appended."""
        place = (partition.topic_id, partition.index)
        here = self._image().transactions.at(place)
        decided = sorted(
            ((one.commit_index, producer_id) for producer_id, one in here.items() if one.phase.is_decided)
        )
        uncleanly = self._was_elected_uncleanly(place)
        if uncleanly:
            # Who leads after this replica in a clean election does not look for what has to be aborted.
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
        """Write and report nothing more."""
        for handle in [*self._retries, *([self._turn] if self._turn is not None else [])]:
            handle.cancel()
        for task in self._reporting:
            task.cancel()

    # ------------------------------------------------------------ writing

    def _write_some(self) -> None:
        """A bounded number in each turn of the loop: a transaction may have written to thousands of partitions."""
        if self._turn is not None:
            return
        if not self._owed:
            self._owe_what_was_decided()
        for _ in range(min(MARKERS_PER_TURN, len(self._owed))):
            self._write_owed(self._owed.popleft())
        if self._owed or self._changed:
            self._turn = asyncio.get_running_loop().call_soon(self._next_turn)

    def _owe_what_was_decided(self) -> None:
        """Not with each change: a transaction of many writers changes with each report of some of its markers, and the
        others would be owed as often as that."""
        known = self._image().transactions.by_id
        found = [known[name] for name in self._changed if name in known]
        self._changed.clear()
        decided = sorted(
            (one for one in found if one.phase.is_decided), key=lambda transaction: transaction.commit_index
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
        """If it is still owed, by this broker."""
        name, number, producer_id, place = owed
        partition = self._replicas.find_by_id(*place)
        transaction = self._image().transactions.by_id.get(name)
        if partition is None or partition.leader is None or transaction is None:
            return
        writer = transaction.writers.get(producer_id)
        if transaction.number == number and writer is not None and place in writer.outstanding:
            self._write(partition, transaction, writer)

    def _write(self, partition: Partition, transaction: TransactionMetadata, writer: Writer) -> None:
        """Unless a former leader has: then it is enough that it is replicated.

        Where in the log it is then, nobody knows, only that it is below the log end. That is enough: below it nothing
        is of a later transaction of this writer, for as long as this marker is owed there cannot be one; and who led
        before knew no more than this broker knew when it was elected.
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
        """Whether this is what waits there still. An election that has taken it over first writes what goes before."""
        if self._stuck.get(place) is not waiting:
            return False
        del self._stuck[place]
        return True

    def _later(self, again: Callable[[], None]) -> None:
        """A full disk may have room again; who leads after a failed one writes it there."""

        def now() -> None:
            del self._retries[timer]
            again()

        timer = asyncio.get_running_loop().call_later(RETRY_S, now)
        self._retries[timer] = None

    def _was_elected_uncleanly(self, place: Place) -> bool:
        """A copy is not concerned: its transactions are those of its source, which goes on with them."""
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
        """What is open in the log may be of a transaction whose abort was lost with the former leader: the commit of
        the producer's next one is not to commit it, while its own must not be torn. Where the log has the marker of
        what the producer has aborted here last, or there is no such thing under its epoch, all is its own. Else nothing
        is, since that comes behind the marker: it is aborted; false if there is no room for that."""
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
        """Abort transactions whose markers were lost with the former leader: the quorum has closed them long ago, or
        aborts them for the sake of this election; here they would stay open for ever. Then others may join the ISR."""
        if partition.leader is None:
            return
        known = self._image().transactions.at(self._place(partition))
        for producer_id in [one for one in partition.log.transactions.open if one not in known]:
            try:
                self.abort_unknown(partition, producer_id)
            except KafkaError as error:
                logger.warning("a transaction of %r cannot be aborted: %s", partition, error)
                self._later(partial(self._abort_what_nobody_knows, partition, leader_epoch))
                return
        if partition.leader_epoch == leader_epoch:
            partition.open_isr()

    def abort_unknown(self, partition: Partition, producer_id: int) -> int:
        """End what is open in the log, and for the quorum is not; the offset behind the marker.

        KafkaError: NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR.
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
        """Below the high watermark; or this leadership ended, and the next leader looks after it."""
        partition, producer_id = marker.partition, marker.producer_id
        place = self._place(partition)
        if error is not ErrorCode.NONE:
            self._underway.discard((place, marker.leader_epoch, producer_id, marker.number))
            return
        if partition.topic == OFFSETS_TOPIC:
            self._offsets_ended(partition.index, producer_id, marker.end, committed=marker.committed)
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
        """All that has come together meanwhile goes into one command."""
        self._report_begins = False
        while self._unreported:
            told, self._unreported = self._unreported, {}
            command = ReportMarkers(
                broker_id=self._broker_id,
                broker_epoch=self._quorum.broker_epoch,
                partitions=[_written(reported, writers) for reported, writers in told.items()],
            )
            try:
                await self._quorum.submit(command)
            except KafkaError as error:
                if error.code is ErrorCode.STALE_BROKER_EPOCH:
                    return  # Another process has this broker's id: this one ends.
                logger.info("the quorum does not know yet of %d partitions' markers: %s", len(told), error)
                for reported, writers in told.items():
                    self._unreported[reported] = writers | self._unreported.get(reported, {})
                await asyncio.sleep(RETRY_S)
                continue
            for (place, leader_epoch), writers in told.items():
                self._underway.difference_update(
                    (place, leader_epoch, producer_id, number) for producer_id, number in writers.items()
                )

    @staticmethod
    def _place(partition: Partition) -> Place:
        return partition.topic_id, partition.index


def _has_marker(partition: Partition, transaction: TransactionMetadata, writer: Writer) -> bool:
    """Whether a former leader has written it into this log. Commit indexes rise along a log, so it has if one with a
    higher index is there, and nothing is open: where the log was copied from behind deleted records, the producer may
    be unknown. Equal ones say nothing: those of a transaction's writers come in any order. A marker that is written
    again ends nothing."""
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
        writers=[WrittenMarker(producer_id=one, number=number) for one, number in writers.items()],
    )
