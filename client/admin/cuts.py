"""Cuts: positions in all partitions at which no transaction is torn. An extension of Ottla; see
docs/TRANSACTIONS.md."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Annotated

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.cuts import FindCutRequest, ListAppVersionsRequest, ListCutOffsetsRequest
from ..arguments import topic_partitions
from ..bounds import Within
from ..connections.metadata import ClusterMetadata, KnownTopic
from ..records import TopicPartition
from ..transactions.cuts import cut_offsets, cut_topics
from .admin_base import AdminBase
from .leader_requests import ask_leaders
from .session import check
from .values import AppVersions, Cut, CutOffset


class CutAdmin(AdminBase):
    """The methods that find consistent cuts: an offset in each partition, such that every transaction lies wholly below
    these offsets or wholly above."""

    async def find_cut(self, partitions: Iterable[TopicPartition]) -> Cut:
        """Return the newest consistent cut of these partitions: a place in the cluster's order of commits and aborts.
        Every transaction decided before the cut has all its markers in the partitions. A cut never becomes invalid
        later.

            cut = await admin.find_cut([TopicPartition("orders", 0), TopicPartition("orders", 1)])

        Raises KafkaError: VersionUnsupported from clusters that are not of Ottla, UNKNOWN_TOPIC_OR_PARTITION.
        """
        wanted = topic_partitions("find_cut", partitions)
        names = {partition.topic for partition in wanted}
        topics = cut_topics(wanted, _known(names, await self.session.metadata(names)))

        async def once() -> Cut:
            found = await self.session.cluster.ask_any(FindCutRequest(topics=topics))
            check(found.error_code, "cut", found.error_message)
            return Cut(found.cut, found.metadata_offset)

        return await self.session.with_retries(once)

    async def cut_offsets(
        self, cut: Cut, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, CutOffset | KafkaError]:
        """Return the offset of a consistent cut in each of these partitions, or the error of the partition's leader.

        Each commit index up to that of a found cut is a cut of the same partitions, too.

            places = [TopicPartition("orders", 0)]
            offsets = await admin.cut_offsets(await admin.find_cut(places), places)
        """
        wanted = topic_partitions("cut_offsets", partitions)
        metadata = await self.session.metadata(partition.topic for partition in wanted)

        async def ask(
            leader: int, some: list[TopicPartition]
        ) -> dict[TopicPartition, CutOffset | KafkaError]:
            known = _known({partition.topic for partition in some}, metadata)
            request = ListCutOffsetsRequest(
                cut=cut.commit_index, metadata_offset=cut.metadata_offset, topics=cut_topics(some, known)
            )
            answer = cut_offsets(await self.session.cluster.ask(leader, request), known)
            return {
                partition: said
                if isinstance(said, KafkaError)
                else CutOffset(said.offset, said.open_from, said.least_offset)
                for partition, said in answer.items()
            }

        return await ask_leaders(self.session, wanted, ask)

    async def app_versions_at(self, cut: Cut, *, told_offset: Annotated[int, Within(-1)] = -1) -> AppVersions:
        """Return the application versions at a consistent cut: for each transactional id the number that a
        program passed with its last commit below the cut.

            versions = await admin.app_versions_at(await admin.find_cut([]))

        With the `next_offset` of an earlier answer as `told_offset`, the answer has only the versions that have changed
        since. Raises KafkaError: OFFSET_NOT_AVAILABLE for a cut that lies too far back, CLUSTER_AUTHORIZATION_FAILED,
        VersionUnsupported from clusters that keep no such versions.
        """
        request = ListAppVersionsRequest(cut=cut.commit_index, told_offset=told_offset)
        response = await self.session.cluster.ask_any(request)
        check(response.error_code, "application versions", response.error_message)
        versions = {version.transactional_id: version.app_version for version in response.versions}
        return AppVersions(versions, response.is_whole, response.next_offset)


def _known(names: Collection[str], metadata: ClusterMetadata) -> dict[str, KnownTopic]:
    """Return the metadata of these topics. Raises KafkaError for a topic without metadata."""
    for name in names:
        info = metadata.topics.get(name)
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if info is None else info.error
        if code:
            raise KafkaError(code, f"topic {name!r}: {code.message}")
    return {name: metadata.topics[name] for name in names}
