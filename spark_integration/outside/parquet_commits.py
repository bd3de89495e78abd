"""The log of commits of a table of Parquet files: the files that count, and the progress of each query.

TABLE/k=v/QUERY-BATCH-....parquet     data files; a file counts if a commit names it
TABLE/_commits/table.json             the columns, and those that folders are named after; written once
TABLE/_commits/QUERY/BATCH.json       a commit: the files that a batch of a query added
TABLE/_commits/QUERY/upto-BATCH.json  a summary of the query's commits up to this batch; derived, for quick reading
TABLE/_attempts/QUERY~BATCH~ID/       an unfinished batch: its files, and later the planned commit
TABLE/_attempts/dead~QUERY~BATCH~ID/  the same, while a later run removes it

A commit is atomic: its file is written and synced under another name, and link(2) gives it its own name, which fails if
another run's commit of the batch exists. So `LocalCommits` needs a file system with POSIX links and renames.
`hadoop_store` has the commits of a table in another store.
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
from typing import Any, Final, Protocol

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
    """A data file with its path relative to the table's folder. `rows` is None where Spark's own writer has written."""

    path: str
    rows: int | None
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
        return cls.of(read_json(path), path)

    @classmethod
    def of(cls, found: dict[str, Any], path: object) -> Commit:
        """Return the commit in the JSON of a file, `path`. Raises OutsideError if it is not a commit."""
        try:
            files = [DataFile(**file) for file in found["files"]]
            return cls(Kept(**found["kept"]), files)
        except (KeyError, TypeError) as error:
            raise OutsideError(f"{path} is not a commit: {error!r}") from error


class CommitFolder(Protocol):
    """The folder with the commits of one query, in any store."""

    def names(self) -> list[str]:
        """Return the names of all files; none if there is no folder."""

    def read(self, name: str) -> dict[str, Any]:
        """Read a JSON file. Raises FileNotFoundError, and OutsideError for a file of another kind or format."""

    def publish(self, name: str, text: str, written: Path | str) -> bool:
        """Create the file as a whole, in one step. Returns False if it exists. `written` is a path in the table that
        may have the text already, or may receive it before that step.
        """

    def summarize(self, name: str, text: str, written: Path | str) -> None:
        """Create a summary as a whole. An existing one has the same text."""

    def remove(self, name: str) -> None:
        """Delete a file, or do nothing if there is no such file."""


class LocalCommits:
    """The commits of a query in a folder of a mounted file system."""

    def __init__(self, table: Path, query: str) -> None:
        self._folder = table / COMMITS / query

    def names(self) -> list[str]:
        """Return the names of all files; none if there is no folder."""
        return os.listdir(self._folder) if self._folder.is_dir() else []

    def read(self, name: str) -> dict[str, Any]:
        """Read a JSON file. Raises FileNotFoundError and OutsideError."""
        return read_json(self._folder / name)

    def publish(self, name: str, text: str, written: Path | str) -> bool:
        """Link the file `written`, which is synced and has the text. Returns False if the name exists."""
        self._folder.mkdir(parents=True, exist_ok=True)
        sync_folder(self._folder.parent)
        try:
            os.link(written, self._folder / name)
        except FileExistsError:
            return False
        sync_folder(self._folder)
        return True

    def summarize(self, name: str, text: str, written: Path | str) -> None:
        """Write a summary durably."""
        write_durably(self._folder / name, text)

    def remove(self, name: str) -> None:
        """Delete a file, or do nothing if there is no such file."""
        (self._folder / name).unlink(missing_ok=True)


class CommitLog:
    """The commits of one query."""

    def __init__(self, folder: CommitFolder) -> None:
        self._folder = folder

    def last(self) -> Commit | None:
        """Return the newest commit; None before the first."""
        while True:
            commits, summaries = self._numbers()
            newest = max([*commits, *summaries], default=None)
            if newest is None:
                return None
            with suppress(FileNotFoundError):  # a summary has replaced it meanwhile
                return self._read(_commit(newest) if newest in commits else _summary(newest))

    def files(self) -> list[DataFile]:
        """Return all data files that commits of the query name, the files that belong to the table."""
        while True:
            with suppress(FileNotFoundError):
                return self._read_files()

    def counts(self, planned: Commit) -> bool:
        """Return whether the commit that an attempt has planned was made."""
        try:
            made = self._read(_commit(planned.kept.number))
        except FileNotFoundError:
            return bool(planned.files) and planned.files[0] in self.files()
        return made == planned

    def add(self, commit: Commit, written: Path | str) -> None:
        """Add the commit to the log, so that its files belong to the table. `written`: see `CommitFolder.publish`.
        Raises QueryReplaced if another run has committed the batch.
        """
        published = self._folder.publish(_commit(commit.kept.number), commit.to_json(), written)
        if not published and not self.counts(commit):  # a store may have lost the answer to the first attempt
            raise QueryReplaced(
                f"batch {commit.kept.number} was committed by another run meanwhile: two may not run at once"
            )

    def sum_up(self, commit: Commit, written: Path | str) -> None:
        """Write a summary once SUMMARY_EVERY commits follow the last; delete the commits that the last one covers."""
        commits, summaries = self._numbers()
        latest = max(summaries, default=-1)
        if sum(number > latest for number in commits) < SUMMARY_EVERY:
            return
        text = Commit(commit.kept, self._read_files()).to_json()
        self._folder.summarize(_summary(commit.kept.number), text, written)
        for number in commits:
            if number <= latest:
                self._folder.remove(_commit(number))
        for number in summaries:
            if number < latest:
                self._folder.remove(_summary(number))

    def _read(self, name: str) -> Commit:
        return Commit.of(self._folder.read(name), name)

    def _read_files(self) -> list[DataFile]:
        commits, summaries = self._numbers()
        latest = max(summaries, default=-1)
        found = self._read(_summary(latest)).files if summaries else []
        for number in sorted(commits):
            if number > latest:
                found += self._read(_commit(number)).files
        return found

    def _numbers(self) -> tuple[set[int], set[int]]:
        commits, summaries = set(), set()
        for name in self._folder.names():
            stem = name.removesuffix(".json")
            if stem == name:
                continue
            if stem.isdigit():
                commits.add(int(stem))
            elif stem.startswith("upto-"):
                summaries.add(int(stem.removeprefix("upto-")))
        return commits, summaries


def _commit(number: int) -> str:
    return f"{number:020}.json"


def _summary(number: int) -> str:
    return f"upto-{number:020}.json"


def logs(table: Path) -> Iterator[CommitLog]:
    """Yield the commit log of each query that wrote to a table."""
    folder = table / COMMITS
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        if path.is_dir():
            yield CommitLog(LocalCommits(table, path.name))


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
    return parse_json(path.read_bytes(), path)


def parse_json(content: bytes, path: object) -> dict[str, Any]:
    """Return the JSON in a file, `path`. Raises OutsideError for a file of another kind or format."""
    try:
        found = json.loads(content)
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
