"""DescribeQuorum (55): voters and leader of the metadata quorum (KIP-595, KIP-853)."""

from __future__ import annotations

from ..wire.schema import (
    ZERO_UUID,
    Message,
    Request,
    array,
    boolean,
    data,
    int16,
    int32,
    int64,
    request,
    response,
    string,
    uint16,
    uuid,
)


@data()
class ReplicaState(Message):
    """A voter or an observer of the metadata quorum, with its position in the log."""

    replica_id: int = int32(about="Node id.")
    replica_directory_id: bytes = uuid(
        "2+", default=ZERO_UUID, about="Id of the node's data folder; zero unknown."
    )
    log_end_offset: int = int64(
        about="Raft index after the last entry that the node has on disk; -1 unknown."
    )
    last_fetch_timestamp: int = int64(
        "1+",
        default=-1,
        ignorable=True,
        about="Time at which the leader last heard from the node, in ms since 1970; -1 unknown.",
    )
    last_caught_up_timestamp: int = int64(
        "1+",
        default=-1,
        ignorable=True,
        about="Time at which the node was last caught up, in ms since 1970; -1 unknown.",
    )
    abstains: bool = boolean(
        "0+",
        tag=10_000,
        ignorable=True,
        about="Ottla's own: whether the node is a voter that does not vote before it has all committed entries.",
    )


@data()
class QuorumPartitionState(Message):
    """The state of the metadata quorum's log: leader, epoch, high watermark, voters and observers."""

    partition_index: int = int32(about="Always 0.")
    error_code: int = int16(about="Error code, 0 for success.")
    error_message: str | None = string(
        "2+", nullable="2+", default=None, ignorable=True, about="Explanation for people; null without one."
    )
    leader_id: int = int32(about="Node that leads; -1 for none.")
    leader_epoch: int = int32(about="Raft term of the leader.")
    high_watermark: int = int64(about="Raft index after the last committed entry.")
    current_voters: list[ReplicaState] = array(ReplicaState, about="Voters of the quorum.")
    observers: list[ReplicaState] = array(ReplicaState, about="Observers: nodes that follow without a vote.")


@data()
class QuorumTopicState(Message):
    """The metadata quorum's log, in the form of a topic with one partition."""

    topic_name: str = string(about="Always __cluster_metadata.")
    partitions: list[QuorumPartitionState] = array(
        QuorumPartitionState, about="The one partition of the log."
    )


@data()
class QuorumNodeListener(Message):
    """Address of a quorum node's listener."""

    name: str = string(about="Name of the listener.")
    host: str = string(about="Host name or address.")
    port: int = uint16(about="TCP port.")


@data()
class QuorumNode(Message):
    """Addresses of a quorum node."""

    node_id: int = int32(about="Node id.")
    listeners: list[QuorumNodeListener] = array(QuorumNodeListener, about="Listeners of the node.")


@response(55, "0-2", flexible="0+")
class DescribeQuorumResponse(Message):
    """Answer to DescribeQuorumRequest."""

    error_code: int = int16(about="Error code, 0 for success.")
    error_message: str | None = string(
        "2+", nullable="2+", default=None, ignorable=True, about="Explanation for people; null without one."
    )
    topics: list[QuorumTopicState] = array(QuorumTopicState, about="The quorum's log.")
    nodes: list[QuorumNode] = array(QuorumNode, "2+", ignorable=True, about="Addresses of the nodes.")


@data()
class QuorumPartitionAsked(Message):
    """The partition of the quorum's log that is asked for."""

    partition_index: int = int32(about="Always 0.")


@data()
class QuorumTopicAsked(Message):
    """The log of the quorum that is asked for, named as a topic."""

    topic_name: str = string(about="Always __cluster_metadata.")
    partitions: list[QuorumPartitionAsked] = array(
        QuorumPartitionAsked, about="The one partition of the log."
    )


@request(55, "0-2", flexible="0+", response=DescribeQuorumResponse)
class DescribeQuorumRequest(Request[DescribeQuorumResponse]):
    """Request to describe the metadata quorum."""

    topics: list[QuorumTopicAsked] = array(QuorumTopicAsked, about="The quorum's log.")
