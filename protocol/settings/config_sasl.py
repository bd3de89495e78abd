"""Configuration keys of logins. Names, types and defaults are Apache Kafka's, unless stated here.

Keys of our own: `connection.authentication.timeout.ms`, `sasl.plain.verify` and
`sasl.credential.change.closes.sessions`. `sasl.enabled.mechanisms` has no default: Kafka's is GSSAPI, which most
clusters do not have.

Each key of a listener may also be given for one listener, as `listener.name.NAME.KEY`, and some for one of its
mechanisms, as `listener.name.NAME.MECHANISM.KEY`. NAME and MECHANISM are in lower case.
"""

from __future__ import annotations

from typing import Final

from .config_key import INT_MAX, ConfigKey, ConfigType, Scope
from .config_oauth import OAUTH_KEYS_OF_MECHANISMS, OAUTH_TABLE

MECHANISM_NAMES: Final = ("plain", "scram-sha-256", "scram-sha-512", "oauthbearer", "gssapi")
"""Names of the supported mechanisms, in the form that keys contain."""

SASL_TABLE: Final = (
    ConfigKey("sasl.enabled.mechanisms", ConfigType.LIST, None,
              "Mechanisms by which clients log in: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, GSSAPI.",
              Scope.BROKER),
    ConfigKey("sasl.jaas.config", ConfigType.PASSWORD, None,
              "Login module and options of one mechanism of one listener; only with the prefix of both.",
              Scope.BROKER),
    ConfigKey("sasl.kerberos.service.name", ConfigType.STRING, None,
              "The service for which clients get tickets of Kerberos: the first part of the broker's principal.",
              Scope.BROKER),
    ConfigKey("sasl.kerberos.principal.to.local.rules", ConfigType.STRING, "DEFAULT",
              "Rules that map a Kerberos principal to a user's name.", Scope.BROKER),
    ConfigKey("sasl.plain.verify", ConfigType.STRING, "jaas",
              "Where PLAIN finds passwords: in sasl.jaas.config (jaas), or among the users of SCRAM (scram).",
              Scope.BROKER, allowed=("jaas", "scram")),
    ConfigKey("connections.max.reauth.ms", ConfigType.LONG, "0",
              "Time after which a client has to log in again; 0: never.", Scope.BROKER, least=0, most=INT_MAX),
    ConfigKey("connection.failed.authentication.delay.ms", ConfigType.INT, "100",
              "How long a connection stays open after its login failed.", Scope.BROKER, least=0),
    ConfigKey("connection.authentication.timeout.ms", ConfigType.INT, "10000",
              "How long a client may take to log in, with its TLS handshake.", Scope.BROKER, least=1),
    ConfigKey("sasl.server.max.receive.size", ConfigType.INT, "524288",
              "Largest message of a client that has not logged in.", Scope.BROKER, least=1024),
    ConfigKey("sasl.credential.change.closes.sessions", ConfigType.BOOLEAN, "true",
              "Whether the connections of a user are closed when the password is changed or deleted.",
              Scope.BROKER),
    *OAUTH_TABLE,
)  # fmt: skip
SASL_KEYS_OF_LISTENERS: Final = frozenset(key.name for key in SASL_TABLE) - {
    "sasl.credential.change.closes.sessions",
    "sasl.oauthbearer.allowed.urls",
    "sasl.oauthbearer.allowed.files",
}
"""Keys allowed for a single listener."""
KEYS_OF_MECHANISMS: Final = (
    frozenset({"sasl.jaas.config", "sasl.plain.verify", "connections.max.reauth.ms"})
    | OAUTH_KEYS_OF_MECHANISMS
)
"""Keys allowed for a single mechanism of a listener."""
ONLY_OF_MECHANISMS: Final = frozenset({"sasl.jaas.config"})
