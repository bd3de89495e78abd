"""The rows of one partition, in one SQLite file. Only `apply` and `restore` change them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from .changes import Change, Row, Statement, Value

TABLE = "accounts"
_SCHEMA = f"""
CREATE TABLE IF NOT EXISTS {TABLE} (
    id TEXT PRIMARY KEY, balance INTEGER NOT NULL CHECK (balance >= 0), note TEXT NOT NULL DEFAULT ''
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS changed (id TEXT PRIMARY KEY, commit_index INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS applied (
    one INTEGER PRIMARY KEY CHECK (one = 1), generation INTEGER, scn INTEGER, commit_index INTEGER
);
INSERT OR IGNORE INTO applied VALUES (1, -1, 0, -1);
CREATE TEMP TABLE touched (id TEXT PRIMARY KEY);
CREATE TEMP TRIGGER inserts AFTER INSERT ON {TABLE} BEGIN INSERT OR IGNORE INTO touched VALUES (new.id); END;
CREATE TEMP TRIGGER deletes AFTER DELETE ON {TABLE} BEGIN INSERT OR IGNORE INTO touched VALUES (old.id); END;
CREATE TEMP TRIGGER updates AFTER UPDATE ON {TABLE} BEGIN
    INSERT OR IGNORE INTO touched VALUES (old.id); INSERT OR IGNORE INTO touched VALUES (new.id);
END;
"""
_WRITES = {sqlite3.SQLITE_INSERT, sqlite3.SQLITE_UPDATE, sqlite3.SQLITE_DELETE}
_HARMLESS = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_FUNCTION}


class OutOfStep(Exception):
    """An error: a change does not follow the applied one. Records were deleted before they were read, or the log is
    wrong.
    """


class PartitionState:
    """Rows, and the position up to which the log is applied to them: both change in one SQLite transaction."""

    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(path, isolation_level=None)
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = NORMAL")  # the log has all writes that a power failure loses
        self._db.executescript(_SCHEMA)
        self.generation, self.scn, self.commit_index = self._db.execute(
            "SELECT generation, scn, commit_index FROM applied"
        ).fetchone()

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def prepare(self, statements: Iterable[Statement]) -> dict[str, Row | None]:
        """Return the rows as these statements would leave them, without changing the file.

        Uncommitted changes must not be visible, since they may never be committed. Raises sqlite3.Error if the table
        does not allow a change.
        """
        self._db.execute("BEGIN")
        try:
            self._db.execute("DELETE FROM touched")
            with self._may(_WRITES | _HARMLESS):
                for statement in statements:
                    self._db.execute(statement.sql, statement.args)
            return self._images("touched")
        finally:
            self._db.execute("ROLLBACK")

    def query(self, sql: str, args: list[Value]) -> list[Row]:
        """Return the rows of a SELECT. Raises sqlite3.Error."""
        with self._may(_HARMLESS):
            return [list(row) for row in self._db.execute(sql, args)]

    def apply(self, change: Change, commit_index: int) -> None:
        """Apply a committed change from the log; a change that was applied before has no effect. Raises OutOfStep."""
        if commit_index <= self.commit_index:
            return
        if change.generation < self.generation:
            raise OutOfStep(f"generation {change.generation} wrote after generation {self.generation}")
        if change.follows not in (None, self.scn):
            raise OutOfStep(
                f"SCN {change.scn} follows on {change.follows}, and {self.scn} is the last one here"
            )
        with self._applying(change.generation, self.scn if change.scn is None else change.scn, commit_index):
            self._put(change.rows)
            changed = [(key, commit_index) for key in change.rows]
            self._db.executemany("INSERT OR REPLACE INTO changed VALUES (?, ?)", changed)

    def restore(self, rows: dict[str, Row | None], generation: int, scn: int, commit_index: int) -> None:
        """Replace all rows with those of a snapshot."""
        with self._applying(generation, scn, commit_index):
            self._db.execute(f"DELETE FROM {TABLE}")
            self._db.execute("DELETE FROM changed")
            self._put(rows)

    def changed_after(self, commit_index: int) -> dict[str, Row | None]:
        """Return the current images of the rows that were changed or deleted since this commit index."""
        return self._images("changed", f"WHERE changed.commit_index > {commit_index}")

    def _images(self, keys: str, where: str = "") -> dict[str, Row | None]:
        found = self._db.execute(
            f"SELECT {keys}.id, {TABLE}.* FROM {keys} LEFT JOIN {TABLE} ON {TABLE}.id = {keys}.id {where}"
        )
        return {key: None if row[0] is None else list(row) for key, *row in found}

    def _put(self, rows: dict[str, Row | None]) -> None:
        for key, row in rows.items():
            if row is None:
                self._db.execute(f"DELETE FROM {TABLE} WHERE id = ?", (key,))
            else:
                self._db.execute(f"INSERT OR REPLACE INTO {TABLE} VALUES ({', '.join('?' * len(row))})", row)

    @contextmanager
    def _applying(self, generation: int, scn: int, commit_index: int) -> Iterator[None]:
        """Change rows and the log position together, or not at all."""
        self._db.execute("BEGIN")
        try:
            yield
            place = (generation, scn, commit_index)
            self._db.execute("UPDATE applied SET (generation, scn, commit_index) = (?, ?, ?)", place)
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")
        self.generation, self.scn, self.commit_index = place

    @contextmanager
    def _may(self, actions: set[int]) -> Iterator[None]:
        """Limit SQL from clients to these actions on the one table; other access to the file is denied."""

        def judge(action: int, table: str | None, _: str | None, __: str | None, trigger: str | None) -> int:
            of_table = action == sqlite3.SQLITE_READ or (action in actions and action in _WRITES)
            allowed = action in _HARMLESS or (of_table and (table == TABLE or trigger is not None))
            return sqlite3.SQLITE_OK if allowed else sqlite3.SQLITE_DENY

        self._db.set_authorizer(judge)
        try:
            yield
        finally:
            self._db.set_authorizer(None)
