"""The folder of `ottla user create --client-files`: all that the clients of a new user need, to copy to their machine.

DIR/NAME.password     the user's password
DIR/NAME.properties   options for Java's clients and tools, with the certificate of the authority
DIR/NAME.conf         options for librdkafka, which name DIR/ca.pem
DIR/profiles.json     a profile for `ottla` commands, with the certificate of the authority
DIR/ca.pem            the certificate of the authority, if the connection of the command names one
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ..arguments.installed_in import installed_folder
from ..connection.client_files import ClientFiles
from ..connection.profiles import check_name
from ..failures import CommandFailed, UsageError
from ..files import write_atomically
from ..nodes.settings import read_text
from ..terminal.text import note

OPTION: Final = "--client-files"
_CA_FILE: Final = "ca.pem"


@dataclass(frozen=True, slots=True)
class ClientFolder:
    """The folder for the files of a user's clients, and its path on the machine of the clients."""

    folder: Path
    installed: Path
    user: str

    @classmethod
    def requested(cls, arguments: argparse.Namespace, connection: Mapping[str, Any]) -> ClientFolder | None:
        """Return the folder that the options of a command name, None without the option.

        `connection` has the options of the administrator's client. Raises UsageError for a folder that has files, for a
        user whose name cannot be a file's, and for a connection without logins.
        """
        if arguments.client_files is None:
            if arguments.installed_in is not None:
                raise UsageError(f"--installed-in goes with {OPTION}")
            return None
        folder = arguments.client_files.absolute()
        _check_empty(folder)
        check_name(arguments.name)
        protocol = connection.get("security_protocol", "PLAINTEXT")
        if not protocol.startswith("SASL_"):
            raise UsageError(
                f"{OPTION}: the files get the address and the protocol of this connection, and no user logs in by "
                f"{protocol}. Connect by SASL_SSL"
            )
        return cls(folder, installed_folder(arguments.installed_in, folder), arguments.name)

    @contextmanager
    def written(self, connection: Mapping[str, Any], mechanism: str, password: str) -> Iterator[None]:
        """Write the files before the block, in which the cluster sets the password. Raises CommandFailed.

        If the cluster refuses, the files are removed. After other failures it may have the password, so they stay.
        """
        existed = self.folder.exists()
        try:
            self._write(connection, mechanism, password)
        except BaseException as error:
            self._remove(keeps_folder=existed)
            if isinstance(error, OSError):
                raise CommandFailed(f"cannot write in {self.folder}: {error.strerror or error}") from None
            raise
        try:
            yield
        except BaseException as error:
            from ..run_client import may_be_executed

            if may_be_executed(error):
                self._tell_doubt()
            else:
                self._remove(keeps_folder=existed)
            raise

    def _write(self, connection: Mapping[str, Any], mechanism: str, password: str) -> None:
        files = ClientFiles(self.folder, self.user)
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomically(files.password_file, password + "\n", mode=0o600)
        common = {
            "bootstrap.servers": connection["bootstrap_servers"],
            "security.protocol": connection["security_protocol"],
            "sasl.mechanism": mechanism,
            "sasl.username": self.user,
            "sasl.password": password,
        }
        authority = _authority(connection)
        if authority is None:
            files.write(common)
            return
        write_atomically(self.folder / _CA_FILE, authority, mode=0o600)
        location = str(self.installed / _CA_FILE)
        files.write(common | {"ssl.ca.pem": authority}, librdkafka=common | {"ssl.ca.location": location})

    def _remove(self, *, keeps_folder: bool) -> None:
        for file in (self.folder / _CA_FILE, *ClientFiles(self.folder, self.user).all()):
            with suppress(OSError):
                file.unlink(missing_ok=True)
        if not keeps_folder:
            with suppress(OSError):
                self.folder.rmdir()

    def _tell_doubt(self) -> None:
        file = shlex.quote(str(ClientFiles(self.folder, self.user).password_file))
        note(
            f"the cluster may have set the password of {self.user} before this failure, so {self.folder} keeps it;"
        )
        note(f"  'ottla user create {self.user} --password-file {file}' sets it again")

    def tell(self) -> None:
        """Print how clients use the files."""
        there = ClientFiles(self.installed, self.user)
        note(f"the files for the clients of {self.user} are in {self.folder}; on their machine:")
        note(f"  export OTTLA_CONFIG_DIR={shlex.quote(str(self.installed))}")
        note(f"  kcat -F {shlex.quote(str(there.librdkafka_file))} -L")
        note(f"  kafka-console-consumer.sh --consumer.config {shlex.quote(str(there.java_file))} ...")


def _check_empty(folder: Path) -> None:
    try:
        if any(folder.iterdir()):
            raise UsageError(f"{OPTION} {folder}: it has files already; give an empty or a new folder")
    except FileNotFoundError:
        return
    except OSError as error:
        raise UsageError(f"{OPTION} {folder}: {error.strerror}") from None


def _authority(connection: Mapping[str, Any]) -> str | None:
    """Return the certificates that the administrator's client trusts, in PEM; None for the trust of the system."""
    if (file := connection.get("ssl_cafile")) is not None:
        return read_text(Path(file))
    data: str | None = connection.get("ssl_cadata")
    return data
