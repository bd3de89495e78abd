"""Secret settings of brokers: the quorum keeps them encrypted, and only brokers open them.

The broker and the setting of a value are authenticated with it. So the password of one setting, or of one broker,
cannot be used for another by copying a record.
"""

from __future__ import annotations

from ...protocol.credentials.sealed_text import as_text, sealed_bytes
from ...protocol.settings.config_key import ConfigError
from ...protocol.settings.config_keys import is_sensitive, node_key
from .sealing import SealBroken, Sealer


class SettingSecrets:
    """The encryption of the secrets among the settings of brokers."""

    def __init__(self, sealer: Sealer) -> None:
        self._sealer = sealer

    def seal(self, broker: str, name: str, value: str) -> str:
        """Return a value in the form that the quorum keeps: encrypted if its setting is a secret, else unchanged.

        `broker` is empty for a setting of all brokers.
        """
        if node_key(name) is None or not is_sensitive(name):
            return value
        return as_text(self._sealer.seal(value.encode(), subject_of(broker, name)))

    def open(self, broker: str, name: str, kept: str) -> str:
        """Return the value that the quorum keeps as `kept`. Raises ConfigError if no present secret opens it."""
        sealed = sealed_bytes(kept) if is_sensitive(name) else None
        if sealed is None:
            return kept
        try:
            return self._sealer.open(sealed, subject_of(broker, name)).decode()
        except SealBroken as error:
            raise ConfigError(f"{name} cannot be read, set it again: {error}") from None


def subject_of_option(mirror: str, name: str) -> bytes:
    """Return the subject for sealing an option of a mirror's connections."""
    return f"mirror\0{mirror}\0{name}".encode()


def subject_of(broker: str, name: str) -> bytes:
    """Return the subject for sealing a broker's setting."""
    return f"setting\0{broker}\0{name}".encode()
