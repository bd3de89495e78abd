"""Workers of the lake that are killed around their commits: another worker completes the tables, with each record once.

`OTTLA_ALL_AWAITS=1` kills one worker at each moment; otherwise the moments are spread over a run.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster import RunningCluster
from tests.lake.killed_at_commits import BAD, TRANSFERS, topics_of
from tests.lake.written_tables import catalog, rows

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("lake")]

ROOT = Path(__file__).parents[2]
PROGRAM = "tests.lake.killed_at_commits"
CHOSEN = "all" if os.environ.get("OTTLA_ALL_AWAITS") else "5"


@pytest.mark.timeout(1_800 if CHOSEN == "all" else 120)
def test_a_worker_may_die_around_each_commit(cluster: RunningCluster, tmp_path: Path) -> None:
    command = [sys.executable, "-m", PROGRAM, cluster.bootstrap, str(tmp_path), CHOSEN]
    played = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout.split()
    moments, ends = [int(moment) for moment in played[::2]], played[1::2]
    print(f"{ends.count('killed')} kills")
    assert ends.count("killed") >= 3
    for moment in moments:
        check(tmp_path / f"lake-{moment}", moment)


def check(folder: Path, moment: int) -> None:
    """Check that the tables of a moment have each record once, and the same transactions at each tag."""
    in_json, raw = (f"lake.{topic}" for topic in topics_of(moment))
    assert sorted(row["amount"] for row in rows(folder, in_json)) == [*range(TRANSFERS)], moment
    assert sorted(-int(row["value"]) for row in rows(folder, raw)) == [*range(TRANSFERS)], moment
    letters = rows(folder, f"{in_json}__dlq")
    assert [row["value"] for row in letters] == [BAD] * TRANSFERS, moment
    assert len({(row["ottla"]["partition"], row["ottla"]["offset"]) for row in letters}) == TRANSFERS, moment
    tables = [catalog(folder).load_table(name) for name in (in_json, raw)]
    tags = [{tag for tag in table.metadata.refs if tag.startswith("cut-")} for table in tables]
    assert tags[0] == tags[1] != set(), moment
    for tag in tags[0]:
        amounts = sum(row["amount"] for row in rows(folder, in_json, tag))
        assert amounts + sum(int(row["value"]) for row in rows(folder, raw, tag)) == 0, moment
    noted = catalog(folder).load_table("lake.cuts").scan().to_arrow().to_pylist()
    assert sorted((f"cut-{row['cut']}", row["table"]) for row in noted) == sorted(
        (tag, name) for tag in tags[0] for name in (in_json, raw)
    ), moment
