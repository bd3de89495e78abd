"""The act of the demo with two tables of the lake, on a small cluster with few flights."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.progress import Progress

from benchmarks.flights_lake import compare, lake_through_a_crash
from tests.cluster import running_cluster

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("lake")]


def row_of(number: int) -> bytes:
    """Return a flight; every seventh did not depart."""
    delay = "NA" if number % 7 == 0 else str(number % 50 - 10)
    return f"2013,1,1,5,15,{delay},8,8,1,C{number % 4},1".encode()


def test_both_tables_agree_at_each_tag_though_the_worker_is_killed(tmp_path: Path) -> None:
    rows = [row_of(number) for number in range(12_000)]
    with (
        running_cluster(tmp_path, quorum=1, brokers=1, arguments=("--combined",)) as cluster,
        Progress(disable=True) as progress,
    ):
        told = lake_through_a_crash(cluster.bootstrap, rows, tmp_path / "tables", progress, replication=1)
    assert told.killed_at == 6_000
    assert told.transactions == {"committed": 6, "aborted": 1}
    compared = compare(rows, tmp_path / "tables")
    assert compared.exact
    assert len(compared.at_tags) >= 2
    assert not compare(rows[:-1], tmp_path / "tables").exact
