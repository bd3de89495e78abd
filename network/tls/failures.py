"""What is said of keys, certificates and settings of TLS that cannot be used."""

from __future__ import annotations

from typing import Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm

UNREADABLE: Final = (
    ValueError,
    UnsupportedAlgorithm,
    x509.InvalidVersion,
    x509.DuplicateExtension,
    x509.UnsupportedGeneralNameType,
)
"""What the library raises for keys and certificates that it cannot read."""


class TlsUnusable(ValueError):
    """A store or a setting of TLS cannot be used. The text names the option, the file and the cause."""
