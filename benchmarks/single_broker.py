"""Clusters of one broker and one quorum node, for measurements that need no replicas."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path

from .clusters import Cluster, ottla_cluster
from .kafka import kafka_cluster
from .rounds import Launch

ONE_BROKER = {
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}


def ottla(data: Path, *, settings: Mapping[str, str] | None = None) -> AbstractContextManager[Cluster]:
    return ottla_cluster(data, brokers=1, quorum=1, settings=settings)


def kafka(data: Path, *, settings: Mapping[str, str] | None = None) -> AbstractContextManager[Cluster]:
    return kafka_cluster(data, brokers=1, quorum=1, settings=ONE_BROKER | dict(settings or {}))


LAUNCHERS: dict[str, Launch] = {"ottla": ottla, "kafka": kafka}
