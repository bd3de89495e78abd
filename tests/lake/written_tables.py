"""Workers that write once, and the rows of their tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyiceberg.catalog import Catalog

from ottla import Admin, NewTopic
from ottla.lake.iceberg.catalogs import LakePlace, open_catalog
from ottla.lake.topic_table import Consent
from ottla.lake.worker import LakeOptions, LakeWorker
from tests.cluster import RunningCluster

PartitionReach = tuple[int, int]


async def create(cluster: RunningCluster, topic: str, partitions: int = 2, **settings: str) -> None:
    """Create a topic that is written as a table, with further settings `ottla.lake.NAME`."""
    configs = {f"ottla.lake.{name}": value for name, value in {"enable": "true", **settings}.items()}
    async with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        await admin.create_topics([NewTopic(topic, partitions, 1, configs=configs)])


def worker(
    cluster: RunningCluster, folder: Path, *topics: str, consent: Consent | None = None, once: bool = True
) -> LakeWorker:
    """Return a worker that writes these topics."""
    return LakeWorker(
        LakeOptions(
            {"bootstrap_servers": cluster.bootstrap},
            LakePlace(folder=folder),
            topics,
            once=once,
            consent=consent or Consent(),
        )
    )


def catalog(folder: Path) -> Catalog:
    """Return the catalog in a lake's folder."""
    return open_catalog(LakePlace(folder=folder))


def rows(folder: Path, table: str, tag: str | None = None) -> list[dict[str, Any]]:
    """Return the rows of a table in the order of partitions and offsets, at its newest snapshot or at a tag."""
    loaded = catalog(folder).load_table(table)
    snapshot = None if tag is None else loaded.metadata.refs[tag].snapshot_id
    found: list[dict[str, Any]] = loaded.scan(snapshot_id=snapshot).to_arrow().to_pylist()
    return sorted(found, key=lambda row: (row["ottla"]["partition"], row["ottla"]["offset"]))


def values(folder: Path, table: str, tag: str | None = None) -> dict[PartitionReach, bytes]:
    """Return the values of a raw table by partition and offset. Raises AssertionError for an offset that is there
    twice."""
    found = rows(folder, table, tag)
    by_place = {(row["ottla"]["partition"], row["ottla"]["offset"]): row["value"] for row in found}
    assert len(by_place) == len(found)
    return by_place
