"""Keys that tokens are signed with (RFC 7517), and the check of signatures (RFC 7515)."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from typing import Any, Final

from joserfc.errors import SecurityWarning
from joserfc.jwk import JWKRegistry, Key, OKPKey, RSAKey
from joserfc.jws import JWSRegistry

from .tokens import Token

ALGORITHMS: Final = (
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519", "Ed448",
)  # fmt: skip
"""The algorithms with a public key. With a secret key, a broker that checks tokens could also create them."""
RSA_BITS_MIN: Final = 2048
KEYS_MAX: Final = 100
"""The maximum number of keys in a set. More would block the event loop for tens of milliseconds at each read."""
_TRIED_WITHOUT_ID_MAX: Final = 4


class KeysUnreadable(ValueError):
    """An error: a document is no valid JSON Web Key Set."""


class SigningKeys:
    """The keys of a JSON Web Key Set that can check signatures."""

    def __init__(self, keys: list[Key]) -> None:
        self._keys = keys

    def __len__(self) -> int:
        return len(self._keys)

    @classmethod
    def read(cls, content: bytes) -> SigningKeys:
        """Return the keys of a JSON Web Key Set. Keys that cannot check signatures are left out, as they have other
        purposes. Raises KeysUnreadable."""
        try:
            found = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise KeysUnreadable(f"it is no JSON: {error!s:.100}") from None
        listed = found.get("keys") if isinstance(found, dict) else None
        if not isinstance(listed, list):
            raise KeysUnreadable('it is no JSON object with a list "keys"')
        if len(listed) > KEYS_MAX:
            raise KeysUnreadable(f"it has {len(listed)} keys, allowed are {KEYS_MAX}")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SecurityWarning)  # warnings about weak keys, which are left out
            keys = [key for key in map(_key, listed) if key is not None]
        if not keys:
            raise KeysUnreadable(f"none of its {len(listed)} keys can check signatures")
        return cls(keys)

    def judge(self, token: Token) -> bool | None:
        """Return whether one of the keys has signed the token. Returns None if no key fits: none has the token's key id
        and algorithm.

        If the token names no key, the first few keys for its algorithm are tried.
        """
        fitting = [key for key in self._keys if _fits(key, token.algorithm)]
        if token.key_id is None:
            tried = fitting[:_TRIED_WITHOUT_ID_MAX]
        else:
            tried = [key for key in fitting if key.kid == token.key_id]
        if not tried:
            return None
        algorithm = JWSRegistry.algorithms[token.algorithm]
        return any(algorithm.verify(token.signed, token.signature, key) for key in tried)


def _key(given: object) -> Key | None:
    if not isinstance(given, dict):
        return None
    try:
        key = JWKRegistry.import_key(_public(given))
    except Exception:  # Invalid keys raise many kinds of errors.
        return None
    if isinstance(key, RSAKey) and key.public_key.key_size < RSA_BITS_MIN:
        return None
    operations = key.get("key_ops")
    verifies = operations is None or "verify" in operations
    return key if verifies and any(_fits(key, algorithm) for algorithm in ALGORITHMS) else None


def _public(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return a JSON Web Key without its private members, which a published key set should not have."""
    return {
        name: value for name, value in given.items() if name not in ("d", "p", "q", "dp", "dq", "qi", "oth")
    }


def _fits(key: Key, algorithm: str) -> bool:
    """Return whether a key can check signatures of a JWS algorithm, judged by its type, curve, use and declared
    algorithm.
    """
    if algorithm not in ALGORITHMS:
        return False
    try:
        JWSRegistry.algorithms[algorithm].check_key(key)
    except Exception:  # There is a kind of error for each reason.
        return False
    return not (isinstance(key, OKPKey) and key.curve_name.startswith("X"))
