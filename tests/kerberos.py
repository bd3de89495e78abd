"""A KDC for tests: MIT Kerberos on a free port of loopback, with two realms whose users and services are in one folder.

The second realm vouches for its users to the first. All hosts of `.test` belong to the first.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

REALM = "OTTLA.TEST"
OTHER_REALM = "OTHER.TEST"
START_S = 20.0
_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin"
"""Search path that includes Debian's folder for the KDC, which is not on a user's path."""
_PROGRAMS = {
    "krb5kdc": "krb5-kdc",
    "kdb5_util": "krb5-kdc",
    "kadmin.local": "krb5-admin-server",
    "kinit": "krb5-user",
}
"""Debian packages of the required programs, by program."""


def _missing() -> str:
    packages = sorted(
        {package for program, package in _PROGRAMS.items() if shutil.which(program, path=_PATH) is None}
    )
    try:
        import gssapi  # noqa: F401 - whether it can be loaded
    except (ImportError, OSError):
        packages.append("the Python package gssapi (with libkrb5-dev)")
    return ", ".join(packages)


needs_kerberos = pytest.mark.skipif(bool(_missing()), reason=f"needs {_missing()}")


@dataclass
class Kdc:
    """A realm with the files that its users and services need."""

    folder: Path
    port: int
    environment: Mapping[str, str]
    """Environment for processes that use the realm. The test process gets it, too."""
    process: subprocess.Popen[bytes] | None = None

    @property
    def configuration(self) -> Path:
        return self.folder / "krb5.conf"

    def add(self, principal: str, *, life: str = "1 day", realm: str = REALM) -> None:
        """Add a user or service with a random key."""
        self._admin(realm, "addprinc", "-randkey", "-maxlife", life, principal)

    def trust(self) -> None:
        """Let users of the other realm get tickets of this realm."""
        for realm in (REALM, OTHER_REALM):
            self._admin(realm, "addprinc", "-pw", "between realms", f"krbtgt/{REALM}@{OTHER_REALM}")

    def keytab(self, name: str, *principals: str, realm: str = REALM) -> Path:
        """Write a new file with new keys of these principals. Their keys in older files become invalid."""
        file = self.folder / f"new-{name}.keytab"
        file.unlink(missing_ok=True)
        self._admin(realm, "ktadd", "-k", str(file), *principals)
        return file.replace(self.folder / f"{name}.keytab")

    def ticket(self, name: str, *options: str) -> Path:
        """Return a credential cache with a ticket of a user, obtained with the keytab of that name."""
        cache = self.folder / f"{name}.tickets"
        argv = ["kinit", *options, "-k", "-t", str(self.folder / f"{name}.keytab"), "-c", str(cache), name]
        self._run(argv)
        return cache

    def start(self) -> None:
        """Start to answer requests."""
        with (self.folder / "log").open("ab") as log:
            argv = [_path("krb5kdc"), "-n", "-r", REALM, "-r", OTHER_REALM]
            self.process = subprocess.Popen(argv, env=self._own(), stdout=log, stderr=log)
        deadline = time.monotonic() + START_S
        while not self._answers():
            assert self.process.poll() is None, (self.folder / "log").read_text()
            assert time.monotonic() < deadline, "the KDC does not answer"
            time.sleep(0.02)

    def stop(self) -> None:
        """Stop answering requests."""
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(20)
            self.process = None

    def _answers(self) -> bool:
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", self.port)) == 0

    def _admin(self, realm: str, *question: str) -> None:
        done = self._run([_path("kadmin.local"), "-r", realm, *question])
        assert "rror" not in done.stderr, done.stderr

    def _run(self, argv: list[str]) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(argv, env=self._own(), capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, f"{argv}: {done.stdout}{done.stderr}"
        return done

    def _own(self) -> dict[str, str]:
        profile = str(self.folder / "kdc.conf")
        return {**os.environ, **self.environment, "KRB5_KDC_PROFILE": profile}


@contextmanager
def kdc(folder: Path, *, looks_up: bool = False) -> Iterator[Kdc]:
    """Run the KDC of a new realm while the block lasts; this process and its children use it meanwhile.

    `looks_up`: an address has the name by which this machine resolves it, as in Java.
    """
    with socket.socket() as chosen:
        chosen.bind(("127.0.0.1", 0))
        port = chosen.getsockname()[1]
    environment = {
        "KRB5_CONFIG": str(folder / "krb5.conf"),
        "KRB5CCNAME": str(folder / "nobody.tickets"),
        "KRB5RCACHEDIR": str(folder),
        "JAVA_TOOL_OPTIONS": f"-Djava.security.krb5.conf={folder / 'krb5.conf'}",
    }
    made = Kdc(folder, port, environment)
    made.configuration.write_text(
        _KRB5_CONF.format(realm=REALM, port=port, other=OTHER_REALM, looks_up=str(looks_up).lower())
    )
    (folder / "kdc.conf").write_text(
        _KDC_CONF.format(realm=REALM, other=OTHER_REALM, port=port, folder=folder)
    )
    for realm in (REALM, OTHER_REALM):
        made._run([_path("kdb5_util"), "create", "-s", "-r", realm, "-P", "master"])
    before = {name: os.environ.get(name) for name in environment}
    os.environ.update(environment)
    try:
        made.start()
        yield made
    finally:
        made.stop()
        for name, value in before.items():
            os.environ.pop(name, None) if value is None else os.environ.update({name: value})


def _path(program: str) -> str:
    return shutil.which(program, path=_PATH) or program


_KRB5_CONF = """
[libdefaults]
  default_realm = {realm}
  dns_lookup_kdc = false
  dns_lookup_realm = false
  dns_canonicalize_hostname = {looks_up}
  rdns = {looks_up}
  udp_preference_limit = 1
[realms]
  {realm} = {{
    kdc = 127.0.0.1:{port}
  }}
  {other} = {{
    kdc = 127.0.0.1:{port}
  }}
[domain_realm]
  .test = {realm}
"""
_KDC_CONF = """
[kdcdefaults]
  kdc_listen = 127.0.0.1:{port}
  kdc_tcp_listen = 127.0.0.1:{port}
[realms]
  {realm} = {{
    database_name = {folder}/database
    key_stash_file = {folder}/stash
    acl_file = {folder}/acl
  }}
  {other} = {{
    database_name = {folder}/other-database
    key_stash_file = {folder}/other-stash
    acl_file = {folder}/acl
  }}
"""
