"""Stand-in credentials for unknown users. Their logins take the same steps and time as those of known users, so a
client cannot find out names.

A client receives the salt and the iterations of its user before it proves anything. So stand-ins have the same
distribution as real credentials: an unknown name has 8192 iterations as often as known users have them. A name's
stand-in is the same on all brokers, and stays the same while the users do not change.
"""

from __future__ import annotations

import hmac
from collections import Counter
from collections.abc import Callable
from hashlib import sha256
from typing import Final, NamedTuple

from ....protocol.cluster.cluster_image import ScramKey, SealedCredential
from ....protocol.credentials.scram import (
    ITERATIONS_MIN,
    SALT_BYTES,
    SCRAM_MECHANISMS_BY_CODE,
    SCRAM_SHA_256,
    ScramCredential,
    ScramMechanism,
    unknown_user_credential,
)

_DRAW_BYTES: Final = 8
_DRAWS: Final = 256**_DRAW_BYTES


class Shape(NamedTuple):
    """The properties of a SCRAM credential that a client can see: its mechanism, its iterations and the length of its
    salt.
    """

    mechanism: int
    iterations: int
    salt_bytes: int


class UnknownUsers:
    """The stand-in SCRAM credentials by which logins of unknown users are checked, always in vain."""

    def __init__(self, node_key: bytes, sealed: Callable[[], dict[ScramKey, SealedCredential]]) -> None:
        """`node_key` generates stand-ins; it is the same on all brokers. `sealed` returns the credentials of the
        current image."""
        self._node_key = node_key
        self._sealed = sealed
        # The number of counted credentials, and the last of them: an image moves changed credentials to the end.
        self._counted: tuple[int, SealedCredential | None] = (0, None)
        self._of_mechanism: dict[int, Counter[Shape]] = {}
        self._of_passwords: Counter[Shape] = Counter()

    def credential(self, mechanism: ScramMechanism, name: str) -> ScramCredential:
        """Return a stand-in credential for an unknown user's login by this SCRAM mechanism. It is valid for no
        password.
        """
        self._count()
        return self._made(mechanism, name, self._of_mechanism.get(mechanism.code, Counter()))

    def for_password(self, name: str) -> tuple[ScramMechanism, ScramCredential]:
        """Return a stand-in credential for an unknown user's login with PLAIN, and its SCRAM mechanism. It is valid for
        no password.
        """
        self._count()
        shape = self._drawn(name, self._of_passwords, SCRAM_SHA_256)
        mechanism = SCRAM_MECHANISMS_BY_CODE[shape.mechanism]
        return mechanism, self._made(mechanism, name, Counter({shape: 1}))

    def _made(self, mechanism: ScramMechanism, name: str, shapes: Counter[Shape]) -> ScramCredential:
        shape = self._drawn(name, shapes, mechanism)
        return unknown_user_credential(
            mechanism, self._node_key, name, iterations=shape.iterations, salt_bytes=shape.salt_bytes
        )

    def _drawn(self, name: str, shapes: Counter[Shape], mechanism: ScramMechanism) -> Shape:
        """Return one of the credential shapes for an unknown name, each with a probability equal to its frequency. The
        same name and shapes give the same result.
        """
        seed = hmac.digest(self._node_key, b"scram shape\0" + name.encode(), sha256)[:_DRAW_BYTES]
        left = int.from_bytes(seed, "big") * shapes.total() // _DRAWS
        for shape in sorted(shapes):
            left -= shapes[shape]
            if left < 0:
                return shape
        return Shape(mechanism.code, ITERATIONS_MIN, SALT_BYTES)

    def _count(self) -> None:
        sealed = self._sealed()
        last = next(reversed(sealed.values()), None)
        if self._counted[0] == len(sealed) and self._counted[1] is last:
            return
        self._counted = len(sealed), last
        self._of_mechanism, self._of_passwords = {}, Counter()
        for (name, code), credential in sealed.items():
            shape = Shape(code, credential.iterations, len(credential.salt))
            self._of_mechanism.setdefault(code, Counter())[shape] += 1
            # Passwords are checked by the first mechanism that a user has.
            if all((name, earlier) not in sealed for earlier in range(1, code)):
                self._of_passwords[shape] += 1
