"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677; KIP-84): both ends of a login, and the server's credentials.

A server stores no password, but two keys derived from it. The client proves that it knows the password, and the server
proves that it holds those keys. There is no channel binding. Names are UTF-8 without further preparation, as in Kafka.

Sans-IO: nonces and salts come in as arguments, messages go out as bytes. Every failed login raises `ScramRefused`,
whose text is for the log of the end that raised it.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import new as new_digest
from hashlib import pbkdf2_hmac
from typing import Final

ITERATIONS_MIN: Final = 4096
ITERATIONS_MAX: Final = 16384
"""Bounds of the number of iterations with which passwords of users are hashed, as in Kafka."""
CLIENT_ITERATIONS_MAX: Final = 1_000_000
"""Highest number of iterations that a client accepts from a server: a hostile server could demand hours of
computation."""
DEFAULT_MECHANISM: Final = "SCRAM-SHA-512"
DEFAULT_ITERATIONS: Final = 8192
"""Mechanism and number of iterations of a new password for which none are named."""
SALT_BYTES: Final = 24
NONCE_BYTES: Final = 24
"""Number of random bytes in a new salt, and in the nonce of either end of a login."""
TOKEN_AUTH_EXTENSION: Final = "tokenauth"
MESSAGE_BYTES_MAX: Final = 16 * 1024

_ATTRIBUTE = re.compile(r"([A-Za-z]+)=([^,\0]+)")
_NONCE = re.compile(r"[\x21-\x2b\x2d-\x7e]+")


class ScramRefused(Exception):
    """A refused SCRAM login. The text is for the log of this end and never for the other end."""


@dataclass(frozen=True, slots=True)
class ScramMechanism:
    """A SCRAM mechanism with its hash function: SHA-256 or SHA-512. `code` is its number in Kafka's protocol."""

    name: str
    code: int
    hash_name: str
    digest_bytes: int

    def digest(self, data: bytes) -> bytes:
        """Return the hash of `data` by the mechanism's hash function, SHA-256 or SHA-512."""
        return new_digest(self.hash_name, data).digest()

    def hmac(self, key: bytes, data: bytes) -> bytes:
        """Return the HMAC of `data` with `key` and the mechanism's hash function, SHA-256 or SHA-512."""
        return hmac.digest(key, data, self.hash_name)


