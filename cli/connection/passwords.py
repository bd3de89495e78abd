"""Where a command gets a password from: a file, the environment, or the terminal; never from its arguments, which
everybody on the machine can see.
"""

from __future__ import annotations

import getpass
import os
import sys
from pathlib import Path

from ...client.foreign_names import Secret
from ..failures import CommandFailed, UsageError

_BYTES_MAX = 64 * 1024


def password_of(file: Path | None, variable: str, prompt: str, *, twice: bool = False) -> Secret:
    """From `file`, else from the environment, else asked for, `twice` if it is a new one.

    Raises CommandFailed and UsageError.
    """
    if file is not None:
        return password_in(file)
    if given := os.environ.get(variable):
        return Secret(given)
    if sys.stdin is None or not sys.stdin.isatty():
        raise UsageError(
            f"a password is needed: --password-file FILE or the environment variable {variable} gives it, "
            "or a terminal to ask at"
        )
    typed = getpass.getpass(f"{prompt}: ")
    if twice and getpass.getpass("once more: ") != typed:
        raise CommandFailed("the two are not the same; nothing was done")
    if not typed:
        raise CommandFailed("a password is not empty; nothing was done")
    return Secret(typed)


def password_in(file: Path) -> Secret:
    """The first line of a file. Raises CommandFailed."""
    try:
        with file.open("rb") as opened:
            text = opened.read(_BYTES_MAX).decode()
    except OSError as error:
        raise CommandFailed(f"--password-file: cannot read {file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise CommandFailed(f"--password-file: {file} is not a text file") from None
    password = text.split("\n", 1)[0].removesuffix("\r")
    if not password:
        raise CommandFailed(f"--password-file: the first line of {file} is empty")
    return Secret(password)
