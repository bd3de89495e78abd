"""One topic as a table, and the table of its dead letters, while two workers write them."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from ottla.lake.failures import TableRefused, WorkerFenced
from ottla.lake.iceberg.tables import Epoch, LakeTable, Overtaken
from ottla.lake.metrics import TableProgress
from ottla.lake.table_group import TableGroup
from ottla.lake.topic_table import Consent, TopicTable
from tests.lake.failing_store import FailingCatalog
from tests.lake.seeds import MEMBERS, SimulatedLake
from tests.lake.simulated_log import BAD, LoggedRecord

WORDS = MEMBERS[0]
NO_CONSENT = Consent()


def made(lake: SimulatedLake, consent: Consent = NO_CONSENT) -> TopicTable:
    return TopicTable(
        WORDS,
        lake.catalog(is_sound=True),
        lake.log.topic("words"),
        "cluster",
        consent,
        TableProgress(WORDS.table),
    )


async def opened(lake: SimulatedLake, epoch: int) -> TopicTable:
    table = made(lake)
    await table.open(Epoch(7, epoch, "cluster"), {})
    await table.complete()
    return table


async def read(lake: SimulatedLake, table: TopicTable) -> None:
    """Read all records."""
    cut = await lake.log.next_cut(["words"], {}, lake.log.commits, 1_000)
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


async def group_of(lake: SimulatedLake, epoch: int, consent: Consent = NO_CONSENT) -> TableGroup:
    """Return the table as a group without a name, as the worker opens it."""
    catalog = lake.catalog(is_sound=True)
    group = TableGroup("", [made(lake, consent)], catalog, lake.log)
    await group.open({WORDS.table: Epoch(7, epoch, "cluster")})
    return group


async def write_all(group: TableGroup) -> None:
    while await group.round():
        pass


@pytest.mark.parametrize("is_running", [True, False], ids=["the worker runs", "the worker starts"])
async def test_a_log_that_has_lost_records_of_the_table_needs_a_person(
    tmp_path: Path, is_running: bool
) -> None:
    """An unclean election loses records, and new records get their offsets: the table would skip those in silence."""
    lake = SimulatedLake(0, tmp_path)
    commit(lake, b'{"number": 0}', BAD, b'{"number": 2}', BAD)
    worker = await group_of(lake, 1)
    await write_all(worker)
    del lake.log.records["words"][1:]
    commit(lake, b'{"number": 1}')
    refused = "words-0 ends at offset 2 by now, and was read up to 4"
    with pytest.raises(TableRefused, match=refused):
        await (write_all(worker) if is_running else group_of(lake, 2))
    after = await group_of(lake, 3, Consent(lost_records=True))
    commit(lake, BAD, b'{"number": 3}')
    await write_all(after)
    catalog = lake.catalog(is_sound=True)
    assert offsets(catalog, WORDS.table) == [0, 2, 3]
    assert offsets(catalog, WORDS.letters) == [1, 2, 3]
    await group_of(lake, 4)  # It is consented once.


async def test_the_letters_of_lost_records_complete_no_round(tmp_path: Path) -> None:
    """A worker died between the letters and the rows, and then the log lost the records of both."""
    lake = SimulatedLake(0, tmp_path)
    commit(lake, b'{"number": 0}')
    await write_all(await group_of(lake, 1))
    commit(lake, BAD, b'{"number": 2}')
    dying = await opened(lake, 2)
    await read(lake, dying)
    with (
        patch.object(LakeTable, "append", only_letters(LakeTable.append)),
        pytest.raises(OSError, match="died"),
    ):
        await dying.commit()
    del lake.log.records["words"][1:]
    with pytest.raises(TableRefused, match="words-0 ends at offset 1 by now, and was read up to 3"):
        await group_of(lake, 3)
    after = await group_of(lake, 4, Consent(lost_records=True))
    commit(lake, b'{"number": 1}')
    await write_all(after)
    catalog = lake.catalog(is_sound=True)
    assert offsets(catalog, WORDS.table) == [0, 1]
    assert offsets(catalog, WORDS.letters) == [1]


def only_letters(append: Any) -> Any:
    def appended(table: LakeTable, *arguments: Any) -> Any:
        if table.name != WORDS.letters:
            raise OSError("died")
        return append(table, *arguments)

    return appended


def offsets(catalog: FailingCatalog, name: str) -> list[int]:
    rows = catalog.load_table(name).scan().to_arrow().to_pylist()
    return sorted(row["ottla"]["offset"] for row in rows)