SCRAM_SHA_256: Final = ScramMechanism("SCRAM-SHA-256", 1, "sha256", 32)
SCRAM_SHA_512: Final = ScramMechanism("SCRAM-SHA-512", 2, "sha512", 64)
SCRAM_MECHANISMS: Final[Mapping[str, ScramMechanism]] = {
    mechanism.name: mechanism for mechanism in (SCRAM_SHA_256, SCRAM_SHA_512)
}
SCRAM_MECHANISMS_BY_CODE: Final[Mapping[int, ScramMechanism]] = {
    mechanism.code: mechanism for mechanism in SCRAM_MECHANISMS.values()
}


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """SCRAM credential of one user and mechanism (salt, iterations, stored key, server key), as stored by a server. It
    is secret, since its holder can impersonate the server."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int

    @classmethod
    def of_salted_password(
        cls, mechanism: ScramMechanism, salted_password: bytes, salt: bytes, iterations: int
    ) -> ScramCredential:
        """Make a credential from a salted password, the PBKDF2 hash that `salted_password` returns."""
        client_key = mechanism.hmac(salted_password, b"Client Key")
        server_key = mechanism.hmac(salted_password, b"Server Key")
        return cls(salt, mechanism.digest(client_key), server_key, iterations)

    @classmethod
    def of_password(
        cls, mechanism: ScramMechanism, password: str, salt: bytes, iterations: int = ITERATIONS_MIN
    ) -> ScramCredential:
        """Make a credential from a password; this takes a millisecond or more, depending on `iterations`."""
        salted = salted_password(mechanism, password, salt, iterations)
        return cls.of_salted_password(mechanism, salted, salt, iterations)


def salted_password(mechanism: ScramMechanism, password: str, salt: bytes, iterations: int) -> bytes:
    """Return the PBKDF2 hash of a password and a salt (Hi() in RFC 5802). A client that has this hash needs no
    password."""
    return pbkdf2_hmac(mechanism.hash_name, password.encode(), salt, iterations)


@dataclass(frozen=True, slots=True)
class ScramUser:
    """Identity that a client claims in its first message."""

    name: str
    extensions: Mapping[str, str]


class ScramServer:
    """The server's end of one login: `claim` reads the client's first message, `challenge` answers it, `finish` answers
    the second.

    For an unknown user the caller passes `unknown_user_credential`: the user gets a challenge like any other, and is
    refused at the end like after a wrong password.
    """

    def __init__(self, mechanism: ScramMechanism, nonce: str) -> None:
        """Begin a login. `nonce`: fresh, printable, without commas."""
        self._mechanism = mechanism
        self._nonce = nonce
        self._gs2_header = self._first_bare = self._challenge = ""
        self._credential: ScramCredential | None = None
        self.user: ScramUser | None = None
        self.done = False

    def claim(self, message: bytes) -> ScramUser:
        """Read the client's first message, and return the user that it claims. Raises ScramRefused."""
        self._gs2_header, self._first_bare = _split_gs2(_text(message))
        user_part, _, rest = self._first_bare.partition(",")
        if not user_part.startswith("n=") or user_part == "n=":
            raise ScramRefused("the first message names no user")
        name = _unescaped(user_part[2:])
        extensions = _attributes(rest)
        client_nonce = extensions.pop("r", "")
        if not _NONCE.fullmatch(client_nonce):
            raise ScramRefused("the first message has no nonce")
        authorization = self._gs2_header[2:-1]
        if authorization and _unescaped(authorization.removeprefix("a=")) != name:
            raise ScramRefused(f"user {name[:64]!r} wants to act as another")
        self._nonce = client_nonce + self._nonce
        self.user = ScramUser(name, extensions)
        return self.user

    def challenge(self, credential: ScramCredential) -> bytes:
        """Return the answer to the first message, which asks for a proof that the client knows the password of this
        credential."""
        self._credential = credential
        salt = base64.b64encode(credential.salt).decode()
        self._challenge = f"r={self._nonce},s={salt},i={credential.iterations}"
        return self._challenge.encode()

    def finish(self, message: bytes) -> bytes:
        """Check the proof in the client's second message, and return the server's last message, with its own proof.
        Raises ScramRefused."""
        credential = self._credential
        if credential is None:
            raise ScramRefused("a proof before the challenge")
        if self.done:
            raise ScramRefused("a message follows the end of the login")
        without_proof, _, proof_part = _text(message).rpartition(",")
        if not proof_part.startswith("p="):
            raise ScramRefused("the final message has no proof")
        attributes = _attributes(without_proof)
        # RFC 5802 requires equal nonces. librdkafka up to 2.0.2 repeats its own part in front, and Kafka accepts that.
        # It is equally safe, since the proof covers the whole nonce of this login.
        if not attributes.get("r", "").endswith(self._nonce):
            raise ScramRefused("the final message has another nonce")
        if _decoded(attributes.get("c", ""), "channel binding") != self._gs2_header.encode():
            raise ScramRefused("the final message has another channel binding")
        proof = _decoded(proof_part[2:], "proof")
        mechanism = self._mechanism
        if len(proof) != mechanism.digest_bytes:
            raise ScramRefused(f"the proof has {len(proof)} bytes, it must be {mechanism.digest_bytes}")
        said = f"{self._first_bare},{self._challenge},{without_proof}".encode()
        signature = mechanism.hmac(credential.stored_key, said)
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        if not hmac.compare_digest(mechanism.digest(client_key), credential.stored_key):
            raise ScramRefused("the proof is wrong")
        self.done = True
        return b"v=" + base64.b64encode(mechanism.hmac(credential.server_key, said))


def unknown_user_credential(
    mechanism: ScramMechanism,
    node_key: bytes,
    name: str,
    *,
    iterations: int = ITERATIONS_MIN,
    salt_bytes: int = 24,
) -> ScramCredential:
    """Return a credential for a user who does not exist: always the same for a name, and valid for no password.

    The salt has at most 64 bytes.
    """
    seed = hmac.digest(node_key, f"scram salt\0{mechanism.name}\0{name}".encode(), "sha512")
    keys = mechanism.hmac(node_key, b"no such user" + seed)
    return ScramCredential(seed[:salt_bytes], keys, keys, iterations)


