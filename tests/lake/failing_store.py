"""A catalog and a store that fail: before or after their work, for a moment or with the death of their worker."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO
from pyiceberg.table import CommitTableResponse, Table
from sqlalchemy.exc import OperationalError

from ottla.lake.iceberg.catalogs import CATALOG_FILE, SQLITE_TIMEOUT_S, FolderCatalog, doubt_refusals

_WORKER = "simulated-worker"


class Killed(BaseException):
    """The death of a worker. All that it does with the store afterwards fails, so it cleans nothing up."""


class StoreFaults:
    """The faults that one worker meets, by chance."""

    by_worker: dict[str, StoreFaults] = {}
    """The faults by the worker's name, since pyiceberg makes the store itself."""

    def __init__(self, name: str, seed: object, fails: float, kills: float) -> None:
        """`fails` and `kills` are the chances of a failure and of a death, at each call."""
        self.name = name
        self.is_dead = False
        self.counts: Counter[str] = Counter()
        self._random = random.Random(f"faults {seed} {name}")
        self._fails, self._kills = fails, kills
        self.by_worker[name] = self

    def pass_one(self, is_commit: bool = False) -> None:
        """Pass a moment at which a fault may happen. Raises the fault."""
        if self.is_dead:
            raise Killed
        drawn = self._random.random()
        if drawn < self._kills:
            self.is_dead = True
            self.counts["kills"] += 1
            raise Killed
        if drawn < self._kills + self._fails:
            self.counts["failures"] += 1
            raise self._failure(is_commit)

    def _failure(self, is_commit: bool) -> Exception:
        failures: list[Exception] = [OSError(5, "the store failed"), ConnectionResetError("reset")]
        if is_commit:
            failures += [
                CommitFailedException("409"),
                CommitStateUnknownException("502"),
                OperationalError("commit", {}, Exception("database is locked")),
            ]
        return self._random.choice(failures)


class FailingIO(PyArrowFileIO):  # type: ignore[misc]  # pyiceberg is not followed
    """The files of a store that fails. A failure may leave a file without its content."""

    @property
    def _faults(self) -> StoreFaults:
        return StoreFaults.by_worker[self.properties[_WORKER]]

    def new_input(self, location: str) -> PyArrowFile:
        """Return a file to read."""
        self._faults.pass_one()
        return super().new_input(location)

    def new_output(self, location: str) -> PyArrowFile:
        """Return a file to write."""
        self._faults.pass_one()
        output = super().new_output(location)
        try:
            self._faults.pass_one()
        except (OSError, Killed):
            output.create(overwrite=True).close()
            raise
        return output

    def delete(self, location: Any) -> None:
        """Delete a file."""
        self._faults.pass_one()
        super().delete(location)


class FailingCatalog(FolderCatalog):
    """The catalog of a folder, as one worker sees it: its answers may get lost."""

    def __init__(self, folder: Path, faults: StoreFaults) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        super().__init__(
            "ottla",
            **{
                "uri": f"sqlite:///{folder / CATALOG_FILE}?timeout={SQLITE_TIMEOUT_S}",
                "warehouse": folder.as_uri(),
                "py-io-impl": f"{__name__}.{FailingIO.__name__}",
                _WORKER: faults.name,
            },
        )
        self._faults = faults
        doubt_refusals(self)

    def load_table(self, *arguments: Any, **named: Any) -> Table:
        """Load a table."""
        self._faults.pass_one()
        return super().load_table(*arguments, **named)

    def create_table(self, *arguments: Any, **named: Any) -> Table:
        """Create a table."""
        self._faults.pass_one(is_commit=True)
        table = super().create_table(*arguments, **named)
        self._faults.pass_one(is_commit=True)
        return table

    def commit_table(self, *arguments: Any, **named: Any) -> CommitTableResponse:
        """Commit to a table."""
        self._faults.pass_one(is_commit=True)
        done = super().commit_table(*arguments, **named)
        self._faults.pass_one(is_commit=True)
        return done
