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
    """The encryption and decryption of brokers' settings that are secret, such as passwords."""

    def __init__(self, sealer: Sealer) -> None:
        self._sealer = sealer

    def seal(self, broker: str, name: str, value: str) -> str:
        """Return a broker's setting as the quorum keeps it: encrypted if the setting is a secret, else unchanged.

        `broker` is empty for a setting of all brokers.
        """
        if node_key(name) is None or not is_sensitive(name):
            return value
        return as_text(self._sealer.seal(value.encode(), subject_of(broker, name)))

    def open(self, broker: str, name: str, kept: str) -> str:
        """Return the clear value of a broker's setting that the quorum keeps as `kept`. Raises ConfigError if no
        present cluster secret opens it.
        """
        sealed = sealed_bytes(kept) if is_sensitive(name) else None
        if sealed is None:
            return kept
        try:
            return self._sealer.open(sealed, subject_of(broker, name)).decode()
        except SealBroken as error:
            raise ConfigError(f"{name} cannot be read, set it again: {error}") from None


def subject_of_option(mirror: str, name: str) -> bytes:
    """Return the text that identifies a mirror's connection option to the encryption, which authenticates it together
    with the value.
    """
    return f"mirror\0{mirror}\0{name}".encode()


def subject_of(broker: str, name: str) -> bytes:
    """Return the text that identifies a broker's setting to the encryption, which authenticates it together with the
    value.
    """
    return f"setting\0{broker}\0{name}".encode()
