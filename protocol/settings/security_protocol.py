"""The four security protocols of Kafka's listeners."""

from __future__ import annotations

from enum import StrEnum


class SecurityProtocol(StrEnum):
    """Protocols that wrap a connection in TLS or not, and make clients authenticate or not. The values are Kafka's
    names."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def has_tls(self) -> bool:
        """True if TLS encrypts the connection."""
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def has_sasl(self) -> bool:
        """True if a client has to authenticate itself by SASL before anything else."""
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)
