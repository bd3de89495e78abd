"""Commands about brokers: their registrations, fencing and stopping, and the producer ids they give out."""

from __future__ import annotations

from ..schema import array, data, int16, int32, int64, string, uuid
from .command import Command, CommandResult, PlainResult
from .metadata_records import BrokerFeature, BrokerListener
from .partition_commands import ReplicaLogEnd


@data()
class RegisterBrokerResult(CommandResult):
    """The registration."""

    error_code: int = int16(about="0 for success.")
    error_message: str = string(about="For people.")
    broker_epoch: int = int64(default=-1, about="Fences all earlier registrations of this broker id.")


@data()
class RegisterBroker(Command[RegisterBrokerResult]):
    """A broker process has started. Idempotent by incarnation."""

    broker_id: int = int32(default=-1, about="node.id.")
    incarnation: bytes = uuid(about="Chosen at each start of the process.")
    previous_broker_epoch: int = int64(
        default=-1, about="As the clean stop left it; -1 after an unclean one."
    )
    listeners: list[BrokerListener] = array(BrokerListener, about="Where clients reach it.")
    rack: str | None = string(nullable="0+", default=None, about="Null without racks.")
    log_dirs: list[bytes] = array(uuid, about="Ids of its log directories.")
    features: list[BrokerFeature] = array(
        BrokerFeature,
        "0+",
        tag=0,
        about="What its program knows; programs before these features tell nothing.",
    )
    host: str | None = string(
        "0+", tag=1, nullable="0+", default=None, about="broker.host; null for a broker on a host of its own."
    )


@data()
class UnfenceBroker(Command[PlainResult]):
    """The broker is ready to serve."""

    broker_id: int = int32(about="Which.")
    broker_epoch: int = int64(about="Its registration.")


@data()
class FenceBroker(Command[PlainResult]):
    """The broker is gone: it leaves its ISRs, and others lead."""

    broker_id: int = int32(about="Which.")
    broker_epoch: int = int64(about="Its registration.")
    progress: list[ReplicaLogEnd] = array(ReplicaLogEnd, about="For choosing the member furthest along.")


@data()
class UnregisterBroker(Command[PlainResult]):
    """Forget a broker that will not come back."""

    broker_id: int = int32(about="Which.")


@data()
class ControlledShutdownResult(CommandResult):
    """How far the shutdown is."""

    error_code: int = int16(about="0 for success.")
    error_message: str = string(about="For people.")
    remaining_leaderships: int = int32(about="Partitions that the broker still leads.")


@data()
class BeginControlledShutdown(Command[ControlledShutdownResult]):
    """The broker wants to stop: others take over what it leads."""

    broker_id: int = int32(about="Which.")
    broker_epoch: int = int64(about="Its registration.")
    progress: list[ReplicaLogEnd] = array(
        ReplicaLogEnd, "0+", tag=0, about="For choosing the member furthest along."
    )


@data()
class AllocateProducerIdsResult(CommandResult):
    """A block of producer ids, for this broker alone."""

    error_code: int = int16(about="0 for success.")
    error_message: str = string(about="For people.")
    first: int = int64(default=-1, about="First of the block.")
    count: int = int32(about="Size of the block.")


@data()
class AllocateProducerIds(Command[AllocateProducerIdsResult]):
    """A broker needs producer ids to give out."""

    broker_id: int = int32(about="Who asks.")
    broker_epoch: int = int64(about="Its registration.")
