"""The secrets that nodes share, as their files hold them."""

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
        """From the content of a file. White space around does not count. Raises ValueError if nothing else is there."""
        secret = content.strip()
        return cls((secret,) if secret else ())


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
    for secret in secrets.accepted:
        if len(secret) < MIN_SECRET_BYTES:
            raise ConfigError(
                f"{key}: {path} holds {len(secret)} bytes, at least {MIN_SECRET_BYTES} are needed"
            )
    return secrets
