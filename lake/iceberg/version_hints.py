"""Version hints of tables in folders: engines find a table's newest metadata by the folder's path, without a catalog.

The hint `metadata/version-hint.text` has a number N, and `vN.metadata.json` beside it is the metadata. That is the form
of Hadoop's tables, which Spark, DuckDB and pyiceberg read.
"""

from __future__ import annotations

import os
import re
import shutil
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

HINT: Final = "version-hint.text"
VERSIONS_KEPT: Final = 20
"""Versions that stay, for readers that have read an earlier hint."""
HINTED: Final = re.compile(r"v(\d+)((?:\.gz)?\.metadata\.json)")
_NUMBERED: Final = re.compile(r"(\d+)-[^/]*?((?:\.gz)?\.metadata\.json)")


def write_hint(metadata_location: str, *, is_new: bool = False) -> None:
    """Let the hint name this metadata, unless a later commit has written a hint. A table in an object store gets none.

    `is_new`: the table was created now, so versions of an earlier table in the folder go. Raises OSError.
    """
    parts = urlsplit(metadata_location)
    found = _NUMBERED.fullmatch(Path(parts.path).name)
    if parts.scheme not in ("", "file") or found is None:
        return
    metadata = Path(parts.path)
    folder, version = metadata.parent, int(found[1]) + 1  # Hadoop's first version is 1.
    if is_new:
        _remove(folder, lambda _: True)
    elif (hinted := read_hint(folder)) is not None and hinted >= version:
        return
    _replace(folder / f"v{version}{found[2]}", lambda temporary: _same_file(metadata, temporary))
    _replace(folder / HINT, lambda temporary: temporary.write_text(str(version)))
    _remove(folder, lambda number: number <= version - VERSIONS_KEPT)


def read_hint(folder: Path) -> int | None:
    """Return the version that a folder's hint names; None if it has no hint of this form. Raises OSError."""
    try:
        text = (folder / HINT).read_text()
    except FileNotFoundError:
        return None
    return int(text) if text.isdecimal() and len(text) < 20 else None


def _same_file(metadata: Path, link: Path) -> None:
    """Make a second name of a file, or a copy where the file system has no second names."""
    try:
        os.link(metadata, link)
    except OSError:
        shutil.copyfile(metadata, link)


def _replace(path: Path, write: Callable[[Path], object]) -> None:
    """Write a file so that readers see all of it, or the former."""
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        write(temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _remove(folder: Path, is_removed: Callable[[int], bool]) -> None:
    for path in folder.iterdir():
        found = HINTED.fullmatch(path.name)
        if found is not None and is_removed(int(found[1])):
            with suppress(FileNotFoundError):  # Another process removes it as well.
                path.unlink()
