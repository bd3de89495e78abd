"""DescribeCluster (60): the brokers of the cluster."""

from __future__ import annotations

from ..wire.schema import (
    Message,
    Request,
    array,
    boolean,
    data,
    int8,
    int16,
    int32,
    int64,
    request,
    response,
    string,
)


@data()
class DescribeClusterBroker(Message):
    """A broker of the cluster."""

    broker_id: int = int32(about="Broker id.")
    host: str = string(about="Host name or address.")
    port: int = int32(about="TCP port.")
    rack: str | None = string(nullable="0+", default=None, about="Rack of the broker; null without one.")
    is_fenced: bool = boolean("2+", about="Whether the broker is fenced.")
    machine: str | None = string(
        "0+",
        tag=10000,
        nullable="0+",
        default=None,
        about="Not in Kafka: broker.host; null for a broker that shares its machine with no other.",
    )
    fenced_since_ms: int = int64(
        "0+",
        tag=10001,
        default=-1,
        about="Not in Kafka: time at which a fenced broker was fenced, in ms since 1970; -1 unknown.",
    )


@response(60, "0-2", flexible="0+")
class DescribeClusterResponse(Message):
    """Answer to DescribeClusterRequest."""

    throttle_time_ms: int = int32(about="How long a quota delayed the request, in ms.")
    error_code: int = int16(about="Error code, 0 for success.")
    error_message: str | None = string(
        nullable="0+", default=None, about="Explanation for people; null without one."
    )
    endpoint_type: int = int8("1+", default=1, about="1 brokers, 2 controllers.")
    cluster_id: str = string(about="Id of the cluster; null unknown.")
    controller_id: int = int32(
        default=-1, about="Broker that takes requests for the controller; -1 for none."
    )
    brokers: list[DescribeClusterBroker] = array(
        DescribeClusterBroker, about="Brokers that clients can reach."
    )
    cluster_authorized_operations: int = int32(
        default=-2147483648,
        about="Bit field of the operations that the client may perform; the lowest number if not asked for.",
    )


@request(60, "0-2", flexible="0+", response=DescribeClusterResponse)
class DescribeClusterRequest(Request[DescribeClusterResponse]):
    """Request for the brokers of the cluster."""

    include_cluster_authorized_operations: bool = boolean(
        about="Whether to answer which operations the client may perform on the cluster."
    )
    endpoint_type: int = int8("1+", default=1, about="1 brokers, 2 controllers.")
    include_fenced_brokers: bool = boolean("2+", about="Whether to list fenced brokers too.")
