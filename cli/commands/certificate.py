"""`ottla security authority` and `ottla security certificate`: a cluster's authority, and certificates of its nodes and
clients."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ..arguments.certificate_names import AUTHORITY_DAYS, DAYS, NAME_CHARACTERS, checked_host, checked_name
from ..arguments.installed_in import add_installed_in, installed_folder
from ..arguments.options import Actions, add_output
from ..connection.client_files import java_options
from ..failures import CommandFailed, UsageError
from ..files import write_atomically
from ..nodes.java_properties import written
from ..terminal.output import print_json, print_table
from ..terminal.text import note

if TYPE_CHECKING:
    from ...network.tls.issuing import CertificateOwner
    from ..certificate_authority import Authority

_DAYS_MAX: Final = 36_500
_PRIVATE, _PUBLIC = 0o600, 0o644
_QUORUM_TLS: Final = (
    "# TLS on the port of the quorum as well, once all nodes have these lines (docs/OPERATIONS.md):\n"
)


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file that a command writes: its content, its access rights, and words about the content."""

    path: Path
    text: str
    mode: int
    holds: str
    expires: datetime | None = None


def add_certificate_actions(actions: Actions) -> None:
    """Add the actions `authority` and `certificate` to a command."""
    authority = actions.add(
        "authority",
        "certificate:make_authority",
        "Make the certificate authority of a cluster: the certificate that clients trust, and its private key.",
        "  ottla security authority authority --name production",
    )
    authority.add_argument(
        "folder", type=Path, metavar="DIR", help="new or empty folder for ca.pem and ca.key"
    )
    authority.add_argument(
        "--name", default="ottla", metavar="CLUSTER", help="name in the certificate (ottla)"
    )
    _add_days(authority, AUTHORITY_DAYS)
    add_output(authority, "-o")
    certificate = actions.add(
        "certificate",
        "certificate:issue_certificate",
        "Issue a certificate of a node or a client, with a new private key, and the settings lines that name them.",
        "  ottla security certificate broker-1 --host kafka1.example.com --host 10.0.0.1 --ca authority --into tls\n"
        "  ottla security certificate broker-1 --host 10.0.0.1 --ca authority --into tls --installed-in /etc/ottla\n"
        "  ottla security certificate ann --client --ca ottla-data/tls --into ann",
    )
    certificate.add_argument(
        "name", metavar="NAME", help="common name of the certificate, and name of the files"
    )
    owner = certificate.add_mutually_exclusive_group(required=True)
    owner.add_argument(
        "--host",
        action="append",
        metavar="HOST",
        help="name or address by which others reach the node; may be repeated. *.example.com stands for any name there",
    )
    owner.add_argument(
        "--client", action="store_true", help="for a client of a listener with ssl.client.auth=required"
    )
    certificate.add_argument(
        "--ca",
        type=Path,
        required=True,
        metavar="DIR",
        help="folder with ca.pem and ca.key, of 'ottla security authority', or DIR/tls of 'ottla up --secure'",
    )
    certificate.add_argument("--into", type=Path, required=True, metavar="DIR", help="folder for the files")
    add_installed_in(certificate, "--into")
    _add_days(certificate, DAYS)
    certificate.add_argument(
        "--replace", action="store_true", help="replace the files of an earlier certificate"
    )
    add_output(certificate, "-o")


def make_authority(arguments: argparse.Namespace) -> None:
    """Create a certificate authority in a folder without certificates."""
    from ..certificate_authority import CA_FILE, KEY_FILE, create_authority

    folder = arguments.folder.absolute()
    days = _days(arguments)
    for file in (folder / CA_FILE, folder / KEY_FILE):
        if file.exists():
            raise CommandFailed(
                f"{file} exists already, and a new authority would not be trusted by its clients"
            )
    try:
        authority = create_authority(folder, arguments.name, datetime.now(UTC), days)
    except OSError as error:
        raise _unwritable(folder, error) from None
    ca = WrittenFile(
        folder / CA_FILE,
        authority.text,
        _PRIVATE,
        "certificate, which clients and nodes trust",
        authority.expires,
    )
    key = WrittenFile(folder / KEY_FILE, "", _PRIVATE, "private key: keep it away from the nodes")
    _print(arguments, [ca, key])


def issue_certificate(arguments: argparse.Namespace) -> None:
    """Issue a certificate, and write it beside the settings lines with its path."""
    from ...network.tls.issuing import CertificateOwner
    from ..certificate_authority import CA_FILE, open_authority

    hosts = tuple(dict.fromkeys(checked_host(host, "--host") for host in arguments.host or ()))
    owner = CertificateOwner(checked_name(arguments.name), hosts)
    days = _days(arguments)
    now = datetime.now(UTC)
    ca = arguments.ca.absolute()
    if not (ca / CA_FILE).exists():
        raise CommandFailed(f"{ca / CA_FILE} is missing: 'ottla security authority DIR' makes an authority")
    authority = open_authority(ca, now)
    _check_days(authority, now, days, is_given=arguments.days is not None)
    folder = arguments.into.absolute()
    installed = installed_folder(arguments.installed_in, folder)
    _check_free(folder, owner, authority, replaces=arguments.replace)
    files = list(_files(authority, owner, now, days, folder, installed))
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for file in files:
            write_atomically(file.path, file.text, mode=file.mode)
    except OSError as error:
        raise _unwritable(folder, error) from None
    _print(arguments, files)


