"""Names of this library's options in other clients: the dotted names of librdkafka (used by confluent-kafka and kcat)
and of Java. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

LIBRDKAFKA: Final[Mapping[str, str]] = {
    "bootstrap.servers": "bootstrap_servers",
    "metadata.broker.list": "bootstrap_servers",
    "client.id": "client_id",
    "security.protocol": "security_protocol",
    "ssl.ca.location": "ssl_cafile",
    "ssl.ca.pem": "ssl_cadata",
    "ssl.certificate.location": "ssl_certfile",
    "ssl.certificate.pem": "ssl_certdata",
    "ssl.key.location": "ssl_keyfile",
    "ssl.key.pem": "ssl_keydata",
    "ssl.key.password": "ssl_password",
    "ssl.crl.location": "ssl_crlfile",
    "ssl.cipher.suites": "ssl_ciphers",
    "ssl.endpoint.identification.algorithm": "ssl_check_hostname",
    "sasl.mechanism": "sasl_mechanism",
    "sasl.mechanisms": "sasl_mechanism",
    "sasl.username": "sasl_plain_username",
    "sasl.password": "sasl_plain_password",
    # librdkafka does not support logins with delegation tokens, so this name is Ottla's.
    "sasl.token.auth": "sasl_token_auth",
    "oauth_cb": "sasl_oauth_token_provider",
    "sasl.oauthbearer.token.endpoint.url": "sasl_oauthbearer_token_endpoint_url",
    "sasl.oauthbearer.client.id": "sasl_oauthbearer_client_id",
    "sasl.oauthbearer.client.secret": "sasl_oauthbearer_client_secret",
    "sasl.oauthbearer.scope": "sasl_oauthbearer_scope",
    "sasl.oauthbearer.extensions": "sasl_oauthbearer_extensions",
    "sasl.kerberos.service.name": "sasl_kerberos_service_name",
    "sasl.kerberos.principal": "sasl_kerberos_principal",
    "sasl.kerberos.keytab": "sasl_kerberos_keytab",
}
JAVA: Final[Mapping[str, str]] = {
    "bootstrap.servers": "bootstrap_servers",
    "client.id": "client_id",
    "security.protocol": "security_protocol",
    "ssl.truststore.location": "ssl_cafile",
    "ssl.truststore.certificates": "ssl_cadata",
    "ssl.keystore.location": "ssl_certfile",
    "ssl.keystore.certificate.chain": "ssl_certdata",
    "ssl.keystore.key": "ssl_keydata",
    "ssl.key.password": "ssl_password",
    "ssl.endpoint.identification.algorithm": "ssl_check_hostname",
    "sasl.mechanism": "sasl_mechanism",
    "sasl.oauthbearer.token.endpoint.url": "sasl_oauthbearer_token_endpoint_url",
    "sasl.oauthbearer.client.credentials.client.id": "sasl_oauthbearer_client_id",
    "sasl.oauthbearer.client.credentials.client.secret": "sasl_oauthbearer_client_secret",
    "sasl.oauthbearer.scope": "sasl_oauthbearer_scope",
    "sasl.kerberos.service.name": "sasl_kerberos_service_name",
}
_SECRET_WORDS: Final = (
    "password",
    "secret",
    "token",
    "jaas",
    "key.pem",
    "keystore.key",
    "keystore_key",
    "keydata",
)


def is_secret(name: str) -> bool:
    """Return whether an option's value must never be shown. The name may be any client's."""
    lowered = name.lower()
    return any(word in lowered for word in _SECRET_WORDS) and not lowered.endswith(
        ("url", "endpoint", "auth")
    )


class Secret(str):
    """A string whose representation is hidden, so that logs, tracebacks and Spark's pages do not show it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'[hidden]'"
