"""Keys and certificates in PEM text.

Line breaks do not matter: as in Kafka, a whole block may stand in one line of a properties file.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import load_der_private_key, load_pem_private_key

from .failures import TlsUnusable
from .unreadable import UNREADABLE

_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)
_CERTIFICATES = ("CERTIFICATE", "X509 CERTIFICATE")
_KEYS = ("PRIVATE KEY", "ENCRYPTED PRIVATE KEY", "RSA PRIVATE KEY", "EC PRIVATE KEY")


class PemBlock(NamedTuple):
    """A PEM block: its label, the text between BEGIN and END, and the whole block."""

    label: str
    body: str
    whole: str


def is_pem(data: bytes) -> bool:
    """Return whether the bytes are PEM text."""
    return b"-----BEGIN " in data


def blocks(text: str) -> Iterator[PemBlock]:
    """Yield the blocks of a text; text between blocks is commentary."""
    for found in _BLOCK.finditer(text):
        yield PemBlock(found[1], found[2], found[0])


def certificates(text: str, where: str) -> list[x509.Certificate]:
    """Return all certificates of a text in their order. Raises TlsUnusable."""
    found = []
    for block in blocks(text):
        if block.label in _CERTIFICATES:
            try:
                found.append(x509.load_der_x509_certificate(_der(block)))
            except UNREADABLE as error:
                number = len(found) + 1
                raise TlsUnusable(f"{where}: certificate {number} cannot be read: {error}") from None
    return found


def private_key(text: str, password: str | None, where: str, password_option: str) -> PrivateKeyTypes:
    """Return the only private key of a text. Raises TlsUnusable."""
    found = [block for block in blocks(text) if block.label in _KEYS]
    if len(found) != 1:
        what = "no private key" if not found else f"{len(found)} private keys, and one is needed"
        labels = ", ".join(sorted({block.label for block in blocks(text)})) or "nothing in PEM"
        raise TlsUnusable(f"{where}: {what} (found: {labels}; a key is a block PRIVATE KEY)")
    (block,) = found
    encrypted = block.label == "ENCRYPTED PRIVATE KEY" or "ENCRYPTED" in block.body
    if encrypted and password is None:
        raise TlsUnusable(f"{where}: the private key is encrypted, and {password_option} is not given")
    try:
        if ":" in block.body:  # headers of OpenSSL's older format, which name the encryption of the key
            secret = password.encode() if encrypted and password is not None else None
            return load_pem_private_key(block.whole.encode(), secret)
        return load_der_private_key(_der(block), password.encode() if encrypted and password else None)
    except (*UNREADABLE, TypeError) as error:
        hint = f". Is {password_option} right?" if encrypted else ""
        raise TlsUnusable(f"{where}: the private key cannot be read: {_first_line(error)}{hint}") from None


def _der(block: PemBlock) -> bytes:
    try:
        return base64.b64decode("".join(block.body.split()), validate=True)
    except binascii.Error as error:
        raise ValueError(f"its text is no base64: {error}") from None


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0].split(" (")[0] if str(error) else type(error).__name__
