"""Commands about brokers: their registrations, fencing and controlled shutdown, and the producer ids that they give
out."""

from __future__ import annotations

from ..wire.schema import array, data, int16, int32, int64, string, uuid
from .command import Command, CommandResult, PlainResult
from .metadata_records import BrokerFeature, BrokerListener
from .partition_commands import ReplicaLogEnd


@data()
class RegisterBrokerResult(CommandResult):
    """Result of RegisterBroker: the epoch of the registration."""

    error_code: int = int16(about="Error code, 0 for success.")
    error_message: str = string(about="Explanation for people.")
    broker_epoch: int = int64(
        default=-1, about="Epoch of the registration; it fences all earlier registrations of this broker id."
    )


@data()
class RegisterBroker(Command[RegisterBrokerResult]):
    """Command of a broker process that has started: register it. Idempotent by incarnation."""

    broker_id: int = int32(default=-1, about="node.id of the broker.")
    incarnation: bytes = uuid(about="Id that the process chooses at each start.")
    previous_broker_epoch: int = int64(
        default=-1, about="Broker epoch that a clean shutdown left; -1 after an unclean one."
    )
    listeners: list[BrokerListener] = array(
        BrokerListener, about="Addresses at which clients reach the broker."
    )
    rack: str | None = string(nullable="0+", default=None, about="Rack of the broker; null without racks.")
    log_dirs: list[bytes] = array(uuid, about="Ids of the broker's log directories.")
    features: list[BrokerFeature] = array(
        BrokerFeature,
        "0+",
        tag=0,
        about="Features that the broker's program knows; empty from programs older than these features.",
    )
    host: str | None = string(
        "0+",
        tag=1,
        nullable="0+",
        default=None,
        about="broker.host; null for a broker that shares its host with no other.",
    )
    now_ms: int = int64(
        "0+", tag=2, default=-1, about="Time by the broker's clock, in ms since 1970; -1 unknown."
    )


@data()
class UnfenceBroker(Command[PlainResult]):
    """Command to unfence a broker that is ready to serve."""

    broker_id: int = int32(about="Id of the broker.")
    broker_epoch: int = int64(about="Epoch of the broker's registration.")


@data()
class FenceBroker(Command[PlainResult]):
    """Command to fence a broker that is gone: it leaves its ISRs, and other brokers take over its leaderships."""

    broker_id: int = int32(about="Id of the broker.")
    broker_epoch: int = int64(about="Epoch of the broker's registration.")
    progress: list[ReplicaLogEnd] = array(
        ReplicaLogEnd, about="Log ends of replicas, to elect the member that is furthest along."
    )
    now_ms: int = int64(
        "0+", tag=0, default=-1, about="Time by the leader's clock, in ms since 1970; -1 unknown."
    )


@data()
class UnregisterBroker(Command[PlainResult]):
    """Command to remove the registration of a broker that will not come back."""

    broker_id: int = int32(about="Id of the broker.")


@data()
class ControlledShutdownResult(CommandResult):
    """Progress of a controlled shutdown."""

    error_code: int = int16(about="Error code, 0 for success.")
    error_message: str = string(about="Explanation for people.")
    remaining_leaderships: int = int32(about="Partitions that the broker still leads.")


@data()
class BeginControlledShutdown(Command[ControlledShutdownResult]):
    """Command of a broker that wants to stop: other brokers take over its leaderships."""

    broker_id: int = int32(about="Id of the broker.")
    broker_epoch: int = int64(about="Epoch of the broker's registration.")
    progress: list[ReplicaLogEnd] = array(
        ReplicaLogEnd, "0+", tag=0, about="Log ends of replicas, to elect the member that is furthest along."
    )


@data()
class AllocateProducerIdsResult(CommandResult):
    """A block of producer ids for one broker alone."""

    error_code: int = int16(about="Error code, 0 for success.")
    error_message: str = string(about="Explanation for people.")
    first: int = int64(default=-1, about="First id of the block.")
    count: int = int32(about="Number of ids in the block.")


@data()
class AllocateProducerIds(Command[AllocateProducerIdsResult]):
    """Command of a broker that needs producer ids to give out."""

    broker_id: int = int32(about="Id of the broker that asks.")
    broker_epoch: int = int64(about="Epoch of the broker's registration.")
