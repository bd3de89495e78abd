"""Encryption of secrets that the quorum keeps, readable only by holders of the cluster secret.

It is AES-256-GCM, with a key that is derived from the cluster secret for this purpose alone. A sealed value begins with
the id of its key, so a secret can be replaced while older values remain readable. The `subject` of a value is
authenticated with it: the password of one user cannot be given to another by copying bytes.

It protects copied folders and backups of quorum nodes. It does not protect against a compromised broker.
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Sequence
from hashlib import sha256
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_KEY_LABEL: Final = b"sensitive values\0"
_KEY_ID_BYTES: Final = 4
_NONCE_BYTES: Final = 12
_TAG_BYTES: Final = 16
OVERHEAD_BYTES: Final = _KEY_ID_BYTES + _NONCE_BYTES + _TAG_BYTES


class SealBroken(Exception):
    """An error: no present secret opens the sealed bytes, or they were altered."""


class Sealer:
    """A sealer that seals with the first of the cluster's secrets, and opens values that any of them sealed."""

    def __init__(self, secrets: Sequence[bytes]) -> None:
        if not secrets:
            raise ValueError("a sealer needs a secret")
        keys = [hmac.digest(secret, _KEY_LABEL, sha256) for secret in secrets]
        self._ciphers = {sha256(key).digest()[:_KEY_ID_BYTES]: AESGCM(key) for key in keys}
        self._first_id = sha256(keys[0]).digest()[:_KEY_ID_BYTES]

    def is_under_first(self, sealed: bytes) -> bool:
        """Return whether the value `sealed` was encrypted under the first cluster secret."""
        return sealed[:_KEY_ID_BYTES] == self._first_id

    def seal(self, plain: bytes, subject: bytes) -> bytes:
        """Return the encrypted value, OVERHEAD_BYTES longer than `plain`; it differs at each call."""
        nonce = os.urandom(_NONCE_BYTES)
        return self._first_id + nonce + self._ciphers[self._first_id].encrypt(nonce, plain, subject)

    def open(self, sealed: bytes, subject: bytes) -> bytes:
        """Return the value that was sealed for the same subject. Raises SealBroken."""
        if len(sealed) < OVERHEAD_BYTES:
            raise SealBroken(f"a sealed value of {len(sealed)} bytes is cut short")
        cipher = self._ciphers.get(sealed[:_KEY_ID_BYTES])
        if cipher is None:
            raise SealBroken(
                f"a value was sealed under key {sealed[:_KEY_ID_BYTES].hex()}, which follows from no secret in "
                "cluster.secret.file"
            )
        nonce, rest = (
            sealed[_KEY_ID_BYTES : _KEY_ID_BYTES + _NONCE_BYTES],
            sealed[_KEY_ID_BYTES + _NONCE_BYTES :],
        )
        try:
            return cipher.decrypt(nonce, rest, subject)
        except InvalidTag:
            raise SealBroken("a sealed value was altered, or belongs to something else") from None
