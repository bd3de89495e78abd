"""Sources of passwords: a file, the environment or the terminal.

A password is never a command line argument, since every user of the machine can see arguments.
"""

from __future__ import annotations

import getpass
import os
import secrets
import sys
from pathlib import Path
from typing import Final

from ...client.foreign_names import Secret
from ..arguments.password_file import password_in
from ..failures import CommandFailed, UsageError

_NEW_PASSWORD_BYTES: Final = 24


def new_password() -> Secret:
    """Return a random password that can stand in any file of options."""
    return Secret(secrets.token_urlsafe(_NEW_PASSWORD_BYTES))


def password_of(file: Path | None, variable: str, prompt: str, *, twice: bool = False) -> Secret:
    """Return a password from `file`, else from the environment `variable`, else typed at a terminal after `prompt`.

    With `twice` it must be typed twice, as for a new password. Raises CommandFailed and UsageError.
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
    if twice and getpass.getpass("repeat the password: ") != typed:
        raise CommandFailed("the two passwords differ; nothing was done")
    if not typed:
        raise CommandFailed("the password is empty; nothing was done")
    return Secret(typed)
