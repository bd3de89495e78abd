"""Answers of a restoration's server, as a broker of the source would give them at the moment of the cut.

    ApiVersions (18), Metadata (3), ListOffsets (2), OffsetForLeaderEpoch (23), DescribeConfigs (32), ListGroups (16),
    FindCut (20003), ListCutOffsets (20004), ListAppVersions (20011), DescribeLineages (20012)

Fetch (1) reads the store, and is in `fetching`. Nothing here waits or keeps state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Any, Final

from ...protocol.errors import ErrorCode
from ...protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from ...protocol.messages.config_commands import ResourceType
from ...protocol.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from ...protocol.messages.cuts import (
    AppVersion,
    CutOffset,
    CutOffsetsTopic,
    FindCutRequest,
    FindCutResponse,
    ListAppVersionsRequest,
    ListAppVersionsResponse,
    ListCutOffsetsRequest,
    ListCutOffsetsResponse,
)
from ...protocol.messages.failback import DescribeLineagesRequest, DescribeLineagesResponse
from ...protocol.messages.fetch import FetchRequest
from ...protocol.messages.groups import ListGroupsRequest, ListGroupsResponse
from ...protocol.messages.list_offsets import (
    LATEST,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ...protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ...protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from ...protocol.wire.schema import Message, Request
from .chains import epoch_end
from .cut_file import OFFSETS_TOPIC, BackedPartition, BackedTopic
from .plans import RestorePlan

BROKER_ID: Final = 0
LEADER_EPOCH: Final = 0
METADATA_OFFSET: Final = 0
_SET_FOR_TOPIC: Final = 1

Ask = type[Request[Any]]
_ALWAYS: Final[Sequence[Ask]] = (
    ApiVersionsRequest,
    MetadataRequest,
    FetchRequest,
    ListOffsetsRequest,
    OffsetForLeaderEpochRequest,
    DescribeConfigsRequest,
    ListGroupsRequest,
)
_OF_CUTS: Final[Sequence[Ask]] = (
    FindCutRequest,
    ListCutOffsetsRequest,
    ListAppVersionsRequest,
    DescribeLineagesRequest,
)


def source_id(plan: RestorePlan) -> str:
    """Return the cluster id of the server. It is no id of a cluster, since that cluster may be the target."""
    return f"backup-{plan.cut.cut}-of-{plan.cut.cluster_id}"


def served_id(plan: RestorePlan, topic: BackedTopic, target: str) -> bytes:
    """Return the topic id that the server tells the cluster with the id `target`.

    A renamed topic has an id of its own, since the target may still have the topic of which it was made. So has a topic
    that comes back into its own cluster: readers that keep positions by topic id may be ahead of the cut, and would
    skip the records that get these offsets next.
    """
    if topic.name not in plan.renamed and plan.cut.cluster_id != target:
        return topic.topic_id
    return sha256(b"%s %s" % (topic.topic_id.hex().encode(), topic.name.encode())).digest()[:16]


class CutAnswers:
    """The answers about one cut."""

    def __init__(self, plan: RestorePlan, target: str, host: str, port: int) -> None:
        """`target` is the id of the cluster that copies the cut. `host` and `port` are the address at which the server
        is reached."""
        self._plan = plan
        self._cut = plan.cut
        self._address = host, port
        self._by_name = {topic.name: topic for topic in plan.cut.topics}
        self._ids = {topic.name: served_id(plan, topic, target) for topic in plan.cut.topics}
        self._by_id = {self._ids[topic.name]: topic for topic in plan.cut.topics}
        self.served: dict[int, Ask] = {
            request.api_key: request for request in (*_ALWAYS, *(_OF_CUTS if self._cut.is_whole else ()))
        }
        """The requests that are answered, by the key of their API."""

    def topic(self, name: str, topic_id: bytes) -> BackedTopic | None:
        """Return the topic that a request names, by its name or its id."""
        return self._by_name.get(name) or self._by_id.get(topic_id)

    def answer(self, request: Request[Any]) -> Message:
        """Return the answer to a request other than Fetch."""
        answering: Mapping[Ask, Callable[[Any], Message]] = {
            ApiVersionsRequest: self.api_versions,
            MetadataRequest: self._metadata,
            ListOffsetsRequest: self._offsets,
            OffsetForLeaderEpochRequest: self._epochs,
            DescribeConfigsRequest: self._configs,
            ListGroupsRequest: self._groups,
            FindCutRequest: self._find_cut,
            ListCutOffsetsRequest: self._cut_offsets,
            ListAppVersionsRequest: self._app_versions,
            DescribeLineagesRequest: self._lineages,
        }
        return answering[type(request)](request)

    def api_versions(self, _: ApiVersionsRequest | None, error: ErrorCode = ErrorCode.NONE) -> Message:
        """Return the APIs and versions that are answered."""
        keys = [
            ApiVersion(api_key=key, min_version=request.min_version, max_version=request.max_version)
            for key, request in sorted(self.served.items())
        ]
        return ApiVersionsResponse(error_code=error, api_keys=keys)

    def _metadata(self, request: MetadataRequest) -> Message:
        host, port = self._address
        if request.topics is None:
            topics = [self._described(topic) for topic in self._cut.topics]
        else:
            topics = []
            for asked in request.topics:
                topic = self.topic(asked.name or "", asked.topic_id)
                topics.append(
                    self._described(topic)
                    if topic is not None
                    else MetadataResponseTopic(
                        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                        name=asked.name,
                        topic_id=asked.topic_id,
                    )
                )
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=BROKER_ID, host=host, port=port)],
            cluster_id=source_id(self._plan),
            controller_id=BROKER_ID,
            topics=topics,
        )

    def _described(self, topic: BackedTopic) -> MetadataResponseTopic:
        return MetadataResponseTopic(
            name=topic.name,
            topic_id=self._ids[topic.name],
            is_internal=topic.name == OFFSETS_TOPIC,
            partitions=[
                MetadataResponsePartition(
                    partition_index=partition.index,
                    leader_id=BROKER_ID,
                    leader_epoch=LEADER_EPOCH,
                    # A copy gets as many replicas as the topic had.
                    replica_nodes=list(range(topic.replication_factor)),
                    isr_nodes=[BROKER_ID],
                )
                for partition in topic.partitions
            ],
        )

    def partition(self, name: str, topic_id: bytes, index: int) -> BackedPartition | None:
        """Return the partition that a request names; None if the cut has none."""
        topic = self.topic(name, topic_id)
        if topic is None:
            return None
        return next((part for part in topic.partitions if part.index == index), None)

    def _offsets(self, request: ListOffsetsRequest) -> Message:
        answered = []
        for topic in request.topics:
            parts = []
            for asked in topic.partitions:
                part = self.partition(topic.name, b"", asked.partition_index)
                if part is None:
                    code, offset = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1
                else:
                    code, offset = ErrorCode.NONE, part.end if asked.timestamp == LATEST else part.start
                parts.append(
                    ListOffsetsPartitionResponse(
                        partition_index=asked.partition_index,
                        error_code=code,
                        offset=offset,
                        leader_epoch=LEADER_EPOCH,
                    )
                )
            answered.append(ListOffsetsTopicResponse(name=topic.name, partitions=parts))
        return ListOffsetsResponse(topics=answered)

    def _epochs(self, request: OffsetForLeaderEpochRequest) -> Message:
        answered = []
        for topic in request.topics:
            parts = []
            for asked in topic.partitions:
                part = self.partition(topic.topic, b"", asked.partition)
                if part is None:
                    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    parts.append(EpochEndOffset(partition=asked.partition, error_code=code))
                else:
                    epoch, end = epoch_end(part, asked.leader_epoch)
                    parts.append(
                        EpochEndOffset(partition=asked.partition, leader_epoch=epoch, end_offset=end)
                    )
            answered.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=parts))
        return OffsetForLeaderEpochResponse(topics=answered)

    def _configs(self, request: DescribeConfigsRequest) -> Message:
        results = []
        for resource in request.resources:
            topic = self._by_name.get(resource.resource_name)
            known = topic is not None and resource.resource_type == ResourceType.TOPIC
            settings = {} if topic is None or not known else topic.settings
            results.append(
                DescribeConfigsResult(
                    error_code=ErrorCode.NONE if known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    resource_type=resource.resource_type,
                    resource_name=resource.resource_name,
                    configs=[
                        DescribeConfigsResourceResult(name=key, value=value, config_source=_SET_FOR_TOPIC)
                        for key, value in sorted(settings.items())
                        if resource.configuration_keys is None or key in resource.configuration_keys
                    ],
                )
            )
        return DescribeConfigsResponse(results=results)

    def _groups(self, _: ListGroupsRequest) -> Message:
        """Return no groups: a promotion at the cut takes their offsets from the copy of the offsets topic."""
        return ListGroupsResponse()

    # cuts

    def _find_cut(self, _: FindCutRequest) -> Message:
        index = self._cut.commit_index
        return FindCutResponse(cut=-1 if index is None else index, metadata_offset=METADATA_OFFSET)

    def _cut_offsets(self, request: ListCutOffsetsRequest) -> Message:
        answered = []
        for topic in request.topics:
            parts = []
            for index in topic.partitions:
                part = self.partition("", topic.topic_id, index)
                if part is None:
                    code = ErrorCode.UNKNOWN_TOPIC_ID
                    parts.append(CutOffset(partition_index=index, error_code=code))
                else:
                    parts.append(CutOffset(partition_index=index, offset=part.end, least_offset=part.end))
            answered.append(CutOffsetsTopic(topic_id=topic.topic_id, partitions=parts))
        return ListCutOffsetsResponse(topics=answered)

    def _app_versions(self, _: ListAppVersionsRequest) -> Message:
        versions = [
            AppVersion(transactional_id=name, app_version=version)
            for name, version in sorted(self._cut.app_versions.items())
        ]
        return ListAppVersionsResponse(is_whole=True, next_offset=METADATA_OFFSET, versions=versions)

    def _lineages(self, _: DescribeLineagesRequest) -> Message:
        return DescribeLineagesResponse(cluster_id=source_id(self._plan))
