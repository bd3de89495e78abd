"""The re-encryption of values that the quorum keeps encrypted under an older cluster secret.

A cluster secret is replaced in steps, and the last step removes the old one. Before that, every value must be encrypted
under the first secret. Each change replaces exactly the value that was read, so a password that is set meanwhile
remains.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...protocol.cluster.cluster_image import ClusterImage, ScramKey
from ...protocol.cluster.image_delta import ImageDelta
from ...protocol.cluster.mirror_table import Mirror
from ...protocol.credentials.sealed_text import as_text, sealed_bytes
from ...protocol.messages.config_commands import ConfigChange, ConfigResource, ResourceType
from ...protocol.messages.mirror_commands import ReconnectMirror
from ...protocol.messages.mirror_records import MirrorOption
from ...protocol.messages.user_commands import ScramCredentialChange
from .sasl.scram import subject_of as subject_of_credential
from .sealing import SealBroken, Sealer
from .setting_secrets import subject_of as subject_of_setting
from .setting_secrets import subject_of_option


class Resealer:
    """The re-encryption of values in the cluster image: it tracks the values under an older cluster secret, and yields
    the changes that encrypt them under the first.
    """

    def __init__(self, sealer: Sealer) -> None:
        self._sealer = sealer
        #: There may be very many users, so the credentials under an older secret are tracked from change to change, in
        #: order of arrival.
        self._old_credentials: dict[ScramKey, None] = {}

    def image_changed(self, image: ClusterImage, delta: ImageDelta) -> None:
        """Track the encrypted values in a change of the image, which the image already contains. Every change must be
        passed.
        """
        for key in delta.scram_credentials:
            kept = image.scram_credentials.get(key)
            if kept is None or self._sealer.is_under_first(kept.sealed_keys):
                self._old_credentials.pop(key, None)
            else:
                self._old_credentials[key] = None

    def left(self, image: ClusterImage) -> int:
        """Return the number of values in the image that are not encrypted under the first cluster secret."""
        settings = sum(1 for _ in self._old_settings(image))
        return len(self._old_credentials) + settings + sum(1 for _ in self._old_mirrors(image))

    def credentials(self, image: ClusterImage) -> Iterator[ScramCredentialChange]:
        """Yield the changes that encrypt users' SCRAM credentials under the first cluster secret. Credentials that no
        present secret opens are left out.
        """
        for key in list(self._old_credentials):
            kept = image.scram_credentials.get(key)
            sealed = None if kept is None else self._again(kept.sealed_keys, subject_of_credential(key))
            if kept is not None and sealed is not None:
                name, mechanism = key
                yield ScramCredentialChange(
                    name=name,
                    mechanism=mechanism,
                    salt=kept.salt,
                    sealed_keys=sealed,
                    iterations=kept.iterations,
                    replaces=kept.sealed_keys,
                )

    def settings(self, image: ClusterImage) -> Iterator[ConfigResource]:
        """Yield the changes that encrypt brokers' secret settings under the first cluster secret. Settings that no
        present secret opens are left out.
        """
        for broker, name, old, sealed in list(self._old_settings(image)):
            again = self._again(sealed, subject_of_setting(broker, name))
            if again is not None:
                change = ConfigChange(name=name, value=as_text(again), replaces=old)
                yield ConfigResource(
                    resource_type=ResourceType.BROKER, resource_name=broker, changes=[change]
                )

    def mirrors(self, image: ClusterImage) -> Iterator[ReconnectMirror]:
        """Yield the changes that encrypt mirrors' connection options under the first cluster secret. A mirror with an
        option that no present secret opens is left out.
        """
        for mirror in list(self._old_mirrors(image)):
            options = []
            for name, text in mirror.options:
                sealed = sealed_bytes(text)
                again = None if sealed is None else self._again(sealed, subject_of_option(mirror.name, name))
                if sealed is not None and again is None:
                    break
                options.append(MirrorOption(name=name, value=text if again is None else as_text(again)))
            else:
                replaces = [MirrorOption(name=name, value=value) for name, value in mirror.options]
                yield ReconnectMirror(name=mirror.name, options=options, replaces=replaces)

    def _old_mirrors(self, image: ClusterImage) -> Iterator[Mirror]:
        for mirror in image.mirrors.by_name.values():
            sealed = [value for _, text in mirror.options if (value := sealed_bytes(text)) is not None]
            if not all(map(self._sealer.is_under_first, sealed)):
                yield mirror

    def _old_settings(self, image: ClusterImage) -> Iterator[tuple[str, str, str, bytes]]:
        """Yield broker, name, text and encrypted bytes of each setting under an older secret."""
        for (kind, broker), values in image.configs.items():
            for name, text in values.items():
                sealed = sealed_bytes(text) if kind == ResourceType.BROKER else None
                if sealed is not None and not self._sealer.is_under_first(sealed):
                    yield broker, name, text, sealed

    def _again(self, sealed: bytes, subject: bytes) -> bytes | None:
        try:
            return self._sealer.seal(self._sealer.open(sealed, subject), subject)
        except SealBroken:
            return None
