"""The admin client: topics, configs, groups, the cluster. Any broker is asked; it knows whom to ask in
turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.messages.cluster import DescribeClusterRequest
from ..protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ..protocol.messages.find_coordinator import FindCoordinatorRequest
from ..protocol.messages.groups import DescribedGroup, DescribeGroupsRequest, ListGroupsRequest
from ..protocol.messages.metadata import MetadataRequest
from ..protocol.messages.quorum_description import (
    DescribeQuorumRequest,
    QuorumPartitionAsked,
    QuorumTopicAsked,
)
from ..protocol.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
)
from .cluster import Backoff, Cluster
from .metadata import BrokerAddress, ClusterMetadata, TopicInfo

TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4
_SET, _DELETE = 0, 1
CONFIG_SOURCES = {
    1: "topic",
    2: "broker",
    3: "all brokers",
    4: "broker file",
    5: "default",
    6: "broker logger",
}
ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create; -1 leaves a number to the cluster's defaults. `assignments`: replicas per
    partition.
    """

    name: str
    num_partitions: int = -1
    replication_factor: int = -1
    assignments: Mapping[int, Sequence[int]] = field(default_factory=dict)
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One config of a topic or broker; `source` says where the value comes from."""

    name: str
    value: str | None
    source: str
    is_default: bool
    is_sensitive: bool
    read_only: bool


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """The brokers that take part now, and which of them speaks for the controller."""

    cluster_id: str
    controller_id: int
    brokers: tuple[BrokerAddress, ...]


@dataclass(frozen=True, slots=True)
class QuorumDescription:
    """The metadata quorum: its leader (None without one), the leader's term, and where the voters are.

    `voters` is node id -> (host, port); the address is None where the broker does not tell it.
    """

    leader_id: int | None
    term: int
    voters: Mapping[int, tuple[str, int] | None]


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A consumer group as a list shows it."""

    group_id: str
    protocol_type: str
    state: str


