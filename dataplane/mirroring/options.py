"""Options of the connections to a source. The quorum stores secret options encrypted, and only brokers can decrypt
them."""

from __future__ import annotations

from collections.abc import Mapping

from ...protocol.cluster.mirror_table import Mirror
from ...protocol.credentials.sealed_text import as_text, sealed_bytes
from ...protocol.errors import ErrorCode, KafkaError
from ..security.sealing import SealBroken, Sealer
from ..security.setting_secrets import subject_of_option
from .source import SourceCluster, Sources


class MirrorOptions:
    """The encryption of a mirror's secret connection options for the quorum, and their decryption."""

    def __init__(self, sealer: Sealer) -> None:
        self._sealer = sealer

    def seal(self, sources: Sources, mirror: str, options: Mapping[str, str]) -> dict[str, str]:
        """Return the connection options of a mirror as the quorum stores them, with secrets encrypted."""
        return {
            name: as_text(self._sealer.seal(value.encode(), subject_of_option(mirror, name)))
            if name in sources.secrets
            else value
            for name, value in options.items()
        }

    def open(self, sources: Sources | None, mirror: Mirror) -> SourceCluster:
        """Return the connections to a mirror's source. Raises KafkaError if this broker cannot use the mirror's
        options.
        """
        if sources is None:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, "this process was started without a client for sources"
            )
        options = {name: self._opened(mirror.name, name, value) for name, value in mirror.options}
        return sources.open(mirror.bootstrap_servers, options)

    def _opened(self, mirror: str, name: str, value: str) -> str:
        sealed = sealed_bytes(value)
        if sealed is None:
            return value
        try:
            return self._sealer.open(sealed, subject_of_option(mirror, name)).decode()
        except SealBroken as error:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"option {name} cannot be read: {error}") from None
