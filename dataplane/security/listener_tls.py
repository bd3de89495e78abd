"""The TLS of one listener: what new connections begin with, and whom their certificates name."""

from __future__ import annotations

import ssl

from .distinguished_names import subject_name
from .principal import ANONYMOUS, USER, Principal
from .principal_mapping import PrincipalMapping


class ListenerTls:
    """Established connections keep what they began with, whatever is put in the place of `context`."""

    def __init__(self, context: ssl.SSLContext, mapping: PrincipalMapping) -> None:
        self.context = context
        self._mapping = mapping

    def principal_of(self, certificate: bytes | None) -> Principal:
        """Whom a certificate in DER names. Raises NoMatchingRule, and ValueError for a subject that cannot be read."""
        if certificate is None:
            return ANONYMOUS
        return Principal(USER, self._mapping.name_of(subject_name(certificate)))
