"""The four security protocols of Kafka's listeners."""

from __future__ import annotations

from enum import StrEnum


class SecurityProtocol(StrEnum):
    """What the bytes of a connection are wrapped in, and whether clients say who they are. The values are Kafka's."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def has_tls(self) -> bool:
        """Whether TLS encrypts the connection."""
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def has_sasl(self) -> bool:
        """Whether a client has to authenticate itself by SASL before anything else."""
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)
