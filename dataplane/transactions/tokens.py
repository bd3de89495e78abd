"""Tokens: a process that has the token of an open transaction may join it.

A token is text that fits in a URL, a job's parameters or an environment variable:
`v1.<base64url of owner's producer id, its epoch, number, transactional id>.<base64url of HMAC-SHA256>`. It names a
transaction. The MAC proves only that this cluster issued the token. The quorum knows whether the transaction is still
open.

Pure. No part of a token is read before its MAC has been verified.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import struct
from hashlib import sha256
from typing import Final, NamedTuple

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.session.node_secrets import Secrets

TRANSACTIONAL_ID_BYTES_MAX: Final = 16 << 10
"""Maximum length in UTF-8. A longer id gets no token, as that would not fit in a string of the protocol."""

_VERSION: Final = b"v1"
_KEY_LABEL: Final = b"ottla transaction tokens\0"
_FIXED: Final = struct.Struct(">qhi")  # producer id, epoch, number; the transactional id follows
_MAC_BYTES: Final = 32


def _encoded(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")


_LENGTH_MAX: Final = sum(
    (
        len(_VERSION),
        len(_encoded(bytes(_FIXED.size + TRANSACTIONAL_ID_BYTES_MAX))),
        len(_encoded(bytes(_MAC_BYTES))),
        2,
    )
)


class JoinableTransaction(NamedTuple):
    """The open transaction that a token names, by the owner's ids and the transaction's number, so that another writer
    may join."""

    transactional_id: str
    producer_id: int
    """The owner's producer id."""
    producer_epoch: int
    """The owner's epoch while this transaction is open."""
    number: int


class TransactionTokens:
    """The issuer and verifier of tokens, by which writers join a transaction. All brokers of a cluster issue the same
    tokens."""

    def __init__(self, secrets: Secrets, cluster_id: str) -> None:
        """Derive the keys of tokens. `secrets` are shared by all nodes of the cluster."""
        label = _KEY_LABEL + cluster_id.encode()
        # The first key signs.
        self._keys = [hmac.digest(secret, label, sha256) for secret in secrets.accepted]

    def issue(self, transaction: JoinableTransaction) -> str:
        """Return the token of a transaction; always the same token while the secret stays.

        Raises KafkaError INVALID_REQUEST if its transactional id is too long for a token.
        """
        name = transaction.transactional_id.encode()
        if len(name) > TRANSACTIONAL_ID_BYTES_MAX:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"a transactional id of {len(name)} bytes is too long for a transaction that others join: "
                f"{TRANSACTIONAL_ID_BYTES_MAX} bytes are allowed",
            )
        fixed = _FIXED.pack(transaction.producer_id, transaction.producer_epoch, transaction.number)
        said = _VERSION + b"." + _encoded(fixed + name)
        return (said + b"." + _mac(self._keys[0], said)).decode()

    def verify(self, token: str) -> JoinableTransaction:
        """Return the transaction that a token names.

        Raises KafkaError INVALID_REQUEST if the text is not a token, or not a token of this cluster.
        """
        if len(token) > _LENGTH_MAX:
            raise _refused(f"it has {len(token)} characters, none has more than {_LENGTH_MAX}")
        said, _, mac = token.encode(errors="replace").rpartition(b".")
        version, _, payload = said.partition(b".")
        if not payload:
            raise _refused("it does not have three parts with a dot between them")
        if version != _VERSION:
            raise _refused(f"its version is {version.decode()[:20]!r}, known is {_VERSION.decode()!r}")
        if not any(hmac.compare_digest(mac, _mac(key, said)) for key in self._keys):
            raise _refused("it is incomplete, or was not given out by this cluster")
        try:
            data = base64.b64decode(payload + b"=" * (-len(payload) % 4), altchars=b"-_", validate=True)
            producer_id, producer_epoch, number = _FIXED.unpack_from(data)
            name = data[_FIXED.size :].decode()
        except (binascii.Error, struct.error, UnicodeDecodeError):
            raise _refused("what it holds cannot be read") from None
        return JoinableTransaction(name, producer_id, producer_epoch, number)


def _mac(key: bytes, said: bytes) -> bytes:
    return _encoded(hmac.digest(key, said, sha256))


def _refused(why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, f"this is no token of a transaction: {why}")
