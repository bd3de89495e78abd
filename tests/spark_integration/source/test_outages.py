"""A failure during a micro-batch ends the query with the reason, and the next run goes on from there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.testing import LocalCluster

from .reading import SPARK_TIMEOUT_S, Run, Topics, values

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(170),
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas"),
]


def run_with(frame: Any, checkpoint: Path, before_reading: Callable[[int], None]) -> list[list[str]]:
    """Run a query like Run, with a callback between the planning and the reading of a micro-batch."""
    batches: list[list[str]] = []

    def take(frame: Any, batch_id: int) -> None:
        before_reading(batch_id)
        batches.append(values(frame))

    writing = frame.writeStream.foreachBatch(take).option("checkpointLocation", str(checkpoint))
    query = writing.trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(SPARK_TIMEOUT_S)
    finally:
        query.stop()
    return batches


def test_a_cluster_that_hangs_in_mid_batch(
    topics: Topics, spark_cluster: LocalCluster, tmp_path: Path
) -> None:
    topic = topics.create("hanging", 1)
    topics.write(topic, range(4))
    options = {
        "subscribe": topic,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "2",
        "kafka__request__timeout__ms": "1500",
    }
    (node,) = spark_cluster.broker_ids

    def hang(batch_id: int) -> None:
        if batch_id == 1:
            spark_cluster.pause(node)

    try:
        with pytest.raises(
            Exception, match=r"hanging-0: nothing came from offset 2 on within 1\.5 s|no broker answers"
        ):
            run_with(topics.stream(**options), tmp_path, hang)
    finally:
        spark_cluster.heal()
    assert Run(topics.stream(**options), tmp_path).batches == [["2", "3"]]


def test_a_topic_that_is_deleted_before_it_was_read(topics: Topics, tmp_path: Path) -> None:
    kept, gone = topics.create("stays", 1), topics.create("goes", 1)
    options = {"subscribe": f"{kept},{gone}", "startingOffsets": "earliest"}
    for topic in (kept, gone):
        topics.write(topic, [topic])

    def delete(_: int) -> None:
        topics.admin.delete_topics([gone])

    with pytest.raises(Exception, match=r"goes-0 cannot be read from offset 0 on: .*is not there any more"):
        run_with(topics.stream(**options), tmp_path / "strict", delete)
    topics.create(gone, 1)
    topics.write(gone, [gone])
    lenient = topics.stream(**options, failOnDataLoss="false")
    assert run_with(lenient, tmp_path / "lenient", delete) == [[kept]]
