"""The option `--installed-in` of commands that write files for another machine."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..failures import UsageError

_OPTION = "--installed-in"


def add_installed_in(options: argparse.ArgumentParser, written: str) -> None:
    """Add `--installed-in`; `written` is the option with the folder to which the command writes."""
    options.add_argument(
        _OPTION,
        type=Path,
        metavar="DIR",
        help="folder of the files on the machine that will use them, by which they name each other (default: "
        f"{written})",
    )


def installed_folder(given: Path | None, folder: Path) -> Path:
    """Return the folder by which the files name each other: `folder`, unless the option gives another.

    Raises UsageError for a relative path.
    """
    if given is None:
        return folder
    if not given.is_absolute():
        raise UsageError(f"{_OPTION} takes the whole path of a folder, such as /etc/ottla/tls, not {given}")
    return given
