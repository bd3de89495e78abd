"""One topic as a table, and the table of its dead letters, while two workers write them."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.lake.failures import WorkerFenced
from ottla.lake.iceberg.tables import Epoch, Overtaken
from ottla.lake.metrics import TableProgress
from ottla.lake.topic_table import Consent, TopicTable
from tests.lake.failing_store import FailingCatalog
from tests.lake.seeds import MEMBERS, SimulatedLake
from tests.lake.simulated_log import BAD, LoggedRecord

WORDS = MEMBERS[0]


async def opened(lake: SimulatedLake, epoch: int) -> TopicTable:
    table = TopicTable(
        WORDS,
        lake.catalog(is_sound=True),
        lake.log.topic("words"),
        "cluster",
        Consent(),
        TableProgress(WORDS.table),
    )
    await table.open(Epoch(7, epoch, "cluster"), {})
    return table


async def read(lake: SimulatedLake, table: TopicTable) -> None:
    """Read all records."""
    cut = await lake.log.next_cut(["words"], table.starts, lake.log.commits, 1_000)
    await table.read(cut.cut, cut.places)


def commit(lake: SimulatedLake, *values: bytes) -> None:
    """Write a transaction with these records into a partition."""
    records = lake.log.records["words"]
    for value in values:
        records.append(LoggedRecord(0, len(records), lake.log.commits, value))
    lake.log.commits += 1


async def test_dead_letters_of_a_fenced_worker_are_not_written_again_by_the_next(tmp_path: Path) -> None:
    """The first letters make their table, so the next worker may have opened the rows before it was there."""
    lake = SimulatedLake(0, tmp_path)
    commit(lake, b'{"number": 0}')
    earlier = await opened(lake, 1)
    await read(lake, earlier)
    await earlier.commit()
    fenced, following = await opened(lake, 2), await opened(lake, 3)
    commit(lake, BAD, b'{"number": 2}')
    await read(lake, fenced)
    with pytest.raises(WorkerFenced):
        await fenced.commit()
    with pytest.raises(Overtaken):
        await read(lake, following)
    again = await opened(lake, 4)
    await read(lake, again)
    await again.commit()
    catalog = lake.catalog(is_sound=True)
    assert offsets(catalog, WORDS.letters) == [1]
    assert offsets(catalog, WORDS.table) == [0, 2]


def offsets(catalog: FailingCatalog, name: str) -> list[int]:
    rows = catalog.load_table(name).scan().to_arrow().to_pylist()
    return sorted(row["ottla"]["offset"] for row in rows)
