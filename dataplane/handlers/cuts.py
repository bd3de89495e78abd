"""FindCut (0) and ListCutOffsets (0), Ottla's own: offsets at which a reader tears no transaction (rule T19).

The quorum's leader knows the newest commit index X up to which no marker is missing in the partitions. The leader of
each partition knows the offset of the first marker above X. Below these offsets a reader finds all records of the
transactions up to X. It need not wait for any other transaction, however long that is open.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Collection
from typing import Protocol

from ...protocol.cluster.acls import AclOperation, AclResourceType
from ...protocol.cluster.transaction_table import Place
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.cuts import (
    CutOffset,
    CutOffsetsTopic,
    FindCutRequest,
    FindCutResponse,
    ListCutOffsetsRequest,
    ListCutOffsetsResponse,
)
from ..log.producers.marker_search import MarkerSearch
from ..log.producers.recent_markers import FirstMarker
from ..quorum.access import Quorum
from ..quorum.shared_catch_up import SharedCatchUp
from ..quorum.transaction_questions import TransactionCut
from ..replication.replica.partition import Partition
from ..replication.replicas.replicas import Replicas
from ..replication.roles.leader import LeaderState
from ..runtime.threads import in_thread
from ..runtime.time_slices import in_time_slices
from ..security.authorization.access import Access, denial
from ..security.authorization.needs import handler_asks
from ..server.handler import ClientRequest, as_kafka_error, handles

FIND_TIMEOUT_S = 5.0
VERIFY_TIMEOUT_S = 2.0
SEARCHES_MAX = 2
"""Maximum number of concurrent searches, each of which may read a segment."""
FOUND_MAX = 1000

_Searched = tuple[bytes, int, int, int]
"""Topic id, partition, leader epoch, cut."""


class CutFinder(Protocol):
    """A client of the quorum's leader that asks for cuts: commit indexes up to which transactions are whole."""

    async def cut(self, places: Collection[Place], timeout_s: float) -> TransactionCut | None:
        """Return the newest cut of these partitions, or of all if none is named: the largest commit index up to which
        no marker is missing.

        None is returned if no leader has answered in time.
        """


