"""A real PostgreSQL server for tests: in a temporary folder, on a unix socket and a free port of loopback."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest

_PLACES = "/usr/lib/postgresql"


@cache
def binaries() -> Path | None:
    """Return the folder of `initdb` and `postgres`, which Debian keeps off the path, for each version."""
    versions = sorted(Path(_PLACES).glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    if versions:
        return versions[-1].parent
    found = shutil.which("initdb")
    return Path(found).parent if found else None


def need_server() -> Path:
    """Return the folder of the server's programs; skip the test without a server, and fail in CI, whose script installs
    one.
    """
    found = binaries()
    if found is None or (os.geteuid() == 0 and "postgres" not in [user.pw_name for user in pwd.getpwall()]):
        reason = "PostgreSQL's server is not installed (on Debian: apt-get install postgresql)"
        assert not os.environ.get("CI"), reason
        pytest.skip(reason)
    return found


class Server:
    """A PostgreSQL server. A test run by root starts it as `postgres`, since it refuses to run as root."""

    def __init__(self, folder: Path, found: Path, settings: Sequence[str] = ()) -> None:
        self._folder = folder
        self._binaries = found
        self._as = (
            ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"] if os.geteuid() == 0 else []
        )
        self.port = 0
        """The port, from `create` on."""
        given = (
            "listen_addresses=127.0.0.1",
            "fsync=off",
            "max_connections=40",
            *settings,
        )
        self._settings = f"-k {folder} " + " ".join(f"-c {setting}" for setting in given)

    def create(self) -> None:
        """Create the server's files."""
        self._run(
            "initdb",
            "-D",
            str(self._data),
            "-U",
            "ottla",
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--no-sync",
            "--locale=C",
        )
        # Chosen late: other programs take ports while initdb works.
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = int(free.getsockname()[1])

    def start(self) -> None:
        """Start, and return once it takes connections."""
        self._control("start", "-o", f"-p {self.port} {self._settings}", "-l", str(self._folder / "log"))

    def crash(self) -> None:
        """Stop at once, without a checkpoint: on its next start it recovers, and unlogged tables are empty."""
        self._control("stop", "-m", "immediate")

    def stop(self) -> None:
        """Stop, and close all connections."""
        self._control("stop", "-m", "fast")

    def connect(self, application: str = "ottla") -> Any:
        """Return a connection of psycopg."""
        import psycopg

        return psycopg.connect(self.address, application_name=application)

    @property
    def address(self) -> str:
        """Address in libpq's form."""
        return f"host=127.0.0.1 port={self.port} user=ottla dbname=postgres connect_timeout=10"

    def ask(self, statement: str) -> list[tuple[Any, ...]]:
        """Return the rows of an answer."""
        with self.connect("test") as connection:
            cursor = connection.execute(statement)
            return list(cursor.fetchall()) if cursor.description else []

    @property
    def _data(self) -> Path:
        return self._folder / "data"

    def _control(self, what: str, *arguments: str) -> None:
        self._run("pg_ctl", what, "-w", "-s", "-D", str(self._data), *arguments)

    def _run(self, program: str, *arguments: str) -> None:
        command = [*self._as, str(self._binaries / program), *arguments]
        with tempfile.TemporaryFile("w+") as output:  # no pipe: the server would keep it open
            done = subprocess.run(command, stdout=output, stderr=output, cwd="/", check=False)
            output.seek(0)
            assert done.returncode == 0, f"{program}: {output.read()}"


@contextmanager
def running_server(*settings: str) -> Iterator[Server]:
    """Run a server in a folder that its user can enter. `settings` are additional ones, such as `wal_level=logical`."""
    found = need_server()
    with tempfile.TemporaryDirectory(prefix="ottla-postgresql-", dir="/tmp") as name:
        folder = Path(name)
        if os.geteuid() == 0:
            shutil.chown(folder, "postgres", "postgres")
        server = Server(folder, found, settings)
        server.create()
        server.start()
        try:
            yield server
        finally:
            server.stop()
