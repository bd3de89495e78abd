"""The plan of a take-over and its changes: tables at, below and ahead of the end of a copy of their topic."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.catalog import Catalog

from ottla import TopicPartition
from ottla.lake.cluster_view import LakeTopics, LakeView
from ottla.lake.failures import TableRefused
from ottla.lake.iceberg.catalogs import LakePlace, open_catalog
from ottla.lake.iceberg.expiry import KeptSnapshots, expire
from ottla.lake.iceberg.schemas import LETTERS_TABLE
from ottla.lake.iceberg.tables import Epoch, LakeTable, Overtaken, newest_with_position, summary_of
from ottla.lake.position import PartitionReach, TablePosition, read_position
from ottla.lake.settings import TableSettings
from ottla.lake.take_over import TakeOver, carry_out, lost_tags, planned_take_over
from tests.lake.small_tables import NAME, append, at, both, opened, places, written

SETTINGS = TableSettings(
    "t", NAME, "json", partition_by=(), commit_ms=1000, bad_records="dead-letter", group="bank", hold=False
)
PARTITIONS = frozenset(TopicPartition("t", index) for index in (0, 1))
EPOCH = Epoch(1, 0, "east")


class CopyView:
    """A substitute for the view of a cluster, which has a copy of the topic."""

    def __init__(self, *ends: int, newest_cut: int = 1000, topic_id: bytes = b"\x0b") -> None:
        self.cluster_id = "east"
        self._ends = dict(enumerate(ends))
        self._newest_cut = newest_cut
        self._topic_id = topic_id

    async def settings_of(self, table: str) -> TableSettings:
        assert table == NAME
        return SETTINGS

    async def topics(self, names: Iterable[str]) -> LakeTopics:
        return LakeTopics(dict.fromkeys(names, self._topic_id), PARTITIONS)

    async def copied_ends(self, topic: str) -> dict[int, int]:
        return self._ends

    async def newest_cut(self, partitions: Collection[TopicPartition]) -> int:
        return self._newest_cut


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return open_catalog(LakePlace(folder=tmp_path), create=True)


def plan(catalog: Catalog, view: CopyView, *, rolls_back: bool = False) -> TakeOver:
    return asyncio.run(planned_take_over(cast(LakeView, view), catalog, NAME, rolls_back=rolls_back))


def position(catalog: Catalog, table: str = NAME) -> TablePosition | None:
    snapshot = newest_with_position(catalog.load_table(table))
    return None if snapshot is None else read_position(summary_of(snapshot))


def continued(offset: int) -> TablePosition:
    return TablePosition("t", "0b", "east", offset, at(offset).places)


@pytest.mark.parametrize("end", [3, 7])
def test_a_table_that_is_not_ahead_goes_on_with_all_its_rows(catalog: Catalog, end: int) -> None:
    append(opened(catalog), 0, 3)
    chosen = plan(catalog, CopyView(end))
    assert position(catalog) == at(3), "a plan changes nothing"
    carry_out(chosen, catalog, EPOCH)
    assert position(catalog) == continued(3)
    assert places(catalog) == both(3)
    assert not plan(catalog, CopyView(end)).tables, "once more changes nothing"


def test_a_table_that_is_ahead_is_refused_with_both_offsets(catalog: Catalog) -> None:
    append(opened(catalog), 0, 3)
    with pytest.raises(
        TableRefused, match=r"t-0 up to offset 3, and today's topic is a copy up to 2.*--roll-back"
    ):
        plan(catalog, CopyView(2))
    with pytest.raises(TableRefused, match=f"up to 0.* no earlier snapshot .*`ottla lake rebuild {NAME}`"):
        plan(catalog, CopyView(), rolls_back=True)
    assert places(catalog) == both(3)


def test_a_table_that_is_ahead_goes_back_to_its_newest_snapshot_below_the_end(catalog: Catalog) -> None:
    table = opened(catalog)
    append(table, 0, 5)
    others = catalog.load_table(NAME)
    others.overwrite(others.scan().to_arrow())
    carry_out(plan(catalog, CopyView(3), rolls_back=True), catalog, EPOCH)
    assert position(catalog) == continued(3)
    assert places(catalog) == both(3)
    later = LakeTable(catalog, NAME, EPOCH)
    later.open(table.table.schema())
    later.append(written(later, [(0, 3), (1, 3)]), continued(3), continued(4))
    assert places(catalog) == both(4)


def test_a_former_worker_that_still_runs_writes_nothing_more(catalog: Catalog) -> None:
    former = opened(catalog, 99)
    append(former, 0, 3)
    carry_out(plan(catalog, CopyView(2), rolls_back=True), catalog, EPOCH)
    with pytest.raises(Overtaken):
        append(former, 3, 1)
    assert places(catalog) == both(2)


def test_an_interrupted_take_over_is_completed_by_the_next(catalog: Catalog) -> None:
    table = opened(catalog)
    append(table, 0, 3)
    chosen = plan(catalog, CopyView(2), rolls_back=True)
    back_to = chosen.tables[0].back_to
    assert back_to is not None
    table.roll_back(back_to)
    with pytest.raises(TableRefused, match="was changed meanwhile"):
        carry_out(chosen, catalog, EPOCH)
    carry_out(plan(catalog, CopyView(2)), catalog, EPOCH)
    assert position(catalog) == continued(2)


def test_dead_letters_go_back_too(catalog: Catalog) -> None:
    """The letters are ahead of the rows: a worker was killed between the two commits."""
    append(opened(catalog), 0, 2)
    letters = LakeTable(catalog, f"{NAME}__dlq", Epoch(7, 1))
    letters.open(LETTERS_TABLE)
    letters.append([], at(0), at(1))
    letters.append([], at(1), at(3))
    with pytest.raises(TableRefused, match=r"table lake.t__dlq has records of t-0 up to offset 3"):
        plan(catalog, CopyView(2))
    chosen = plan(catalog, CopyView(2), rolls_back=True)
    assert [(planned.table, planned.back_to is None) for planned in chosen.tables] == [
        (f"{NAME}__dlq", False),
        (NAME, True),
    ]
    carry_out(chosen, catalog, EPOCH)
    assert position(catalog, f"{NAME}__dlq") == continued(1)
    assert position(catalog) == continued(2)


def test_snapshots_that_were_expired_cannot_be_gone_back_to(catalog: Catalog) -> None:
    append(opened(catalog), 0, 4)
    assert expire(catalog, NAME, KeptSnapshots(1 << 62, 1)) == 3
    with pytest.raises(TableRefused, match="no earlier snapshot to go on from"):
        plan(catalog, CopyView(2), rolls_back=True)


def test_tags_of_cuts_that_the_copy_never_had_go(catalog: Catalog) -> None:
    table = opened(catalog)
    for number in range(4):
        append(table, number, 1)
        table.tag(f"cut-{number + 1}", 100, "cut-")
    table.tag("monthly", 1, "monthly")
    carry_out(plan(catalog, CopyView(3, newest_cut=3), rolls_back=True), catalog, EPOCH)
    assert catalog.load_table(NAME).metadata.refs.keys() == {"main", "cut-1", "cut-2", "monthly"}


@given(st.dictionaries(st.integers(0, 50), st.integers(0, 9)), st.sets(st.integers(0, 9)), st.integers(0, 50))
def test_a_tag_stays_if_its_snapshot_does_and_no_later_cut_gets_its_number(
    numbers: dict[int, int], dropped: set[int], newest_cut: int
) -> None:
    tags = {f"cut-{number}": snapshot for number, snapshot in numbers.items()}
    kept = tags.keys() - set(lost_tags({**tags, "cut-x": 1, "year": 2}, dropped, newest_cut))
    assert kept == {
        f"cut-{number}"
        for number, snapshot in numbers.items()
        if snapshot not in dropped and number < newest_cut
    }


def test_a_table_of_another_topic_is_refused(catalog: Catalog) -> None:
    table = opened(catalog)
    other = TablePosition("u", "0a", "cluster", 1, {0: PartitionReach(1, 1)})
    table.append(written(table, [(0, 0)]), other, other)
    with pytest.raises(TableRefused, match="has records of topic 'u'"):
        plan(catalog, CopyView(9))
