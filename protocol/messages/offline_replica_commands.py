"""The commands by which a broker tells that some of its replicas are offline, since a data folder failed or a log,
that it makes such replicas anew, from nothing, and that it cannot write to some for now, or can again.
"""

from __future__ import annotations

from ..schema import Message, array, boolean, data, int16, int32, int64, string, uuid
from .command import Command, CommandResult, PlainResult


@data()
class OfflineReplica(Message):
    """One partition whose replica on the broker cannot be used."""

    topic_id: bytes = uuid(about="Topic.")
    partition: int = int32(about="Partition index.")


@data()
class ReportOfflineReplicas(Command[PlainResult]):
    """The broker has lost these replicas until it registers anew; others lead. Idempotent."""

    broker_id: int = int32(about="Who reports.")
    broker_epoch: int = int64(about="Its registration.")
    partitions: list[OfflineReplica] = array(OfflineReplica, about="The replicas.")


@data()
class RenewReplicasResult(CommandResult):
    """Those that are to be made anew; the others may be all that is left of their partitions."""

    error_code: int = int16(about="About the whole command; 0 for success.")
    error_message: str = string(about="For people.")
    renewed: list[OfflineReplica] = array(OfflineReplica, about="Offline no longer.")


@data()
class RenewReplicas(Command[RenewReplicasResult]):
    """The broker will copy these offline replicas of its own anew, from their leaders; what it has of them does not
    count any more."""

    broker_id: int = int32(about="Who asks.")
    broker_epoch: int = int64(about="Its registration.")
    partitions: list[OfflineReplica] = array(OfflineReplica, about="The replicas.")


@data()
class ReportWritability(Command[PlainResult]):
    """A change in whether the broker can append to these replicas: their disk is full, or has room again. Idempotent.

    A replica that cannot be written leaves the ISR and counts as offline, unless nobody else can lead.
    """

    broker_id: int = int32(about="The broker that reports.")
    broker_epoch: int = int64(about="Its registration.")
    partitions: list[OfflineReplica] = array(OfflineReplica, about="The replicas.")
    writable: bool = boolean(about="Whether the broker can append to them.")
