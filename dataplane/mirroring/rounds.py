"""The rounds of a mirror on one broker. A cut of the source is a point in its sequence of transactions (a commit
index), with an offset in each partition. A round asks the source for a cut, asks its leaders for the cut's offsets in
their partitions, and reports to the quorum the copies that have reached it.

The source must be a cluster of Ottla. A leader's answer is valid only if its log agrees with the copy. So the answer
counts if a fetch was answered before and after it by that leader, in the same leader epoch (`Copy.fetched_in`).
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Final

from ...protocol.cluster.mirror_cuts import ROUNDS_MAX
from ...protocol.cluster.mirror_table import Mirror
from ...protocol.cluster.transaction_table import Place
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.features import MIRROR, MIRROR_WITH_CUTS, finalized
from ...protocol.messages.cuts import CutTopic, FindCutRequest, FindCutResponse, ListCutOffsetsRequest
from ...protocol.messages.metadata import MetadataRequest
from ...protocol.messages.mirror_commands import AnnounceMirrorCut, ReachedCut, ReportMirrorCuts
from ...protocol.wire.schema import ZERO_UUID
from ..quorum.access import Quorum
from ..runtime.clocks import monotonic_ms, wall_ms
from .copies import Copy, ReportedCut
from .first_cut import ANSWER_TIMEOUT_MS
from .source import SourceCluster
from .source_versions import SourceVersions, versions_at
from .topic_list import TopicList

LANE: Final = "cuts"
ROUND_EVERY_S: Final = 1.0
SHARE_MAX: Final = 10
"""Minimum ratio of the interval between rounds to their duration. A round makes the source examine its topics, so slow
rounds are begun less often."""
RETRY_MS: Final = 200
HAS_NO_CUTS: Final = "the source tells no cuts of its transactions: it is no cluster of Ottla"


class CutRounds:
    """The rounds of one mirror, in which copies reach a cut of the source. One writer: the event loop."""

    def __init__(
        self, broker_id: int, mirror: Mirror, source: SourceCluster, quorum: Quorum, topics: TopicList
    ) -> None:
        self.trouble = ""
        """Reason why there was no cut when this broker last looked; empty if there was one."""
        self._broker_id = broker_id
        self._mirror = mirror
        self._source = source
        self._quorum = quorum
        self._topics = topics
        self._retry_ms: dict[int, int] = {}
        """Time from which a broker of the source may be asked again after a refusal, by broker id."""

    # ------------------------------------------------------------ announcing

    async def announce(self, brokers: Sequence[int]) -> float:
        """Ask one of the source's brokers for a cut, and announce it to the quorum as a new round, if fewer than
        `ROUNDS_MAX` are open. Returns the number of seconds until the next attempt.
        """
        began = time.monotonic()
        try:
            self.trouble = await self._announce(brokers)
        except KafkaError as error:
            self.trouble = HAS_NO_CUTS if error.code is ErrorCode.UNSUPPORTED_VERSION else error.message
        return max(ROUND_EVERY_S, SHARE_MAX * (time.monotonic() - began))

    async def _announce(self, brokers: Sequence[int]) -> str:
        """Ask for a cut and announce the round. Returns the reason why no round can begin, or an empty string. Raises
        KafkaError.
        """
        image = self._quorum.image
        if finalized(image.features)[MIRROR] < MIRROR_WITH_CUTS:
            return f"the feature {MIRROR} is below level {MIRROR_WITH_CUTS}"
        copies = image.copies_of(self._mirror.name)
        if not copies or not brokers or len(image.mirror_cuts.of(self._mirror.name).rounds) >= ROUNDS_MAX:
            return ""
        topics = self._at_source(copies)
        if any(topic.topic_id == ZERO_UUID for topic in topics):
            return HAS_NO_CUTS
        asked_ms, broker = wall_ms(), brokers[self._quorum.image.offset % len(brokers)]
        found = await self._source.ask(
            broker, FindCutRequest(topics=topics), lane=LANE, timeout_ms=ANSWER_TIMEOUT_MS
        )
        if found.error_code:
            raise KafkaError(ErrorCode.of(found.error_code), found.error_message or "")
        # If offsets are wanted only from now on, this round may be without them.
        has_offsets = self._topics.has_offsets
        if not await self._is_of_all(broker):
            return (
                self._topics.offsets_trouble or "the source has topics or partitions that are not copied yet"
            )
        told_offset = image.mirror_cuts.of(self._mirror.name).versions.told_offset
        versions = await versions_at(
            self._source, broker, found.cut, told_offset, lane=LANE, timeout_ms=ANSWER_TIMEOUT_MS
        )
        await self._quorum.submit(self._announcement(found, versions, asked_ms, len(copies), has_offsets))
        return ""

    async def _is_of_all(self, broker: int) -> bool:
        """Return whether all topics and partitions that should be copied from the source have copies. Otherwise its cut
        would be incomplete here.

        The source is asked after the cut is known: topics that appear later were created after the cut. The question
        goes to the broker that reported the cut, since its metadata are at least as new as the cut.
        """
        everything = MetadataRequest(topics=None, allow_auto_topic_creation=False)
        metadata = await self._source.ask(broker, everything, lane=LANE, timeout_ms=ANSWER_TIMEOUT_MS)
        return metadata.cluster_id == self._mirror.source_cluster_id and self._topics.has_all(metadata)

    def _announcement(
        self,
        found: FindCutResponse,
        versions: SourceVersions,
        asked_ms: int,
        copies: int,
        has_offsets: bool,
    ) -> AnnounceMirrorCut:
        return AnnounceMirrorCut(
            mirror=self._mirror.name,
            cut=found.cut,
            metadata_offset=found.metadata_offset,
            time_ms=asked_ms,
            copies=copies,
            told_offset=versions.told_offset,
            next_offset=versions.next_offset,
            versions_are_whole=versions.are_whole,
            versions=versions.versions,
            has_offsets=has_offsets,
        )

    def _at_source(self, copies: Collection[Place]) -> list[CutTopic]:
        known = self._quorum.image.mirrors.topics
        return [
            CutTopic(
                topic_id=known[topic_id].source_topic_id, partitions=sorted(index for _, index in places)
            )
            for topic_id, places in groupby(copies, key=itemgetter(0))
        ]

    # ------------------------------------------------------------ asking leaders

    async def ask(self, broker_id: int, copies: Sequence[Copy]) -> None:
        """Ask a broker of the source for the offsets of open rounds' cuts in the partitions that it leads. Copies that
        have reached a round's cut are left out.
        """
        if monotonic_ms() < self._retry_ms.get(broker_id, 0):
            return
        cuts = self._quorum.image.mirror_cuts.of(self._mirror.name)
        for cut_round in cuts.rounds:
            asked = [
                copy
                for copy in copies
                if cut_round.number not in copy.cuts
                and copy.fetched_epoch == copy.source_epoch
                and copy.source_topic_id != ZERO_UUID
                and cuts.offset((copy.partition.topic_id, copy.partition.index), cut_round.number) is None
            ]
            if asked and not await self._ask(
                broker_id, cut_round.number, cut_round.cut, cut_round.metadata_offset, asked
            ):
                self._retry_ms[broker_id] = monotonic_ms() + RETRY_MS
                return

    async def _ask(
        self, broker_id: int, number: int, cut: int, metadata_offset: int, copies: Sequence[Copy]
    ) -> bool:
        """Ask a broker of the source for the offsets of one cut in these copies' partitions. Returns whether the broker
        answered for all copies.
        """
        epochs = [copy.source_epoch for copy in copies]
        request = ListCutOffsetsRequest(cut=cut, metadata_offset=metadata_offset, topics=_topics_of(copies))
        try:
            answer = await self._source.ask(broker_id, request, lane=LANE, timeout_ms=ANSWER_TIMEOUT_MS)
        except KafkaError:
            return False
        offsets = {
            (topic.topic_id, part.partition_index): part.offset
            for topic in answer.topics
            for part in topic.partitions
            if not part.error_code and part.offset >= 0
        }
        for copy, epoch in zip(copies, epochs, strict=True):
            offset = offsets.get((copy.source_topic_id, copy.partition.index))
            if offset is not None and copy.source_epoch == epoch:
                copy.cuts[number] = ReportedCut(offset, epoch)
        return len(offsets) == len(copies)

    # ------------------------------------------------------------ telling the quorum

    async def tell(self, copies: Iterable[Copy]) -> None:
        """Report to the quorum the cuts that copies have reached: all in-sync replicas have every record below the
        cut's offset. Raises KafkaError.
        """
        found = [
            (copy, number, cut)
            for copy in copies
            if copy.cuts and copy.is_led
            for number, cut in copy.cuts.items()
            if cut.is_certain and copy.partition.high_watermark >= cut.offset
        ]
        if not found:
            return
        command = ReportMirrorCuts(
            broker_id=self._broker_id,
            partitions=[
                ReachedCut(
                    topic_id=copy.partition.topic_id,
                    partition=copy.partition.index,
                    leader_epoch=copy.leader_epoch,
                    number=number,
                    offset=cut.offset,
                )
                for copy, number, cut in found
            ],
        )
        await self._quorum.submit(command)
        for copy, number, cut in found:
            if copy.cuts.get(number) is cut:
                del copy.cuts[number]


def _topics_of(copies: Sequence[Copy]) -> list[CutTopic]:
    by_topic: Mapping[bytes, list[int]] = defaultdict(list)
    for copy in copies:
        by_topic[copy.source_topic_id].append(copy.partition.index)
    return [CutTopic(topic_id=topic_id, partitions=indexes) for topic_id, indexes in by_topic.items()]