class CutHandlers:
    """The handlers of FindCut and ListCutOffsets, for readers that must not read a part of a transaction."""

    def __init__(
        self,
        replicas: Replicas,
        quorum: Quorum,
        finder: CutFinder,
        catch_up: SharedCatchUp,
    ) -> None:
        self._replicas = replicas
        self._finder = finder
        self._quorum = quorum
        self._shared_catch_up = catch_up
        self._searching = asyncio.Semaphore(SEARCHES_MAX)
        self._found: OrderedDict[_Searched, FirstMarker] = OrderedDict()

    @handles(FindCutRequest, 0, 0, needs=handler_asks("DESCRIBE Topic for each that is named, or for some"))
    async def find(self, request: ClientRequest, message: FindCutRequest) -> FindCutResponse:
        """Return the newest cut of some partitions: the largest commit index up to which no marker is missing there."""
        access = request.access
        for topic in message.topics:
            self._check_topic(access, topic.topic_id)
        if not message.topics and not access.may_describe_some(AclResourceType.TOPIC):
            raise denial(AclResourceType.TOPIC)
        places = {(topic.topic_id, index) for topic in message.topics for index in topic.partitions}
        cut = await self._finder.cut(places, FIND_TIMEOUT_S)
        if cut is None:
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT, f"the metadata quorum did not answer within {FIND_TIMEOUT_S:g} s"
            )
        return FindCutResponse(cut=cut.commit_index, metadata_offset=cut.metadata_offset)

    @handles(ListCutOffsetsRequest, 0, 0, needs=handler_asks("DESCRIBE Topic"))
    async def list_offsets(
        self, request: ClientRequest, message: ListCutOffsetsRequest
    ) -> ListCutOffsetsResponse:
        """Return, for each partition that this broker leads, the offset up to which a reader may read at a cut.

        A broker that no longer leads, and has not learnt of it, does not know the newest markers. Its high watermark
        may lie below markers that belong to the cut. So a leader answers only if its image is as new as the cut.
        """
        if message.cut < -1:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"cut {message.cut}: it must be a commit index, or -1"
            )
        is_behind = not 0 <= message.metadata_offset <= self._quorum.image.offset
        if is_behind and self._may_see_some(request.access, message):
            await self._catch_up()
        answers = [CutOffsetsTopic(topic_id=topic.topic_id) for topic in message.topics]
        parts = (
            (answer, index)
            for topic, answer in zip(message.topics, answers, strict=True)
            for index in topic.partitions
        )
        async for answer, index in in_time_slices(parts):
            answer.partitions.append(await self._offset(request.access, answer.topic_id, index, message.cut))
        return ListCutOffsetsResponse(topics=answers)

    def _may_see_some(self, access: Access, message: ListCutOffsetsRequest) -> bool:
        """Return whether the client may describe some topic of the request. Otherwise the whole answer is a refusal,
        and the quorum need not be asked."""
        topics = (self._quorum.image.topics_by_id.get(topic.topic_id) for topic in message.topics)
        names = {None if topic is None else topic.name for topic in topics}
        # A topic may be too new for this broker's image.
        is_new = None in names and access.may_describe_some(AclResourceType.TOPIC)
        return is_new or any(
            access.allows(AclOperation.DESCRIBE, AclResourceType.TOPIC, name, quiet=True)
            for name in names
            if name is not None
        )

    async def _catch_up(self) -> None:
        """Return once this broker's image has all that the quorum had decided when the request came."""
        try:
            async with asyncio.timeout(VERIFY_TIMEOUT_S):
                await self._shared_catch_up.wait()
        except (KafkaError, TimeoutError):
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, "this broker does not know whether it still leads"
            ) from None

    def _check_topic(self, access: Access, topic_id: bytes) -> None:
        """Raises TOPIC_AUTHORIZATION_FAILED. The absence of a topic id is not secret."""
        topic = self._quorum.image.topics_by_id.get(topic_id)
        if topic is not None:
            access.check_topic(AclOperation.DESCRIBE, topic.name)

    async def _offset(self, access: Access, topic_id: bytes, index: int, cut: int) -> CutOffset:
        try:
            self._check_topic(access, topic_id)
            found = await self._cut_offset(self._replicas.get_by_id(topic_id, index), cut)
        except Exception as error:
            code = as_kafka_error(error, f"a cut through {topic_id.hex()}-{index}").code
            return CutOffset(partition_index=index, error_code=code)
        return CutOffset(
            partition_index=index,
            offset=found.offset,
            open_from=found.open_from,
            least_offset=found.least_offset,
        )

    async def _cut_offset(self, partition: Partition, cut: int) -> FirstMarker:
        leader = _settled(partition)
        found = partition.log.transactions.marker_above(cut)
        if isinstance(found, MarkerSearch):
            found = await self._search((partition.topic_id, partition.index, leader.leader_epoch, cut), found)
            if partition.leader is not leader:
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        start, watermark = partition.log.log_start_offset, leader.high_watermark
        if found is None or found.offset >= watermark:
            last = (
                partition.log.producers.transactions.behind_last_end if found is None else found.least_offset
            )
            stable = partition.log.transactions.last_stable_offset(watermark)
            return FirstMarker(watermark, stable, min(max(last, start), watermark))
        return FirstMarker(*(max(offset, start) for offset in found))

    async def _search(self, searched: _Searched, search: MarkerSearch) -> FirstMarker | None:
        """Search for a marker in a thread, and remember the result for clients that ask again because the search took
        long.

        The result is valid as long as this leader epoch lasts.
        """
        try:
            async with self._searching:
                if searched in self._found:
                    return self._found[searched]
                found = await in_thread(search.find)
        finally:
            search.close()
        if found is not None:
            self._found[searched] = found
            if len(self._found) > FOUND_MAX:
                self._found.popitem(last=False)
        return found


def _settled(partition: Partition) -> LeaderState:
    """Return the leadership of a partition whose high watermark is above all that former leaders have shown.

    Raises KafkaError: NOT_LEADER_OR_FOLLOWER, OFFSET_NOT_AVAILABLE.
    """
    leader = partition.leading()
    if leader.high_watermark < leader.epoch_start_offset:
        raise KafkaError(
            ErrorCode.OFFSET_NOT_AVAILABLE,
            f"the high watermark of {partition!r} has not reached leader epoch {leader.leader_epoch}",
        )
    return leader
