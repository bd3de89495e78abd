"""Commands of a broker about its own replicas: that they are offline since a data folder or a log failed, that it
recreates offline replicas from nothing, and that it cannot append to some replicas for now, or can again."""

from __future__ import annotations

from ..wire.schema import Message, array, boolean, data, int16, int32, int64, string, uuid
from .command import Command, CommandResult, PlainResult


@data()
class OfflineReplica(Message):
    """A partition whose replica on the broker cannot be used."""

    topic_id: bytes = uuid(about="Id of the topic.")
    partition: int = int32(about="Partition index.")


@data()
class ReportOfflineReplicas(Command[PlainResult]):
    """Command of a broker that has lost these replicas until it registers again; other brokers take over their
    leaderships. Idempotent."""

    broker_id: int = int32(about="Id of the broker that reports.")
    broker_epoch: int = int64(about="Epoch of the broker's registration.")
    partitions: list[OfflineReplica] = array(OfflineReplica, about="Replicas that were lost.")


@data()
class RenewReplicasResult(CommandResult):
    """Result of RenewReplicas: the replicas to recreate. Any other replica may be all that is left of its partition."""

    error_code: int = int16(about="Error code of the whole command, 0 for success.")
    error_message: str = string(about="Explanation for people.")
    renewed: list[OfflineReplica] = array(OfflineReplica, about="Replicas that are no longer offline.")


@data()
class RenewReplicas(Command[RenewReplicasResult]):
    """Command of a broker that will recreate these offline replicas by copying them from their leaders. The data that
    it still has of them no longer counts."""

    broker_id: int = int32(about="Id of the broker that asks.")
    broker_epoch: int = int64(about="Epoch of the broker's registration.")
    partitions: list[OfflineReplica] = array(OfflineReplica, about="Replicas to recreate.")


@data()
class ReportWritability(Command[PlainResult]):
    """Command of a broker that can no longer append to these replicas because their disk is full, or can append again.
    Idempotent.

    A replica that cannot be written leaves the ISR and counts as offline, unless no other replica can lead.
    """

    broker_id: int = int32(about="Id of the broker that reports.")
    broker_epoch: int = int64(about="Epoch of the broker's registration.")
    partitions: list[OfflineReplica] = array(OfflineReplica, about="Replicas concerned.")
    writable: bool = boolean(about="Whether the broker can append to them.")