class Admin:
    """Creates, lists, describes and deletes. Every method raises KafkaError with what the cluster
    answered.
    """

    def __init__(
        self,
        *,
        bootstrap_servers: str | Sequence[str] = "localhost:9092",
        client_id: str = "ottla-admin",
        request_timeout_ms: int = 30_000,
    ) -> None:
        self._cluster = Cluster(bootstrap_servers, client_id=client_id, request_timeout_ms=request_timeout_ms)
        self._timeout_ms = request_timeout_ms

    async def __aenter__(self) -> Admin:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Reach the cluster. Raises NoBrokerReachable."""
        try:
            await self._cluster.start()
        except BaseException:
            await self._cluster.close()
            raise

    async def stop(self) -> None:
        """Close the connections; idempotent."""
        await self._cluster.close()

    # topics

    async def create_topics(self, topics: Iterable[NewTopic], *, validate_only: bool = False) -> None:
        """Create topics and wait until brokers know their leaders; with `validate_only` only check."""
        wanted = list(topics)
        request = CreateTopicsRequest(
            topics=[_creatable(topic) for topic in wanted],
            timeout_ms=self._timeout_ms,
            validate_only=validate_only,
        )

        async def once() -> None:
            connection = await self._cluster.any_connection()
            response = await connection.request(request, timeout_ms=self._timeout_ms)
            for topic in response.topics:
                _check(topic.error_code, f"topic {topic.name!r}", topic.error_message)

        await self._with_retries(once)
        if not validate_only:
            await self._wait_until_led([topic.name for topic in wanted])

    async def delete_topics(self, names: Iterable[str]) -> None:
        """Delete topics and all they hold."""
        request = DeleteTopicsRequest(topic_names=list(names), timeout_ms=self._timeout_ms)
        connection = await self._cluster.any_connection()
        version = connection.version_for(DeleteTopicsRequest, at_most=5)  # version 6 may go by topic id
        response = await connection.request(request, version=version)
        for topic in response.responses:
            _check(topic.error_code, f"topic {topic.name!r}", topic.error_message)

    async def create_partitions(self, topic: str, total: int) -> None:
        """Raise the number of partitions of `topic` to `total`."""
        wanted = CreatePartitionsTopic(name=topic, count=total, assignments=None)
        request = CreatePartitionsRequest(topics=[wanted], timeout_ms=self._timeout_ms)
        connection = await self._cluster.any_connection()
        response = await connection.request(request, timeout_ms=self._timeout_ms)
        for result in response.results:
            _check(result.error_code, f"topic {result.name!r}", result.error_message)

    async def list_topics(self) -> list[str]:
        """The names of all topics, in order."""
        return sorted((await self._metadata()).topics)

    async def describe_topics(self, names: Iterable[str] | None = None) -> list[TopicInfo]:
        """Partitions, leaders and replicas of these topics, or of all. Raises for a name that does not
        exist.
        """
        metadata = await self._metadata()
        described = []
        for name in sorted(metadata.topics) if names is None else names:
            info = metadata.topics.get(name)
            if info is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
            _check(info.error, f"topic {name!r}", None)
            described.append(info)
        return described

    # configs

    async def describe_configs(self, resource_type: int, name: str) -> list[ConfigEntry]:
        """All configs of a topic (TOPIC_RESOURCE) or broker (BROKER_RESOURCE, by id)."""
        resource = DescribeConfigsResource(
            resource_type=resource_type, resource_name=name, configuration_keys=None
        )
        request = DescribeConfigsRequest(resources=[resource])
        asked = int(name) if resource_type == BROKER_RESOURCE and name else None
        response = await (
            self._cluster.ask_any(request) if asked is None else self._cluster.ask(asked, request)
        )
        entries: list[ConfigEntry] = []
        for result in response.results:
            _check(result.error_code, name, result.error_message)
            for config in result.configs:
                source = CONFIG_SOURCES.get(config.config_source, "unknown")
                is_default = source == "default"
                entries.append(
                    ConfigEntry(
                        config.name, config.value, source, is_default, config.is_sensitive, config.read_only
                    )
                )
        return entries

    async def alter_configs(self, resource_type: int, name: str, changes: Mapping[str, str | None]) -> None:
        """Set configs of a topic or broker; None takes a setting back to what applies without it."""
        configs = [
            AlterableConfig(name=key, config_operation=_DELETE if value is None else _SET, value=value)
            for key, value in changes.items()
        ]
        resource = AlterConfigsResource(resource_type=resource_type, resource_name=name, configs=configs)
        response = await self._cluster.ask_any(IncrementalAlterConfigsRequest(resources=[resource]))
        for result in response.responses:
            _check(result.error_code, name, result.error_message)

    # cluster and groups

    async def describe_cluster(self) -> ClusterDescription:
        """The cluster id and its brokers."""
        response = await self._cluster.ask_any(DescribeClusterRequest())
        _check(response.error_code, "cluster", response.error_message)
        brokers = tuple(
            BrokerAddress(one.broker_id, one.host, one.port, one.rack) for one in response.brokers
        )
        return ClusterDescription(response.cluster_id, response.controller_id, brokers)

    async def describe_quorum(self) -> QuorumDescription:
        """Who votes in the metadata quorum, and who leads it."""
        asked = QuorumTopicAsked(topic_name="__cluster_metadata", partitions=[QuorumPartitionAsked()])
        response = await self._cluster.ask_any(DescribeQuorumRequest(topics=[asked]))
        _check(response.error_code, "quorum", response.error_message)
        state = response.topics[0].partitions[0]
        _check(state.error_code, "quorum", state.error_message)
        addresses = {
            node.node_id: (node.listeners[0].host, node.listeners[0].port)
            for node in response.nodes
            if node.listeners
        }
        return QuorumDescription(
            None if state.leader_id < 0 else state.leader_id,
            state.leader_epoch,
            {voter.replica_id: addresses.get(voter.replica_id) for voter in state.current_voters},
        )

    async def list_groups(self) -> list[GroupListing]:
        """The consumer groups of all brokers, in order of their names."""
        await self._cluster.refresh()
        found: dict[str, GroupListing] = {}
        for broker_id in list(self._cluster.metadata.brokers):
            response = await self._cluster.ask(broker_id, ListGroupsRequest())
            _check(response.error_code, f"groups of broker {broker_id}", None)
            for group in response.groups:
                found[group.group_id] = GroupListing(group.group_id, group.protocol_type, group.group_state)
        return [found[name] for name in sorted(found)]

    async def describe_groups(self, names: Iterable[str]) -> list[DescribedGroup]:
        """State and members of groups, each asked of its coordinator."""
        described: list[DescribedGroup] = []
        for name in names:

            async def once(name: str = name) -> None:
                coordinator = await self._coordinator(name)
                response = await self._cluster.ask(coordinator, DescribeGroupsRequest(groups=[name]))
                for group in response.groups:
                    _check(group.error_code, f"group {name!r}", None)
                    described.append(group)

            await self._with_retries(once)
        return described

    # inside

    async def _coordinator(self, group_id: str) -> int:
        connection = await self._cluster.any_connection()
        version = connection.version_for(FindCoordinatorRequest, at_most=3)  # version 4 asks for many keys
        response = await connection.request(FindCoordinatorRequest(key=group_id, key_type=0), version=version)
        _check(response.error_code, f"group {group_id!r}", response.error_message)
        self._cluster.metadata.learn_broker(BrokerAddress(response.node_id, response.host, response.port))
        return response.node_id

    async def _metadata(self) -> ClusterMetadata:
        """All topics of the cluster, fetched now."""
        metadata = ClusterMetadata()
        request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
        metadata.update(await self._cluster.ask_any(request))
        return metadata

    async def _wait_until_led(self, names: Sequence[str]) -> None:
        """Return when every broker that answers knows a leader for every partition; at most 5 s."""
        deadline = asyncio.get_running_loop().time() + 5
        backoff = Backoff(100)
        while asyncio.get_running_loop().time() < deadline:
            topics = (await self._metadata()).topics
            infos = [topics.get(name) for name in names]
            if all(info is not None and len(info.available) == len(info.partitions) > 0 for info in infos):
                return
            await asyncio.sleep(backoff.next_s())

    async def _with_retries(self, attempt: Callable[[], Coroutine[None, None, ResultT]]) -> ResultT:
        """Run `attempt` again while it fails with something that time cures."""
        deadline = asyncio.get_running_loop().time() + self._timeout_ms / 1000
        backoff = Backoff(1_000)
        while True:
            try:
                return await attempt()
            except KafkaError as error:
                if not error.code.retriable or asyncio.get_running_loop().time() > deadline:
                    raise
                if error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise
                await asyncio.sleep(backoff.next_s())


def _creatable(topic: NewTopic) -> CreatableTopic:
    """Explicit assignments leave both numbers at -1, as the protocol wants it."""
    assignments = [
        CreatableReplicaAssignment(partition_index=index, broker_ids=list(brokers))
        for index, brokers in topic.assignments.items()
    ]
    return CreatableTopic(
        name=topic.name,
        num_partitions=-1 if assignments else topic.num_partitions,
        replication_factor=-1 if assignments else topic.replication_factor,
        assignments=assignments,
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in topic.configs.items()],
    )


def _check(code: int, what: str, message: str | None) -> None:
    if code:
        error = ErrorCode.of(code)
        raise KafkaError(error, f"{what}: {message or error.message}")