def _files(
    authority: Authority, owner: CertificateOwner, now: datetime, days: int, folder: Path, installed: Path
) -> Iterator[WrittenFile]:
    """Yield the files of a new certificate in `folder`; settings name them in the folder `installed`."""
    from ..certificate_authority import CA_FILE

    issued = authority.issue(owner, now, days)
    reached = f"for {', '.join(owner.hosts)}" if owner.hosts else f"of User:{owner.principal}"
    yield WrittenFile(
        owner.file(folder), issued.text, _PRIVATE, f"private key and certificate {reached}", issued.expires
    )
    ca = folder / CA_FILE
    yield WrittenFile(ca, authority.text, _mode_of(ca), "certificate of the authority", authority.expires)
    key_file, ca_file = str(owner.file(installed)), str(installed / CA_FILE)
    beside = folder / owner.name
    if owner.hosts:
        yield from _node_settings(beside, key_file, ca_file)
    else:
        yield from _client_settings(beside, key_file, ca_file)


def _node_settings(beside: Path, key_file: str, ca_file: str) -> Iterator[WrittenFile]:
    from ...network.tls.issuing import NODE_UNIT

    stores = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": key_file,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": ca_file,
    }
    quorum = {
        "listener.security.protocol.map": "CONTROLLER:SSL,CLIENTS:SASL_SSL",
        "listener.name.controller.ssl.principal.mapping.rules": f"RULE:^CN=[{NAME_CHARACTERS}]+,OU={NODE_UNIT}$/node/",
        "ottla.node.principals": "User:node",
    }
    for suffix, text_of in ((".properties", written), (".yaml", _yaml)):
        commented = "".join(f"#{line}\n" for line in text_of(quorum).splitlines())
        text = text_of(stores) + _QUORUM_TLS + commented
        yield WrittenFile(
            beside.with_name(beside.name + suffix),
            text,
            _PUBLIC,
            f"settings lines for a {suffix} file of a node",
        )


def _client_settings(beside: Path, key_file: str, ca_file: str) -> Iterator[WrittenFile]:
    options = {
        "security.protocol": "SSL",
        "ssl.ca.location": ca_file,
        "ssl.certificate.location": key_file,
        "ssl.key.location": key_file,
    }
    librdkafka = "".join(f"{key}={value}\n" for key, value in options.items())
    for suffix, text, client in (
        (".properties", written(java_options(options)), "Java's clients"),
        (".conf", librdkafka, "librdkafka and kcat"),
    ):
        yield WrittenFile(beside.with_name(beside.name + suffix), text, _PUBLIC, f"options of {client}")


def _yaml(settings: Mapping[str, str]) -> str:
    import yaml

    text: str = yaml.safe_dump(dict(settings), sort_keys=False, width=1000)
    return text


def _check_free(folder: Path, owner: CertificateOwner, authority: Authority, *, replaces: bool) -> None:
    """Raise CommandFailed for a file that would be lost without --replace: a private key, or another authority."""
    from ..certificate_authority import CA_FILE

    if replaces:
        return
    for suffix in (".pem", ".properties", *((".yaml",) if owner.hosts else (".conf",))):
        file = folder / f"{owner.name}{suffix}"
        if file.exists():
            raise CommandFailed(f"{file} exists already; --replace replaces it, and makes a new private key")
    ca = folder / CA_FILE
    if ca.exists() and ca.read_text(encoding="utf-8", errors="replace") != authority.text:
        raise CommandFailed(f"{ca} is of another authority; --replace replaces it. Or give another --into")


def _mode_of(file: Path) -> int:
    """Return the access rights of a public file. An existing file keeps its rights."""
    return file.stat().st_mode & 0o777 if file.exists() else _PUBLIC


def _add_days(options: argparse.ArgumentParser, default: int) -> None:
    options.set_defaults(default_days=default)
    options.add_argument(
        "--days", type=int, metavar="N", help=f"days until the certificate expires ({default})"
    )


def _days(arguments: argparse.Namespace) -> int:
    days: int = arguments.default_days if arguments.days is None else arguments.days
    if not 1 <= days <= _DAYS_MAX:
        raise UsageError(f"--days takes 1 to {_DAYS_MAX}, not {days}")
    return days


def _check_days(authority: Authority, now: datetime, days: int, *, is_given: bool) -> None:
    """Check that the authority is valid for as many days as the certificate.

    Raises UsageError for too many days on the command line. For the default number, prints a note.
    """
    left = -((now - authority.expires) // timedelta(days=1))
    if days <= left:
        return
    ends = f"the certificate of the authority expires on {authority.expires:%Y-%m-%d}, in {left} days"
    if is_given:
        raise UsageError(f"--days {days}: {ends}, and no certificate outlives it")
    note(f"{ends}, and so does this certificate")


def _unwritable(folder: Path, error: OSError) -> CommandFailed:
    return CommandFailed(f"cannot write in {folder}: {error.strerror or error}")


def _print(arguments: argparse.Namespace, files: list[WrittenFile]) -> None:
    if arguments.output == "json":
        print_json(
            [
                {
                    "file": str(file.path),
                    "holds": file.holds,
                    "mode": f"{file.mode:04o}",
                    "expires": None if file.expires is None else file.expires.strftime("%Y-%m-%dT%H:%M:%SZ"),
                }
                for file in files
            ]
        )
        return
    rows = [
        (
            os.path.relpath(file.path) if file.path.is_relative_to(Path.cwd()) else file.path,
            file.holds,
            f"{file.mode:04o}",
            "" if file.expires is None else f"{file.expires:%Y-%m-%d}",
        )
        for file in files
    ]
    print_table(("FILE", "HOLDS", "MODE", "EXPIRES"), rows)
