"""Spark's own Kafka connector under Structured Streaming: queries and brokers are killed, no result is missing.

Its sink promises each record at least once: a batch without a known outcome is written again, unchanged. So the output
of foreachBatch is exact for a reader that drops repeated batch numbers.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from tests.cluster import RunningCluster
from tests.programs.given import Given
from tests.programs.process import Program
from tests.programs.topics import Input, Output, create_topics
from tests.spark_integration.kafka_connector import available, connector_jars

pytestmark = [
    pytest.mark.java,
    pytest.mark.skipif(not available(), reason="needs java, and mvn to fetch Spark's Kafka connector once"),
    pytest.mark.timeout(600),
]
PARTITIONS = 3
START_S = 240.0
"""Seconds that exceed Spark's start on a busy machine."""
SCRIPT = Path(__file__).parent / "python" / "spark_shop.py"


def test_words_and_payments_through_kills(cluster: RunningCluster, tmp_path: Path) -> None:
    create_topics(cluster, "lines", "orders", "payments", "counts", "paid", partitions=PARTITIONS)
    counts, paid = (Output(cluster.bootstrap, topic, PARTITIONS) for topic in ("counts", "paid"))
    jars = ",".join(map(str, connector_jars()))
    argv = [sys.executable, "-u", str(SCRIPT), cluster.bootstrap, str(tmp_path), jars]
    with Program(argv, tmp_path / "spark.log") as queries:
        given = Given(seed=5)
        with Input(cluster.bootstrap, given.messages(), 60):
            go_on(counts, paid)
            leader = cluster.leader("lines", 0)
            assert leader is not None
            cluster.broker(leader).kill9()
            go_on(counts, paid)
            held = kill_between_write_and_commit(tmp_path / "hold", queries)
            go_on(counts, paid)
            cluster.broker(leader).restart()
            cluster.wait_until_in_sync("lines", 60)
        counts.wait_until(lambda: totals(counts) == given.words, "every word", START_S)
        paid.wait_until(lambda: set(paid.messages) >= set(given.paid), "every payment", START_S)
        assert set(paid.messages) == set(given.paid)
        times = Counter(value.split()[0] for _, value in set(counts.messages))
        twice = Counter(value.split()[0] for _, value in counts.messages)
        assert twice[held] == 2 * times[held], "the held batch is there twice"


def totals(counts: Output) -> Counter[str]:
    """Return the total of each word, over all batches; fails unless a repeated batch had the same count."""
    of_batch = defaultdict(set)
    for word, value in counts.messages:
        batch, count = value.split()
        of_batch[word, batch].add(int(count))
    assert all(len(found) == 1 for found in of_batch.values()), of_batch
    found: Counter[str] = Counter()
    for (word, _), (count,) in of_batch.items():
        found[word] += count
    return found


def go_on(*outputs: Output) -> None:
    """Return once each topic has more."""
    for output in outputs:
        output.wait_for(output.read() + 60, START_S)


def kill_between_write_and_commit(hold: Path, queries: Program) -> str:
    """Kill the queries when a batch is written and not known to be done; return its number."""
    hold.touch()
    queries.wait_until_said("is written and held", START_S)
    queries.kill9()
    (number,) = (
        line.split()[1] for line in queries.said.splitlines() if line.endswith("is written and held")
    )
    hold.unlink()
    queries.start()
    return number
