"""Tasks of a share group whose outputs are written in the transactions that acknowledge them: one output for each task,
whatever is killed meanwhile. Without transactions each task has an output at least."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import RunningCluster, running_cluster
from tests.integration.share_bank import SETTINGS, outputs_of_bank

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]

TASKS = 2_000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    with running_cluster(tmp_path_factory.mktemp("bank"), quorum=3, brokers=3, settings=SETTINGS) as cluster:
        yield cluster


def test_each_task_has_one_output(cluster: RunningCluster, tmp_path: Path) -> None:
    tasks, outputs = outputs_of_bank(cluster, tmp_path, ("consumer", "worker"), TASKS, 1)
    assert outputs == Counter(tasks)


def test_no_task_is_lost_without_transactions(cluster: RunningCluster, tmp_path: Path) -> None:
    tasks, outputs = outputs_of_bank(cluster, tmp_path, ("plain", "plain"), TASKS, 1)
    assert outputs.keys() == tasks
