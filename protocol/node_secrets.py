"""The secrets that nodes share, as their files hold them.

A file may hold several lines, while a secret is being replaced: nodes that use the old one and nodes that use the new
one accept each other.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from .config_key import ConfigError

MIN_SECRET_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class Secrets:
    """What one file holds. Whoever dials or signs uses `first`; `accepted` has it, too."""

    accepted: tuple[bytes, ...] = field(repr=False)

    def __post_init__(self) -> None:
        if not self.accepted:
            raise ValueError("there is no secret")

    @property
    def first(self) -> bytes:
        """The one to use."""
        return self.accepted[0]

    @classmethod
    def parse(cls, content: bytes) -> Secrets:
        """From the content of a file, one in a line. White space around each does not count. Raises ValueError if
        nothing else is there.
        """
        return cls(tuple(secret for line in content.split(b"\n") if (secret := line.strip())))


def read_secrets(key: str, path: str) -> Secrets:
    """The secrets in the file that `key` names. Raises ConfigError."""
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"{key}: cannot read {path}: {error.strerror}") from None
    try:
        secrets = Secrets.parse(content)
    except ValueError:
        raise ConfigError(f"{key}: {path} is empty, at least {MIN_SECRET_BYTES} bytes are needed") from None
    for number, secret in enumerate(secrets.accepted, 1):
        if len(secret) < MIN_SECRET_BYTES:
            where = f"line {number} of {path}" if len(secrets.accepted) > 1 else path
            raise ConfigError(
                f"{key}: {where} holds {len(secret)} bytes, at least {MIN_SECRET_BYTES} are needed"
            )
    return secrets
