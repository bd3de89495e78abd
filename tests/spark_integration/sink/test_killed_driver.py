"""Three queries of one driver, which is killed with all its processes: two are about to commit their first batches
then, the third is writing its batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from ottla.protocol.messages.shared_transactions import CommitTransactionRequest
from ottla.testing.local_cluster import LocalCluster
from tests.integration.proxy import DelayingProxy, Held
from tests.spark_integration.mishaps import doomed_driver
from tests.spark_integration.sink.streams import expected, lines, start
from tests.spark_integration.topics import values

EARLY, LATE, HANGS = "commit-arrives-early", "commit-arrives-late", "hangs-while-it-writes"
TOPICS = (EARLY, LATE, HANGS)
DRIVER = """
import sys, time
from pathlib import Path
from pyspark import TaskContext
from tests.spark_integration.session import new_session

servers, folder, topics = sys.argv[1], Path(sys.argv[2]), sys.argv[3:]
spark = new_session(folder / "warehouse")

def maybe_hangs(topic):
    def hangs(batches):
        yield from batches
        if topic.startswith("hangs") and TaskContext.get().partitionId() == 1:
            (folder / "hangs").touch()
            time.sleep(600)
    return hangs

for topic in topics:
    while not (folder / topic / "may start").exists():
        time.sleep(0.05)
    lines = spark.readStream.option("maxFilesPerTrigger", 1).text(str(folder / topic / "in"))
    (
        lines.repartition(2).mapInArrow(maybe_hangs(topic), "value string").writeStream.format("ottla")
        .option("kafka.bootstrap.servers", servers).option("topic", topic)
        .option("kafka.request.timeout.ms", 600000)  # a commit is not asked for again over another connection
        .option("transactionTimeoutMs", 600000)
        .option("checkpointLocation", str(folder / topic / "checkpoint")).start()
    )
time.sleep(600)
"""


@dataclass
class Killed:
    """The state that a killed driver has left. Its commits are still in transit."""

    cluster: LocalCluster
    folder: Path
    frames: dict[str, DataFrame]
    commits: dict[str, Held]

    def values(self, topic: str) -> list[bytes]:
        """Return the committed values of a topic."""
        return values(self.cluster, topic)

    def play_again(self, topic: str) -> None:
        """Run the next driver to the end."""
        start(self.frames[topic], self.cluster, topic, self.folder / topic).awaitTermination()


@pytest.fixture(scope="module")
def killed(
    spark: SparkSession, spark_cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Killed]:
    folder = tmp_path_factory.mktemp("killed")
    frames, commits = {}, dict[str, Held]()
    for topic in TOPICS:
        spark_cluster.create_topic(topic, 2)
        (folder / topic).mkdir()
        frames[topic] = lines(spark, folder / topic)
    with DelayingProxy(spark_cluster.bootstrap_servers) as proxy:
        with doomed_driver(DRIVER, folder, proxy.bootstrap, str(folder), *TOPICS) as reaches:
            for topic in (EARLY, LATE):
                held = commits[topic] = proxy.hold(CommitTransactionRequest.api_key, resets=False)
                (folder / topic / "may start").touch()
                reaches(lambda held=held: held.passage is not None, "the first batch is to be committed")
            assert commits[EARLY].body != commits[LATE].body, "one commit was asked for twice"
            (folder / HANGS / "may start").touch()
            reaches((folder / "hangs").exists, "one task has written all")
            reaches(lambda: len(values(spark_cluster, HANGS, committed=False)) >= 60, "the other one is done")
        yield Killed(spark_cluster, folder, frames, commits)


def test_killed_while_tasks_write(killed: Killed) -> None:
    """One task of the batch is done and the other has written, too.

    The next driver finds the open transaction and goes on in it.
    """
    assert killed.values(HANGS) == []
    killed.play_again(HANGS)
    assert killed.values(HANGS) == expected()


def test_killed_before_its_commit_arrives(killed: Killed) -> None:
    """The commit counts as soon as it arrives; the next driver learns that the batch is committed, and writes the
    others.
    """
    assert killed.values(EARLY) == []
    killed.commits[EARLY].release()
    assert len(killed.values(EARLY)) == len(expected(1))
    killed.play_again(EARLY)
    assert killed.values(EARLY) == expected()


def test_killed_before_its_commit_which_arrives_behind_those_of_the_next_driver(killed: Killed) -> None:
    assert killed.values(LATE) == []
    killed.play_again(LATE)
    killed.commits[LATE].release()
    assert killed.values(LATE) == expected()
