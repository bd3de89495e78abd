"""One SQLite file of the example: tentative changes are invisible, and changes out of sequence are refused."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from examples.replicated_database.changes import Change, Statement
from examples.replicated_database.state import OutOfStep, PartitionState

ALL = "SELECT * FROM accounts ORDER BY id"


@pytest.fixture
def state(tmp_path: Path) -> Iterator[PartitionState]:
    made = PartitionState(tmp_path / "0.sqlite")
    made.apply(Change(5, 1, 0, {"ann": ["ann", 10, ""], "bob": ["bob", 20, ""]}), 100)
    yield made
    made.close()


def sql(text: str, *args: str | int) -> list[Statement]:
    return [Statement("ann", text, list(args))]


def test_what_is_tried_out_is_not_seen(state: PartitionState) -> None:
    before = state.query(ALL, [])
    assert state.prepare(sql("UPDATE accounts SET balance = balance + ?", 1)) == {
        "ann": ["ann", 11, ""],
        "bob": ["bob", 21, ""],
    }
    assert state.prepare(sql("DELETE FROM accounts WHERE id = 'ann'")) == {"ann": None}
    assert state.prepare(sql("UPDATE accounts SET id = 'eve' WHERE id = 'ann'")) == {
        "ann": None,
        "eve": ["eve", 10, ""],
    }
    assert state.prepare(sql("UPDATE accounts SET balance = 0 WHERE id = 'nobody'")) == {}
    with pytest.raises(sqlite3.IntegrityError, match="CHECK"):
        state.prepare(sql("UPDATE accounts SET balance = balance - 11 WHERE id = 'ann'"))
    assert state.query(ALL, []) == before


@pytest.mark.parametrize(
    "text",
    [
        "UPDATE applied SET scn = 9",
        "DELETE FROM changed",
        "COMMIT",
        "ATTACH '/tmp/x' AS other",
        "PRAGMA journal_mode = DELETE",
        "DROP TABLE accounts",
        "SELECT * FROM applied",
        "INSERT INTO accounts SELECT generation, scn, '' FROM applied",
    ],
)
def test_sql_of_clients_reaches_one_table(state: PartitionState, text: str) -> None:
    with pytest.raises(sqlite3.DatabaseError, match=r"not authorized|prohibited"):
        state.prepare(sql(text))
    with pytest.raises(sqlite3.DatabaseError, match=r"not authorized|prohibited"):
        state.query(text, [])


def test_readers_do_not_write(state: PartitionState) -> None:
    with pytest.raises(sqlite3.DatabaseError, match="not authorized"):
        state.query("DELETE FROM accounts", [])


def test_only_what_follows_is_applied(state: PartitionState) -> None:
    with pytest.raises(OutOfStep, match="SCN 3 follows on 2, and 1 is the last"):
        state.apply(Change(5, 3, 2, {}), 101)
    with pytest.raises(OutOfStep, match="SCN 1 follows on 0"):
        state.apply(Change(5, 1, 0, {"ann": None}), 101)
    state.apply(Change.mark(7), 102)
    assert (state.generation, state.scn) == (7, 1)
    with pytest.raises(OutOfStep, match="generation 5 wrote after generation 7"):
        state.apply(Change(5, 2, 1, {"ann": None}), 103)
    state.apply(Change(7, 2, 1, {"ann": None}), 104)
    assert state.query(ALL, []) == [["bob", 20, ""]]


def test_what_was_applied_before_does_nothing(state: PartitionState, tmp_path: Path) -> None:
    again = PartitionState(tmp_path / "0.sqlite")
    assert (again.generation, again.scn, again.commit_index) == (5, 1, 100)
    again.apply(Change(5, 1, 0, {"ann": None}), 100)
    assert len(again.query(ALL, [])) == 2
    again.close()


def test_a_snapshot_has_what_changed_since_the_one_before(state: PartitionState) -> None:
    state.apply(Change(5, 2, 1, {"ann": None, "cat": ["cat", 1, "x"]}), 101)
    assert state.changed_after(100) == {"ann": None, "cat": ["cat", 1, "x"]}
    assert state.changed_after(-1).keys() == {"ann", "bob", "cat"}
    state.restore({"dan": ["dan", 3, ""], "ann": None}, 9, 40, 200)
    assert state.query(ALL, []) == [["dan", 3, ""]]
    assert state.changed_after(-1) == {}
    state.apply(Change(9, 41, 40, {"dan": None}), 201)
    assert state.changed_after(200) == {"dan": None}
