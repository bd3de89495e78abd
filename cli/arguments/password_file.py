"""Passwords read from files."""

from __future__ import annotations

from pathlib import Path

from ...client.foreign_names import Secret
from ..failures import CommandFailed

_BYTES_MAX = 64 * 1024


def password_in(file: Path, option: str = "--password-file") -> Secret:
    """Return the password in the first line of a file.

    Raises CommandFailed, which names the `option` that gave the file.
    """
    try:
        with file.open("rb") as opened:
            text = opened.read(_BYTES_MAX).decode()
    except OSError as error:
        raise CommandFailed(f"{option}: cannot read {file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise CommandFailed(f"{option}: {file} is not a text file") from None
    password = text.split("\n", 1)[0].removesuffix("\r")
    if not password:
        raise CommandFailed(f"{option}: the first line of {file} is empty")
    return Secret(password)
