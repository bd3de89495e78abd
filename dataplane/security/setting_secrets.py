"""Settings of brokers that are secrets: the quorum keeps them encrypted, and only brokers open them.

Which broker and which setting a value is for is authenticated with it. So nobody can have a broker take the password of
one setting, or of another broker, for that of another by copying a record.
"""

from __future__ import annotations

from ...protocol.credentials.sealed_text import as_text, sealed_bytes
from ...protocol.settings.config_key import ConfigError
from ...protocol.settings.config_keys import is_sensitive, node_key
from .sealing import SealBroken, Sealer


class SettingSecrets:
    """Seals and opens the secrets among the settings of brokers."""

    def __init__(self, sealer: Sealer) -> None:
        self._sealer = sealer

    def seal(self, broker: str, name: str, value: str) -> str:
        """A value as it goes to the quorum: as it is, unless its setting is a secret. `broker`: empty for all."""
        if node_key(name) is None or not is_sensitive(name):
            return value
        return as_text(self._sealer.seal(value.encode(), subject_of(broker, name)))

    def open(self, broker: str, name: str, kept: str) -> str:
        """The value of what the quorum keeps. Raises ConfigError if no present secret opens it."""
        sealed = sealed_bytes(kept) if is_sensitive(name) else None
        if sealed is None:
            return kept
        try:
            return self._sealer.open(sealed, subject_of(broker, name)).decode()
        except SealBroken as error:
            raise ConfigError(f"{name} cannot be read, set it again: {error}") from None


def subject_of_option(mirror: str, name: str) -> bytes:
    """What the sealed value of an option of a mirror's connections is about."""
    return f"mirror\0{mirror}\0{name}".encode()


def subject_of(broker: str, name: str) -> bytes:
    """What the sealed value of a broker's setting is about."""
    return f"setting\0{broker}\0{name}".encode()
