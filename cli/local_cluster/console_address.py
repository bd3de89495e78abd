"""The address and the token of a local cluster's console, which stay the same from run to run, so that bookmarks work.

The folder of the cluster keeps both in files that only their owner may read.
"""

from __future__ import annotations

import errno
import json
import secrets
import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ...console.security import ListenAddress, door_of, listen_address
from ..failures import CommandFailed, UsageError
from ..files import write_atomically
from ..terminal.text import note
from .layout import CONSOLE_FILES
from .ports import HOST, free_ports

CONSOLE_LISTEN_OPTION: Final = "--console-listen"
_PATIENCE_S: Final = 2.0
"""Seconds for which the port may still belong to the console of the previous run."""
_LOOK_AGAIN_S: Final = 0.05
_FOR_THE_OWNER: Final = 0o600


@dataclass(frozen=True, slots=True)
class ConsoleAddress:
    """An address of the console, with its port, and whether the user chose it."""

    listen: ListenAddress
    is_chosen: bool

    def __str__(self) -> str:
        return self.listen.in_url(self.listen.port)


def console_address(directory: Path, asked: str | None, reserved: list[socket.socket]) -> ConsoleAddress:
    """Return the address for the console of the cluster in `directory`, and keep it there: the address that is `asked`
    for, or else the address of the previous run, or else a free port on loopback. `reserved` gets the reservation of a
    new port.

    If the port of the previous run is in use, the console gets another port, unless the user chose the port. Raises
    UsageError for a malformed address, and CommandFailed for an unusable address that the user chose.
    """
    file = directory / CONSOLE_FILES[0]
    wanted = _kept(file) if asked is None else _asked(asked)
    if wanted is None:
        wanted = _with_free_port(HOST, reserved)
    elif not wanted.listen.port:
        wanted = _with_free_port(wanted.listen.host, reserved)
    elif (problem := _problem(wanted.listen)) is not None:
        if wanted.is_chosen:
            raise CommandFailed(
                f"the console cannot listen at {wanted}: {problem}. {CONSOLE_LISTEN_OPTION} names another"
            )
        note(f"ottla up: {wanted}, the console's address of the last run, is in use: it gets another port")
        wanted = _with_free_port(wanted.listen.host, reserved)
    kept = {"listen": str(wanted), "is_chosen": wanted.is_chosen}
    write_atomically(file, json.dumps(kept) + "\n", mode=_FOR_THE_OWNER)
    return wanted


def token_file(directory: Path) -> Path:
    """Return the file with the token of the console of the cluster in `directory`; it is made once."""
    file = directory / CONSOLE_FILES[1]
    if not file.exists():
        write_atomically(file, secrets.token_urlsafe(24) + "\n", mode=_FOR_THE_OWNER)
    return file


def _asked(text: str) -> ConsoleAddress:
    try:
        listen = listen_address(text)
        door_of(listen, token="0" * 32)  # An address that browsers cannot name is refused before nodes start.
    except ValueError as error:
        raise UsageError(f"{CONSOLE_LISTEN_OPTION}: {error}") from None
    return ConsoleAddress(listen, is_chosen=listen.port != 0)


def _kept(file: Path) -> ConsoleAddress | None:
    try:
        kept = json.loads(file.read_text())
        return ConsoleAddress(listen_address(kept["listen"]), bool(kept["is_chosen"]))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CommandFailed(f"cannot use {file}: {error}") from None


def _with_free_port(host: str, reserved: list[socket.socket]) -> ConsoleAddress:
    """Return the address with a free port, which no other `ottla up` takes before the sockets in `reserved` close."""
    if host == HOST:
        ports = free_ports(reserved)
        port = next(ports)
        ports.close()
    else:
        try:
            with ListenAddress(host, 0).bound() as probe:
                port = probe.getsockname()[1]
        except OSError as error:
            raise CommandFailed(
                f"the console cannot listen at {host}: {error.strerror or error}. {CONSOLE_LISTEN_OPTION} names another"
            ) from None
    return ConsoleAddress(ListenAddress(host, port), is_chosen=False)


def _problem(listen: ListenAddress) -> str | None:
    """Return the reason why nothing can listen at an address; None if it can, or can once _PATIENCE_S have passed."""
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        try:
            listen.bound().close()
            return None
        except OSError as error:
            if error.errno != errno.EADDRINUSE or time.monotonic() >= deadline:
                return error.strerror or str(error)
        time.sleep(_LOOK_AGAIN_S)
