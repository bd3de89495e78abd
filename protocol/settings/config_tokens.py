"""Configuration keys of delegation tokens. Names, types and defaults are Apache Kafka's, unless stated here.

Key of our own: `delegation.token.secret.file`.
"""

from __future__ import annotations

from typing import Final

from .config_key import LONG_MAX, ConfigKey, ConfigType, Scope

TOKEN_TABLE: Final = (
    ConfigKey("delegation.token.secret.key", ConfigType.PASSWORD, None,
              "The secret of delegation tokens follows from it; the same on all brokers. Without it, and without "
              "delegation.token.secret.file, there are no tokens.", Scope.BROKER),
    ConfigKey("delegation.token.secret.file", ConfigType.STRING, None,
              "File with that key instead. The first line is for new tokens, those of the other lines stay valid.",
              Scope.BROKER),
    ConfigKey("delegation.token.max.lifetime.ms", ConfigType.LONG, "604800000",
              "How long a delegation token lives at most.", Scope.BROKER, least=1, most=LONG_MAX),
    ConfigKey("delegation.token.expiry.time.ms", ConfigType.LONG, "86400000",
              "How long a delegation token is valid unless it is renewed.", Scope.BROKER, least=1, most=LONG_MAX),
    ConfigKey("delegation.token.expiry.check.interval.ms", ConfigType.LONG, "3600000",
              "How often the quorum forgets delegation tokens that have ended.", Scope.QUORUM, least=1,
              most=LONG_MAX),
)  # fmt: skip
