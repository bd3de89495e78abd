"""A reader for Java's older key stores (JKS), which `keytool` wrote before Java 9.

A store is a list of entries, each under an alias: a private key with its chain, or a trusted certificate. The digest at
the end includes the password. Private keys are additionally protected by a key stream of SHA-1 digests.
"""

from __future__ import annotations

import hmac
import struct
from dataclasses import dataclass, field
from hashlib import sha1
from typing import Final

from .der import object_identifier, values_in

MAGIC: Final = b"\xfe\xed\xfe\xed"
JCEKS_MAGIC: Final = b"\xce\xce\xce\xce"

_DIGEST_BYTES: Final = 20
_WHITENER: Final = b"Mighty Aphrodite"
_KEY, _CERTIFICATE = 1, 2
_PROTECTOR: Final = "1.3.6.1.4.1.42.2.17.1.1"
_ENTRIES_MAX: Final = 100_000


class WrongPassword(ValueError):
    """The digest does not match: the password is wrong, or the file is damaged."""


@dataclass(frozen=True, slots=True)
class ProtectedKey:
    """A private key as encrypted in the file, and its chain in DER, the key's own certificate first."""

    protected: bytes = field(repr=False)
    chain: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class JavaKeyStore:
    """The entries of a store by alias; certificates are in DER."""

    keys: dict[str, ProtectedKey]
    trusted: dict[str, bytes]


class _Cursor:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0

    def take(self, size: int) -> bytes:
        end = self.at + size
        if end > len(self._data):
            raise ValueError("the file is cut off")
        taken = self._data[self.at : end]
        self.at = end
        return taken

    def number(self) -> int:
        return int.from_bytes(self.take(4), "big")

    def text(self) -> str:
        return self.take(int.from_bytes(self.take(2), "big")).decode("utf-8", "replace")

    def certificate(self, version: int) -> bytes:
        if version > 1 and (kind := self.text()) != "X.509":
            raise ValueError(f"a certificate is of the kind {kind!r}, and only X.509 can be read")
        return self.take(self.number())


def read(data: bytes, password: str | None) -> JavaKeyStore:
    """Read the entries of a store. Without a password the digest is not checked, as in Java for trust stores.

    Raises WrongPassword, and ValueError for a file that is not JKS.
    """
    if data[:4] != MAGIC or len(data) < 12 + _DIGEST_BYTES:
        raise ValueError("this is no JKS file")
    body, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    if password is not None:
        expected = sha1(_password_bytes(password) + _WHITENER + body).digest()
        if not hmac.compare_digest(expected, digest):
            raise WrongPassword("the password is wrong, or the file is damaged")
    version, count = struct.unpack_from(">ii", body, 4)
    if version not in (1, 2) or not 0 <= count <= _ENTRIES_MAX:
        raise ValueError(f"version {version} with {count} entries cannot be read")
    cursor = _Cursor(body)
    cursor.take(12)
    store = JavaKeyStore({}, {})
    for _ in range(count):
        tag, alias = cursor.number(), cursor.text()
        cursor.take(8)  # time of creation
        if tag == _KEY:
            protected = cursor.take(cursor.number())
            chain = tuple(cursor.certificate(version) for _ in range(cursor.number()))
            store.keys[alias] = ProtectedKey(protected, chain)
        elif tag == _CERTIFICATE:
            store.trusted[alias] = cursor.certificate(version)
        else:
            raise ValueError(f"the entry {alias!r} is of an unknown kind {tag}")
    if cursor.at != len(body):
        raise ValueError("there are bytes behind the last entry")
    return store


def unprotected(key: ProtectedKey, password: str) -> bytes:
    """Decrypt a private key and return it in PKCS#8. Raises WrongPassword, and ValueError."""
    (whole,) = values_in(key.protected)
    algorithm, octets = values_in(whole.content)
    identifier = next(values_in(algorithm.content), None)
    if identifier is None:
        raise ValueError("the private key does not say how it is protected")
    protector = object_identifier(identifier.content)
    if protector != _PROTECTOR:
        raise ValueError(f"the private key is protected by {protector}, which cannot be read")
    secret, data = _password_bytes(password), octets.content
    if len(data) < 2 * _DIGEST_BYTES:
        raise ValueError("the private key is cut off")
    stream, encrypted = data[:_DIGEST_BYTES], data[_DIGEST_BYTES:-_DIGEST_BYTES]
    plain = bytearray()
    for at in range(0, len(encrypted), _DIGEST_BYTES):
        stream = sha1(secret + stream).digest()
        plain += bytes(
            byte ^ other for byte, other in zip(encrypted[at : at + _DIGEST_BYTES], stream, strict=False)
        )
    if not hmac.compare_digest(sha1(secret + plain).digest(), data[-_DIGEST_BYTES:]):
        raise WrongPassword("the password of the private key is wrong")
    return bytes(plain)


def _password_bytes(password: str) -> bytes:
    return password.encode("utf-16-be")
