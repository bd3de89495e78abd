"""10,000 tasks of a share group while workers, leaders and quorum nodes are killed again and again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import RunningCluster, running_cluster
from tests.integration.share_bank import SETTINGS, outputs_of_bank

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

TASKS = 10_000
ROUNDS = 3


@pytest.fixture
def bank(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    with running_cluster(tmp_path_factory.mktemp("bank"), quorum=3, brokers=3, settings=SETTINGS) as cluster:
        yield cluster


def test_each_of_many_tasks_has_one_output(bank: RunningCluster, tmp_path: Path) -> None:
    kinds = ("consumer", "worker", "worker")
    tasks, outputs = outputs_of_bank(bank, tmp_path, kinds, TASKS, ROUNDS)
    assert outputs == Counter(tasks)
