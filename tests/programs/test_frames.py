"""pandas and dask behind confluent-kafka, a transaction for each frame: the job and a broker die, sums are exact."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import RunningCluster
from tests.programs.environments import Environment
from tests.programs.kills import kill_and_start
from tests.programs.topics import Input, Output, Sent, create_topics

pytestmark = pytest.mark.timeout(300)
PARTITIONS = 3


def payments(seed: int) -> Iterator[Sent]:
    chance = random.Random(seed)
    for _ in itertools.count():
        yield Sent("payments", f"customer{chance.randrange(20)}", str(chance.randrange(1, 100)))


def total(messages: list[tuple[str, str]]) -> Counter[str]:
    found: Counter[str] = Counter()
    for customer, amount in messages:
        found[customer] += int(amount)
    return found


@pytest.mark.parametrize("library", ["pandas", "dask"])
def test_sums_through_kills(cluster: RunningCluster, tmp_path: Path, library: str) -> None:
    create_topics(cluster, "payments", "sums", partitions=PARTITIONS)
    sums = Output(cluster.bootstrap, "sums", PARTITIONS)
    python = Environment(library)
    with python.program(f"{library}_sums.py", tmp_path / "sums.log", cluster.bootstrap) as job:
        with Input(cluster.bootstrap, payments(seed=5)) as given:
            sums.wait_for(60, 120)
            for turn in range(4):
                kill_and_start(cluster, job, turn, sums)
        wanted = total([(message.key or "", message.value) for message in given.sent])
        sums.wait_until(lambda: total(sums.messages).total() >= wanted.total(), "every payment", 120)
        assert total(sums.messages) == wanted
