"""The log of commits of a table of Parquet files: the files that count, and the progress of each query.

TABLE/k=v/QUERY-BATCH-....parquet     data files; a file counts if a commit names it
TABLE/_commits/table.json             the columns, and those that folders are named after; written once
TABLE/_commits/QUERY/BATCH.json       a commit: the files that a batch of a query added
TABLE/_commits/QUERY/upto-BATCH.json  a summary of the query's commits up to this batch; derived, for quick reading
TABLE/_attempts/QUERY~BATCH~ID/       an unfinished batch: its files, and later the planned commit
TABLE/_attempts/dead~QUERY~BATCH~ID/  the same, while a later run removes it

A commit is atomic: its file is written and synced under another name, and link(2) gives it its own name, which fails if
another run's commit of the batch exists. So the table needs a file system with POSIX links and renames.
"""

from __future__ import annotations

import json
import os
import re
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from ...client.spool.folder import sync_folder
from .failures import OutsideError, QueryReplaced
from .numbering import Batch, Kept

FORMAT: Final = 1
SUMMARY_EVERY: Final = 100
"""Largest number of commits since the last summary; each is read from a separate file."""
COMMITS: Final = "_commits"
ATTEMPTS: Final = "_attempts"
_DEAD: Final = "dead~"
_ATTEMPT: Final = re.compile(rf"(?P<dead>{_DEAD})?(?P<query>[^~]+)~(?P<number>[0-9]+)~[0-9a-f]{{12}}")


@dataclass(frozen=True, slots=True)
class DataFile:
    """A data file with its path relative to the table's folder."""

    path: str
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit of a table of Parquet files: the files that a batch added, and its writer. A summary holds the files of
    all batches and the last writer."""

    kept: Kept
    files: list[DataFile]

    def to_json(self) -> str:
        """Return the content of the commit's file."""
        return json.dumps({"format": FORMAT, **asdict(self)})

    @classmethod
    def read(cls, path: Path) -> Commit:
        """Read a commit. Raises FileNotFoundError, and OutsideError if the file is not a commit."""
        found = read_json(path)
        try:
            files = [DataFile(**file) for file in found["files"]]
            return cls(Kept(**found["kept"]), files)
        except (KeyError, TypeError) as error:
            raise OutsideError(f"{path} is not a commit: {error!r}") from error


class CommitLog:
    """The commits of one query."""

    def __init__(self, table: Path, query: str) -> None:
        self._folder = table / COMMITS / query

    def last(self) -> Commit | None:
        """Return the newest commit; None before the first."""
        while True:
            commits, summaries = self._numbers()
            newest = max([*commits, *summaries], default=None)
            if newest is None:
                return None
            with suppress(FileNotFoundError):  # a summary has replaced it meanwhile
                return Commit.read(self._commit(newest) if newest in commits else self._summary(newest))

    def files(self) -> list[DataFile]:
        """Return all data files that commits of the query name, the files that belong to the table."""
        while True:
            with suppress(FileNotFoundError):
                return self._read_files()

    def counts(self, planned: Commit) -> bool:
        """Return whether the commit that an attempt has planned was made."""
        try:
            made = Commit.read(self._commit(planned.kept.number))
        except FileNotFoundError:
            return bool(planned.files) and planned.files[0] in self.files()
        return made == planned

    def add(self, commit: Commit, written: Path) -> None:
        """Add the commit to the log, so that its files belong to the table. `written` is its synced file. Raises
        QueryReplaced if the batch is already committed."""
        self._folder.mkdir(parents=True, exist_ok=True)
        sync_folder(self._folder.parent)
        try:
            os.link(written, self._commit(commit.kept.number))
        except FileExistsError:
            raise QueryReplaced(
                f"batch {commit.kept.number} was committed by another run meanwhile: two may not run at once"
            ) from None
        sync_folder(self._folder)

    def sum_up(self, commit: Commit) -> None:
        """Write a summary once SUMMARY_EVERY commits follow the last; delete the commits that the last one covers."""
        commits, summaries = self._numbers()
        latest = max(summaries, default=-1)
        if sum(number > latest for number in commits) < SUMMARY_EVERY:
            return
        write_durably(self._summary(commit.kept.number), Commit(commit.kept, self._read_files()).to_json())
        for number in commits:
            if number <= latest:
                self._commit(number).unlink(missing_ok=True)
        for number in summaries:
            if number < latest:
                self._summary(number).unlink(missing_ok=True)

    def _read_files(self) -> list[DataFile]:
        commits, summaries = self._numbers()
        latest = max(summaries, default=-1)
        found = Commit.read(self._summary(latest)).files if summaries else []
        for number in sorted(commits):
            if number > latest:
                found += Commit.read(self._commit(number)).files
        return found

    def _numbers(self) -> tuple[set[int], set[int]]:
        commits, summaries = set(), set()
        names = os.listdir(self._folder) if self._folder.is_dir() else []
        for name in names:
            stem = name.removesuffix(".json")
            if stem == name:
                continue
            if stem.isdigit():
                commits.add(int(stem))
            elif stem.startswith("upto-"):
                summaries.add(int(stem.removeprefix("upto-")))
        return commits, summaries

    def _commit(self, number: int) -> Path:
        return self._folder / f"{number:020}.json"

    def _summary(self, number: int) -> Path:
        return self._folder / f"upto-{number:020}.json"


def logs(table: Path) -> Iterator[CommitLog]:
    """Yield the commit log of each query that wrote to a table."""
    folder = table / COMMITS
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        if path.is_dir():
            yield CommitLog(table, path.name)


@dataclass(frozen=True, slots=True)
class Attempt:
    """A folder with an attempt at a batch of a query. Its own run can no longer commit it once `is_dead`."""

    folder: Path
    query: str
    number: int
    is_dead: bool

    def kill(self) -> Path:
        """Rename the folder, unless it is dead already. Returns the new path. Raises FileNotFoundError."""
        if self.is_dead:
            return self.folder
        return self.folder.rename(self.folder.with_name(_DEAD + self.folder.name))


def attempt_folder(table: Path, batch: Batch) -> Path:
    """Return the path of a new folder for an attempt at a batch."""
    return table / ATTEMPTS / f"{batch.name}~{batch.number}~{uuid.uuid4().hex[:12]}"


def attempts(table: Path) -> list[Attempt]:
    """Return the attempts in a table's folder. Other files and folders there are left out."""
    folder = table / ATTEMPTS
    found = ((path, _ATTEMPT.fullmatch(path.name)) for path in (folder.iterdir() if folder.is_dir() else ()))
    return [
        Attempt(path, name["query"], int(name["number"]), name["dead"] is not None)
        for path, name in found
        if name
    ]


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON file. Raises FileNotFoundError, and OutsideError for a file of another kind or format."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise OutsideError(f"{path} is damaged: {error}") from error
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise OutsideError(f"{path} is not of format {FORMAT}, the only one that this version reads")
    return found


def write_durably(path: Path, text: str, *, replace: bool = True) -> bool:
    """Write a whole file and sync it. With `replace=False` return False if the file exists already."""
    written = path.with_name(f".{path.name}.{uuid.uuid4().hex[:12]}")
    try:
        with written.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        if replace:
            written.replace(path)
        else:
            try:
                os.link(written, path)
            except FileExistsError:
                return False
    finally:
        written.unlink(missing_ok=True)
    sync_folder(path.parent)
    return True
