"""Cuts: where all partitions are to be cut so that no transaction is torn. Ottla's own; see docs/TRANSACTIONS.md."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.cuts import FindCutRequest, ListAppVersionsRequest, ListCutOffsetsRequest
from ..arguments import topic_partitions
from ..connections.metadata import ClusterMetadata, KnownTopic
from ..records import TopicPartition
from ..transactions.cuts import cut_offsets, cut_topics
from .admin_base import AdminBase
from .leader_requests import ask_leaders
from .session import check
from .values import AppVersions, Cut, CutOffset


class CutAdmin(AdminBase):
    """Finds cuts, for readers that take transactions as a whole."""

    async def find_cut(self, partitions: Iterable[TopicPartition]) -> Cut:
        """The newest cut of these partitions: every transaction that was decided up to there has all its markers in
        them. What is true of a cut stays true.

            cut = await admin.find_cut([TopicPartition("orders", 0), TopicPartition("orders", 1)])

        Raises KafkaError: VersionUnsupported of clusters that are not of Ottla, UNKNOWN_TOPIC_OR_PARTITION.
        """
        wanted = topic_partitions("find_cut", partitions)
        names = {one.topic for one in wanted}
        topics = cut_topics(wanted, _known(names, await self.session.metadata(names)))

        async def once() -> Cut:
            found = await self.session.cluster.ask_any(FindCutRequest(topics=topics))
            check(found.error_code, "cut", found.error_message)
            return Cut(found.cut, found.metadata_offset)

        return await self.session.with_retries(once)

    async def cut_offsets(
        self, cut: Cut, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, CutOffset | KafkaError]:
        """Where a cut lies in each of these partitions, or why the partition could not be asked. Any commit index up to
        that of a cut that was found is a cut of the same partitions, too.

            places = [TopicPartition("orders", 0)]
            offsets = await admin.cut_offsets(await admin.find_cut(places), places)
        """
        wanted = topic_partitions("cut_offsets", partitions)
        metadata = await self.session.metadata(one.topic for one in wanted)

        async def ask(
            leader: int, some: list[TopicPartition]
        ) -> dict[TopicPartition, CutOffset | KafkaError]:
            known = _known({one.topic for one in some}, metadata)
            request = ListCutOffsetsRequest(
                cut=cut.commit_index, metadata_offset=cut.metadata_offset, topics=cut_topics(some, known)
            )
            answer = cut_offsets(await self.session.cluster.ask(leader, request), known)
            return {
                one: said
                if isinstance(said, KafkaError)
                else CutOffset(said.offset, said.open_from, said.least_offset)
                for one, said in answer.items()
            }

        return await ask_leaders(self.session, wanted, ask)

    async def app_versions_at(self, cut: Cut, *, told_offset: int = -1) -> AppVersions:
        """The application versions that transactional ids had at a cut: those of the last commits up to there.

            versions = await admin.app_versions_at(await admin.find_cut([]))

        With the `next_offset` of an earlier answer as `told_offset` only what has changed since is told. Raises
        KafkaError: OFFSET_NOT_AVAILABLE for a cut that lies too far back, CLUSTER_AUTHORIZATION_FAILED,
        VersionUnsupported of clusters that cannot tell.
        """
        request = ListAppVersionsRequest(cut=cut.commit_index, told_offset=told_offset)
        told = await self.session.cluster.ask_any(request)
        check(told.error_code, "application versions", told.error_message)
        versions = {one.transactional_id: one.app_version for one in told.versions}
        return AppVersions(versions, told.is_whole, told.next_offset)


def _known(names: Collection[str], metadata: ClusterMetadata) -> dict[str, KnownTopic]:
    """Raises KafkaError for a topic of which nothing is known."""
    for name in names:
        info = metadata.topics.get(name)
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if info is None else info.error
        if code:
            raise KafkaError(code, f"topic {name!r}: {code.message}")
    return {name: metadata.topics[name] for name in names}
