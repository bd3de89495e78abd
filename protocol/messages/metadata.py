"""Metadata (3): brokers, topics, partitions and their leaders."""

from __future__ import annotations

from ..wire.schema import (
    Message,
    Request,
    array,
    boolean,
    data,
    int16,
    int32,
    request,
    response,
    string,
    uuid,
)


@data()
class MetadataResponseBroker(Message):
    """A broker that clients can reach."""

    node_id: int = int32(about="Broker id.")
    host: str = string(about="Host name or address.")
    port: int = int32(about="TCP port.")
    rack: str | None = string(
        "1+", nullable="1+", default=None, ignorable=True, about="Rack of the broker; null without one."
    )


@data()
class MetadataResponsePartition(Message):
    """A partition with its leader and replicas."""

    error_code: int = int16(about="Error code, 0 for success.")
    partition_index: int = int32(about="Partition index.")
    leader_id: int = int32(about="Broker that leads the partition; -1 for none.")
    leader_epoch: int = int32("7+", default=-1, ignorable=True, about="Leader epoch; -1 unknown.")
    replica_nodes: list[int] = array(int32, about="Brokers with a replica, preferred leader first.")
    isr_nodes: list[int] = array(int32, about="Brokers in the ISR.")
    offline_replicas: list[int] = array(
        int32, "5+", ignorable=True, about="Brokers whose replica is not available."
    )


@data()
class MetadataResponseTopic(Message):
    """A topic with its partitions."""

    error_code: int = int16(about="Error code, 0 for success.")
    name: str | None = string(nullable="12+", about="Name of the topic.")
    topic_id: bytes = uuid("10+", ignorable=True, about="Id of the topic.")
    is_internal: bool = boolean("1+", ignorable=True, about="Whether the topic is internal to the cluster.")
    partitions: list[MetadataResponsePartition] = array(
        MetadataResponsePartition, about="Partitions of the topic."
    )
    topic_authorized_operations: int = int32(
        "8+",
        default=-2147483648,
        about="Bit field of the operations that the client may perform; the lowest number if not asked for.",
    )


@response(3, "0-13", flexible="9+")
class MetadataResponse(Message):
    """Answer to MetadataRequest."""

    throttle_time_ms: int = int32("3+", ignorable=True, about="How long a quota delayed the request, in ms.")
    brokers: list[MetadataResponseBroker] = array(
        MetadataResponseBroker, about="Brokers that clients can reach."
    )
    cluster_id: str | None = string(
        "2+", nullable="2+", default=None, ignorable=True, about="Id of the cluster; null unknown."
    )
    controller_id: int = int32(
        "1+", default=-1, ignorable=True, about="Broker that takes requests for the controller; -1 for none."
    )
    topics: list[MetadataResponseTopic] = array(
        MetadataResponseTopic, encodable=True, about="Topics that were asked for."
    )
    cluster_authorized_operations: int = int32(
        "8-10",
        default=-2147483648,
        about="Bit field of the operations that the client may perform; the lowest number if not asked for.",
    )
    error_code: int = int16("13+", ignorable=True, about="Error code, 0 for success.")


@data()
class MetadataRequestTopic(Message):
    """A topic that is asked for, by name or id."""

    topic_id: bytes = uuid("10+", ignorable=True, about="Id of the topic.")
    name: str | None = string(nullable="10+", about="Name of the topic.")


@request(3, "0-13", flexible="9+", response=MetadataResponse)
class MetadataRequest(Request[MetadataResponse]):
    """Request for brokers, topics and leaders."""

    topics: list[MetadataRequestTopic] | None = array(
        MetadataRequestTopic, nullable="1+", about="Topics to describe; null for all."
    )
    allow_auto_topic_creation: bool = boolean(
        "4+", default=True, about="Whether unknown topics may be created."
    )
    include_cluster_authorized_operations: bool = boolean(
        "8-10", about="Whether to answer which operations the client may perform on the cluster."
    )
    include_topic_authorized_operations: bool = boolean(
        "8+", about="Whether to answer which operations the client may perform on the topics."
    )
