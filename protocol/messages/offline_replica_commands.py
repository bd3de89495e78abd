"""The command by which a broker tells that some of its replicas are offline: a data folder failed, or a log."""

from __future__ import annotations

from ..schema import Message, array, data, int32, int64, uuid


@data()
class OfflineReplica(Message):
    """One partition whose replica on the broker cannot be used."""

    topic_id: bytes = uuid(about="Topic.")
    partition: int = int32(about="Partition index.")


@data()
class ReportOfflineReplicas(Message):
    """The broker has lost these replicas until it registers anew; others lead. Idempotent."""

    broker_id: int = int32(about="Who reports.")
    broker_epoch: int = int64(about="Its registration.")
    partitions: list[OfflineReplica] = array(OfflineReplica, about="The replicas.")
