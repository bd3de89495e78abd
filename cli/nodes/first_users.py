"""The users that a cluster has from its formation: `ottla quorum --add-scram` (KIP-900)."""

from __future__ import annotations

import base64
import binascii
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ...protocol.credentials.scram import (
    DEFAULT_ITERATIONS,
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    SALT_BYTES,
    SCRAM_MECHANISMS,
    ScramCredential,
    ScramMechanism,
)
from ...protocol.nearest import nearest
from ...protocol.session.node_secrets import Secrets
from ..arguments.password_file import password_in
from ..failures import UsageError

if TYPE_CHECKING:
    from ...protocol.messages.user_commands import ScramCredentialChange

EXAMPLE: Final = "SCRAM-SHA-512=[name=admin,password-file=FILE]"
_OPTION: Final = "--add-scram"
_FORM: Final = re.compile(r"([^=\[\]]+)=\[(.*)\]")
_PART: Final = re.compile(r'([a-z-]+)=("[^"]*"|[^,"]*)(?:,|$)')
_PARTS: Final = ("name", "password-file", "iterations", "salt", "saltedpassword")


def first_users(words: Iterable[str], secrets: Secrets) -> tuple[ScramCredentialChange, ...]:
    """Parse the `--add-scram` arguments into credentials as the quorum stores them, sealed under the cluster's secret.

    Raises UsageError and CommandFailed.
    """
    found: dict[tuple[str, int], ScramCredentialChange] = {}
    for word in words:
        name, mechanism, credential = parse_first_user(word)
        key = (name, mechanism.code)
        if key in found:
            raise UsageError(f"{_OPTION} gives {name} two passwords for {mechanism.name}")
        found[key] = sealed_change(secrets, name, mechanism, credential)
    return tuple(found.values())


def is_formed(folder: Path) -> bool:
    """Return whether the folder of a quorum node belongs to a cluster that has been formed, with its first users.

    Raises CorruptFile for a damaged folder.
    """
    from ...metadata_quorum.raft import disk, formation

    found = formation.load(disk.Directory(folder)) if folder.is_dir() else None
    return found is not None and found.formed


def sealed_change(
    secrets: Secrets, name: str, mechanism: ScramMechanism, credential: ScramCredential
) -> ScramCredentialChange:
    """Return the change that stores a user's SCRAM credential in the quorum, sealed under the cluster's secret."""
    from ...dataplane.security.sasl.scram import sealed_credential
    from ...dataplane.security.sealing import Sealer
    from ...protocol.messages.user_commands import ScramCredentialChange

    sealed = sealed_credential(Sealer(secrets.accepted), (name, mechanism.code), credential)
    return ScramCredentialChange(
        name=name,
        mechanism=mechanism.code,
        salt=sealed.salt,
        sealed_keys=sealed.sealed_keys,
        iterations=sealed.iterations,
    )


def parse_first_user(word: str) -> tuple[str, ScramMechanism, ScramCredential]:
    """Parse an `--add-scram` argument, `MECHANISM=[name=NAME,password-file=FILE]`.

    Raises UsageError, which shows no secret, and CommandFailed.
    """
    form = _FORM.fullmatch(word.strip())
    if form is None:
        raise UsageError(f"{_OPTION} takes {EXAMPLE}")
    mechanism = SCRAM_MECHANISMS.get(form[1].strip())
    if mechanism is None:
        raise UsageError(f"{_OPTION}: no mechanism {form[1]!r}; there are {', '.join(SCRAM_MECHANISMS)}")
    parts = dict(_parts(form[2]))
    name = parts.get("name", "")
    if not name:
        raise UsageError(f"{_OPTION} needs name=NAME, as in {EXAMPLE}")
    iterations = _iterations(parts.get("iterations", str(DEFAULT_ITERATIONS)))
    given = [key for key in ("password-file", "saltedpassword") if key in parts]
    if len(given) != 1:
        what = "both of them are given" if given else "neither is given"
        raise UsageError(f"{_OPTION} of {name} needs password-file or saltedpassword; {what}")
    salt = _decoded(parts, "salt") if "salt" in parts else os.urandom(SALT_BYTES)
    if "password-file" in parts:
        password = password_in(Path(parts["password-file"]), _OPTION)
        return name, mechanism, ScramCredential.of_password(mechanism, password, salt, iterations)
    if "salt" not in parts:
        raise UsageError(f"{_OPTION} of {name}: saltedpassword needs the salt that it was hashed with")
    salted = _decoded(parts, "saltedpassword")
    if len(salted) != mechanism.digest_bytes:
        raise UsageError(
            f"{_OPTION} of {name}: saltedpassword has {len(salted)} bytes, that of {mechanism.name} has "
            f"{mechanism.digest_bytes}"
        )
    return name, mechanism, ScramCredential.of_salted_password(mechanism, salted, salt, iterations)


def _parts(text: str) -> Iterator[tuple[str, str]]:
    seen: set[str] = set()
    position = 0
    while position < len(text):
        part = _PART.match(text, position)
        if part is None:
            raise UsageError(f"{_OPTION}: a part is not of the form key=value; it takes {EXAMPLE}")
        key, value = part[1], part[2].strip('"')
        if key == "password":
            raise UsageError(
                f"{_OPTION}: other users could see the password in the list of processes; password-file=FILE takes it "
                "from the first line of a file"
            )
        if key not in _PARTS:
            meant = nearest(key, _PARTS)
            hint = f"did you mean {meant}?" if meant else f"there are {', '.join(_PARTS)}"
            raise UsageError(f"{_OPTION} has no {key!r}; {hint}")
        if key in seen:
            raise UsageError(f"{_OPTION} has {key} twice")
        seen.add(key)
        yield key, value
        position = part.end()


def _iterations(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or not ITERATIONS_MIN <= int(text) <= ITERATIONS_MAX:
        raise UsageError(f"{_OPTION}: iterations is {ITERATIONS_MIN} to {ITERATIONS_MAX}, not {text!r}")
    return int(text)


def _decoded(parts: Mapping[str, str], key: str) -> bytes:
    try:
        decoded = base64.b64decode(parts[key], validate=True)
    except (binascii.Error, ValueError):
        decoded = b""
    if not decoded:
        raise UsageError(f"{_OPTION}: {key} is no text in base64")
    return decoded