class ScramClient:
    """The client's end of one login: `first()`, then `final(challenge)`, then `check(answer)`."""

    def __init__(
        self,
        mechanism: ScramMechanism,
        user: str,
        password: str,
        nonce: str,
        extensions: Mapping[str, str] | None = None,
    ) -> None:
        self._mechanism = mechanism
        self._password = password
        self._nonce = nonce
        extra = "".join(f",{key}={value}" for key, value in (extensions or {}).items())
        self._first_bare = f"n={_escaped(user)},r={nonce}{extra}"
        self._server_signature = b""

    def first(self) -> bytes:
        """Return the client's first SCRAM message, with the user's name and the nonce."""
        return b"n,," + self._first_bare.encode()

    def final(self, challenge: bytes) -> bytes:
        """Return the proof that answers the server's challenge. Raises ScramRefused.

        This hashes the password as often as the server demands: up to a second for the highest number that is accepted.
        """
        text = _text(challenge)
        attributes = _attributes(text)
        nonce = attributes.get("r", "")
        if not nonce.startswith(self._nonce) or len(nonce) <= len(self._nonce):
            raise ScramRefused("the server's challenge does not continue this client's nonce")
        salt = _decoded(attributes.get("s", ""), "salt")
        count = attributes.get("i", "")
        if not (count.isascii() and count.isdigit() and len(count) <= 9) or not (
            ITERATIONS_MIN <= int(count) <= CLIENT_ITERATIONS_MAX
        ):
            raise ScramRefused(
                f"the server asks for {count[:12]!r} iterations, allowed are {ITERATIONS_MIN} to "
                f"{CLIENT_ITERATIONS_MAX}"
            )
        mechanism = self._mechanism
        salted = salted_password(mechanism, self._password, salt, int(count))
        without_proof = f"c={base64.b64encode(b'n,,').decode()},r={nonce}"
        said = f"{self._first_bare},{text},{without_proof}".encode()
        client_key = mechanism.hmac(salted, b"Client Key")
        signature = mechanism.hmac(mechanism.digest(client_key), said)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._server_signature = mechanism.hmac(mechanism.hmac(salted, b"Server Key"), said)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def check(self, answer: bytes) -> None:
        """Check the server's proof. Raises ScramRefused if it is wrong or missing."""
        attributes = _attributes(_text(answer))
        if "e" in attributes:
            raise ScramRefused(f"the server refuses: {attributes['e'][:200]}")
        signature = _decoded(attributes.get("v", ""), "signature")
        if not self._server_signature or not hmac.compare_digest(signature, self._server_signature):
            raise ScramRefused("the server does not hold the credential of this user: it may be a false one")


def _text(message: bytes) -> str:
    if len(message) > MESSAGE_BYTES_MAX:
        raise ScramRefused(f"a message of {len(message)} bytes, allowed are {MESSAGE_BYTES_MAX}")
    try:
        return bytes(message).decode()
    except UnicodeDecodeError:
        raise ScramRefused("a message that is not UTF-8") from None


def _split_gs2(text: str) -> tuple[str, str]:
    """Split a client's first SCRAM message into its GS2 header, commas included, and the rest."""
    binding, comma, rest = text.partition(",")
    authorization, second_comma, bare = rest.partition(",")
    if binding not in ("n", "y") or not comma or not second_comma:
        raise ScramRefused("the first message begins with no header, or asks for channel binding")
    if authorization and not authorization.startswith("a="):
        raise ScramRefused("the first message has no authorization id where one belongs")
    return f"{binding},{authorization},", bare


def _attributes(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for part in text.split(",") if text else ():
        match = _ATTRIBUTE.fullmatch(part)
        if match is None:
            raise ScramRefused("a message with a part that is no attribute")
        if match[1] in found:
            raise ScramRefused(f"a message with attribute {match[1]!r} twice")
        found[match[1]] = match[2]
    return found


def _decoded(text: str, what: str) -> bytes:
    try:
        decoded = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ScramRefused(f"the {what} is not base64") from None
    if not decoded:
        raise ScramRefused(f"the {what} is missing")
    return decoded


def _escaped(name: str) -> str:
    return name.replace("=", "=3D").replace(",", "=2C")


def _unescaped(name: str) -> str:
    plain = name.replace("=2C", ",").replace("=3D", "=")
    if name.count("=") != name.count("=2C") + name.count("=3D"):
        raise ScramRefused("a user name with an escape that is none")
    return plain
