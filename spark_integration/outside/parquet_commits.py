"""The log of commits of a table of Parquet files: which files count, and how far each query is.

TABLE/k=v/QUERY-BATCH-....parquet     files; one counts if a commit names it
TABLE/_commits/table.json             the columns, and by which of them files are in folders; written once
TABLE/_commits/QUERY/BATCH.json       a commit: what one batch of one query added
TABLE/_commits/QUERY/upto-BATCH.json  all commits of the query up to this batch in one; derived, for quick reading
TABLE/_attempts/QUERY~BATCH~ID/       a batch on its way: files, and later the commit that is planned

A commit is there or not: its file is written and synced under another name, and gets its own by link(2), which fails if
somebody else's commit of the batch is there. So all of it needs a file system that has POSIX links and renames.
"""

from __future__ import annotations

import json
import os
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
"""So many commits are read again at most, one file each."""
COMMITS: Final = "_commits"
ATTEMPTS: Final = "_attempts"


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file by its path from the table's folder."""

    path: str
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Commit:
    """What a batch added, and who wrote it; in a summary what all batches did, and who wrote the last."""

    kept: Kept
    files: list[DataFile]

    def to_json(self) -> str:
        """Of the file."""
        return json.dumps({"format": FORMAT, **asdict(self)})

    @classmethod
    def read(cls, path: Path) -> Commit:
        """Raises FileNotFoundError, or OutsideError for what is no commit."""
        found = read_json(path)
        try:
            files = [DataFile(**one) for one in found["files"]]
            return cls(Kept(**found["kept"]), files)
        except (KeyError, TypeError) as error:
            raise OutsideError(f"{path} is not a commit: {error!r}") from error


class CommitLog:
    """The commits of one query."""

    def __init__(self, table: Path, query: str) -> None:
        self._folder = table / COMMITS / query

    def last(self) -> Commit | None:
        """The newest commit, None before the first."""
        while True:
            commits, summaries = self._numbers()
            newest = max([*commits, *summaries], default=None)
            if newest is None:
                return None
            with suppress(FileNotFoundError):  # summed up meanwhile
                return Commit.read(self._commit(newest) if newest in commits else self._summary(newest))

    def files(self) -> list[DataFile]:
        """All that count."""
        while True:
            with suppress(FileNotFoundError):
                return self._read_files()

    def counts(self, planned: Commit) -> bool:
        """Whether a planned commit was made."""
        try:
            made = Commit.read(self._commit(planned.kept.number))
        except FileNotFoundError:
            return bool(planned.files) and planned.files[0] in self.files()
        return made == planned

    def add(self, commit: Commit, written: Path) -> None:
        """Make it count. `written` has its content, synced. Raises QueryReplaced if the batch is committed."""
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
        """After a commit: once in a while put all into one file, and drop what the summary before that one has."""
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
    """Of all queries that wrote to a table."""
    folder = table / COMMITS
    for one in sorted(folder.iterdir()) if folder.is_dir() else []:
        if one.is_dir():
            yield CommitLog(table, one.name)


def attempt_folder(table: Path, batch: Batch) -> Path:
    """A new one."""
    return table / ATTEMPTS / f"{batch.name}~{batch.number}~{uuid.uuid4().hex[:12]}"


def read_json(path: Path) -> dict[str, Any]:
    """Raises FileNotFoundError, or OutsideError for a file of another kind or format."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise OutsideError(f"{path} is damaged: {error}") from error
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise OutsideError(f"{path} is not of format {FORMAT}, the only one that this version reads")
    return found


def write_durably(path: Path, text: str, *, replace: bool = True) -> bool:
    """Write a file as a whole, synced. Without `replace` False is returned if it is there already."""
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
