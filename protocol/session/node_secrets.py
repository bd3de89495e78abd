"""The secrets that nodes share, as stored in their files.

While a secret is being replaced, a file may contain several lines: nodes that use the old secret and nodes that use the
new one accept each other.
"""

from __future__ import annotations

import logging
import os
import stat
from collections import Counter
from dataclasses import dataclass, field
from math import log2
from pathlib import Path
from typing import Final

from ..settings.config_key import ConfigError

MIN_SECRET_BYTES: Final = 16
MIN_STRENGTH_BITS: Final = 50
"""Lowest accepted result of `strength_bits`. Output of `openssl rand` has more, even with 16 bytes; a repeated password
has less."""

_OF_WORDS: Final = frozenset(b"abcdefghijklmnopqrstuvwxyz -_.")
_BITS_OF_LETTERS: Final = 2
"""Assumed entropy of a letter within words, in bits."""
_BYTES_LOOKED_AT: Final = 256

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Secrets:
    """The secrets that a file lists. A node dials and signs with the `first`, and accepts all of them from other
    nodes."""

    accepted: tuple[bytes, ...] = field(repr=False)

    def __post_init__(self) -> None:
        if not self.accepted:
            raise ValueError("there is no secret")

    @property
    def first(self) -> bytes:
        """The secret to use for dialling and signing."""
        return self.accepted[0]

    @classmethod
    def parse(cls, content: bytes) -> Secrets:
        """Parse the content of a file, one secret per line. White space around a secret is removed. Raises ValueError
        if there is no secret."""
        return cls(tuple(secret for line in content.split(b"\n") if (secret := line.strip())))


def read_secrets(key: str, path: str) -> Secrets:
    """Read the secrets in the file that `key` names. Raises ConfigError."""
    try:
        content = Path(path).read_bytes()
        if others_may_read(path):
            logger.warning("%s: others may read %s: chmod 600 %s", key, path, path)
    except OSError as error:
        raise ConfigError(f"{key}: cannot read {path}: {error.strerror}") from None
    return checked_secrets(key, path, content)


def checked_secrets(key: str, path: str, content: bytes) -> Secrets:
    """Return the secrets in `content`, which was read from `path`. Raises ConfigError for secrets that can be
    guessed."""
    try:
        secrets = Secrets.parse(content)
    except ValueError:
        raise ConfigError(f"{key}: {path} is empty, at least {MIN_SECRET_BYTES} bytes are needed") from None
    for number, secret in enumerate(secrets.accepted, 1):
        where = f"line {number} of {path}" if len(secrets.accepted) > 1 else path
        if len(secret) < MIN_SECRET_BYTES:
            raise ConfigError(
                f"{key}: {where} holds {len(secret)} bytes, at least {MIN_SECRET_BYTES} are needed"
            )
        if strength_bits(secret) < MIN_STRENGTH_BITS:
            raise ConfigError(
                f"{key}: {where} can be guessed, as it repeats itself or has few different characters. Whoever records "
                "one handshake can try guesses. Make a random secret: openssl rand -hex 32"
            )
        if could_be_words(secret):
            logger.warning(
                "%s: %s could be words, which can be guessed by whoever records one handshake. Replace it by a random "
                "secret: openssl rand -hex 32",
                key,
                where,
            )
    return secrets


def others_may_read(file: str | Path) -> bool:
    """Return whether users who are neither the file's owner nor in its group may read it. Raises OSError."""
    return bool(os.stat(file).st_mode & stat.S_IROTH)


def strength_bits(secret: bytes) -> float:
    """Return the highest number of bits that a guesser needs, judged by the secret alone: how often each byte occurs,
    and whether the secret repeats itself.

    The secret alone reveals no more about its strength.
    """
    seen = secret[:_BYTES_LOOKED_AT]
    unit = seen[: _period(seen)]
    return sum(count * log2(len(unit) / count) for count in Counter(unit).values())


def could_be_words(secret: bytes) -> bool:
    """Return whether the secret may be in a list of words: it is short and consists of letters alone."""
    return len(secret) * _BITS_OF_LETTERS < MIN_STRENGTH_BITS and _OF_WORDS.issuperset(secret.lower())


def _period(secret: bytes) -> int:
    """Return the length in bytes of the shortest piece whose repetition makes the whole secret; the last repetition may
    be partial."""
    return next(
        length for length in range(1, len(secret) + 1) if secret[length:] == secret[: len(secret) - length]
    )
