"""Configuration keys of TLS. Names, types and defaults are Apache Kafka's, unless stated here.

Keys of our own: `ssl.crl.location`, `ssl.handshake.timeout.ms`, `ssl.keylog.enable`, `ssl.reload.interval.ms`,
`max.unauthenticated.connections` and `max.unauthenticated.connections.per.ip`.

Different on purpose: `ssl.keystore.type` and `ssl.truststore.type` have no effect, since the content of a file shows
its type.

Each key of a listener may also be given for one listener, as `listener.name.NAME.KEY`, with NAME in lower case.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from .config_key import ConfigKey, ConfigType, Scope

DEFAULT_PRINCIPAL_BUILDER: Final = (
    "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"
)

_B, _I, _LIST = ConfigType.BOOLEAN, ConfigType.INT, ConfigType.LIST
_S, _P = ConfigType.STRING, ConfigType.PASSWORD
_STORES = ("JKS", "PKCS12", "PEM")
_VERSIONS = ("TLSv1.2", "TLSv1.3")


def _key(
    name: str, kind: ConfigType, default: str | None, doc: str, *allowed: str, least: float | None = None
) -> ConfigKey:
    return ConfigKey(name, kind, default, doc, Scope.BROKER, least, allowed=allowed)


# fmt: off
_OF_LISTENERS = (
    _key("ssl.keystore.location", _S, None, "File with the private key of a listener and its certificates."),
    _key("ssl.keystore.type", _S, "JKS", "Declared type of that file.", *_STORES),
    _key("ssl.keystore.password", _P, None, "Password of that file, if it is PKCS12 or JKS."),
    _key("ssl.key.password", _P, None, "Password of the private key."),
    _key("ssl.keystore.key", _P, None, "The private key in PEM, in place of a file."),
    _key("ssl.keystore.certificate.chain", _P, None, "Its certificates in PEM."),
    _key("ssl.truststore.location", _S, None, "File with the trusted certificates."),
    _key("ssl.truststore.type", _S, "JKS", "Declared type of that file.", *_STORES),
    _key("ssl.truststore.password", _P, None, "Password of that file, if it is PKCS12 or JKS."),
    _key("ssl.truststore.certificates", _P, None, "Those certificates in PEM, in place of a file."),
    _key("ssl.client.auth", _S, "none", "Whether clients are asked for certificates.",
         "none", "requested", "required"),
    _key("ssl.enabled.protocols", _LIST, "TLSv1.2,TLSv1.3", "Versions of TLS that are spoken.", *_VERSIONS),
    _key("ssl.protocol", _S, "TLSv1.3", "The newest version of TLS that is spoken.", *_VERSIONS),
    _key("ssl.cipher.suites", _LIST, None, "Cipher suites, by IANA's names; without it OpenSSL's choice."),
    _key("ssl.endpoint.identification.algorithm", _S, "https",
         "Whether brokers compare the name that they dial with the peer's certificate: https, or empty."),
    _key("ssl.principal.mapping.rules", _S, "DEFAULT",
         "Rules that map the subject of a certificate to a user's name."),
    _key("ssl.allow.dn.changes", _B, "false", "Whether a new certificate may have another subject."),
    _key("ssl.allow.san.changes", _B, "false", "Whether it may have other subject alternative names."),
    _key("ssl.crl.location", _S, None, "File with lists of revoked certificates, in PEM."),
    _key("ssl.keylog.enable", _B, "false",
         "Whether the keys of connections go to the file that the variable SSLKEYLOGFILE names, so that recordings can "
         "be decrypted. Never in production."),
    _key("ssl.engine.factory.class", _S, None, "Java's factory of TLS engines."),
    _key("ssl.provider", _S, None, "Java's security provider."),
    _key("ssl.keymanager.algorithm", _S, None, "Java's key managers."),
    _key("ssl.trustmanager.algorithm", _S, None, "Java's trust managers."),
    _key("ssl.secure.random.implementation", _S, None, "Java's random numbers."),
)
_OF_NODES = (
    _key("security.inter.broker.protocol", _S, None,
         "Security protocol whose name is that of the listener between brokers; inter.broker.listener.name is plainer.",
         "PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    _key("principal.builder.class", _S, None, "Kafka's own is the only one.", DEFAULT_PRINCIPAL_BUILDER),
    _key("ssl.reload.interval.ms", _I, "30000",
         "Time between checks of files with keys and certificates for new content; 0: never.", least=0),
    _key("ssl.handshake.timeout.ms", _I, "10000", "How long a TLS handshake may take.", least=1),
    _key("max.unauthenticated.connections", _I, "1000",
         "Most peers at a time that have not shaken hands or logged in; then the address with most of them loses its "
         "oldest.", least=1),
    _key("max.unauthenticated.connections.per.ip", _I, "50",
         "Most such peers of one address; then it loses its oldest.", least=1),
)
# fmt: on

_OF_QUORUM: Final = frozenset({*(key.name for key in _OF_LISTENERS), "ssl.reload.interval.ms"})
TLS_TABLE: Final = tuple(
    replace(key, scope=Scope.BROKER | Scope.QUORUM) if key.name in _OF_QUORUM else key
    for key in (*_OF_LISTENERS, *_OF_NODES)
)
TLS_KEYS_OF_LISTENERS: Final = frozenset(key.name for key in _OF_LISTENERS)
"""Keys allowed for a single listener."""

JAVAS_OWN: Final = {
    name: "it is about Java; TLS here is OpenSSL's"
    for name in TLS_KEYS_OF_LISTENERS
    if name.endswith((".class", ".provider", "manager.algorithm", ".implementation"))
}
"""Keys without effect, each with the reason."""

RELOADED_KEYS: Final = frozenset(
    key.name for key in _OF_LISTENERS if key.name not in ("ssl.principal.mapping.rules", *JAVAS_OWN)
)
"""Keys that a running broker can change for one of its listeners."""
