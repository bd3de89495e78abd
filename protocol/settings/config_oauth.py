"""Configuration keys of logins by tokens (OAUTHBEARER). Names, types and defaults are Kafka's, unless stated here.

Keys of our own: `sasl.oauthbearer.allow.unsecured`, and the two lists of URLs and files from which signing keys may be
read, which Kafka takes as properties of Java. Kafka accepts unsigned tokens if no URL is given; here that has to be set
explicitly.
"""

from __future__ import annotations

from typing import Final

from .config_key import LONG_MAX, ConfigKey, ConfigType, Scope

_B, _I, _L = ConfigType.BOOLEAN, ConfigType.INT, ConfigType.LONG
_LIST, _S, _P = ConfigType.LIST, ConfigType.STRING, ConfigType.PASSWORD
_PACKAGE = "org.apache.kafka.common.security.oauthbearer"
_PREFIX: Final = "sasl.oauthbearer."


def _key(
    name: str, kind: ConfigType, default: str | None, doc: str, *allowed: str, least: float | None = None
) -> ConfigKey:
    most = LONG_MAX if kind is _L else None
    return ConfigKey(name, kind, default, doc, Scope.BROKER, least, most, allowed)


# fmt: off
_OF_TOKENS = (
    _key("sasl.oauthbearer.jwks.endpoint.url", _S, None,
         "URL of the keys that sign tokens: https:, http: or file:."),
    _key("sasl.oauthbearer.jwks.endpoint.refresh.ms", _L, "3600000",
         "Time between reads of the signing keys.", least=1),
    _key("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", _L, "100",
         "Wait after the first failed read of the signing keys.", least=1),
    _key("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", _L, "10000",
         "Longest wait after further failed reads of the signing keys.", least=1),
    _key("sasl.oauthbearer.expected.issuer", _S, None, "The issuer (iss) that every token has to name."),
    _key("sasl.oauthbearer.expected.audience", _LIST, "", "Audiences (aud); every token has to name one of them."),
    _key("sasl.oauthbearer.allow.unverified.issuer", _B, "false", "Whether tokens of any issuer are taken."),
    _key("sasl.oauthbearer.allow.unverified.audience", _B, "false", "Whether tokens for any audience are taken."),
    _key("sasl.oauthbearer.clock.skew.seconds", _I, "30",
         "Largest difference between the clocks of the tokens' issuer and the broker.", least=0),
    _key("sasl.oauthbearer.sub.claim.name", _S, "sub", "The claim that names the user."),
    _key("sasl.oauthbearer.scope.claim.name", _S, "scope", "The claim with the scope of the token."),
    _key("sasl.oauthbearer.allow.unsecured", _B, "false",
         "Whether unsigned tokens are accepted, which any client can make. For tests only."),
    _key("sasl.oauthbearer.jwt.validator.class", _S, None, "Kafka's own are the only ones.",
         f"{_PACKAGE}.DefaultJwtValidator", f"{_PACKAGE}.BrokerJwtValidator"),
    _key("sasl.server.callback.handler.class", _S, None, "Kafka's own is the only one.",
         f"{_PACKAGE}.OAuthBearerValidatorCallbackHandler",
         f"{_PACKAGE}.secured.OAuthBearerValidatorCallbackHandler"),
)
_OF_BROKERS = (
    _key("sasl.oauthbearer.allowed.urls", _LIST, None,
         "The only URLs, but for file:, that sasl.oauthbearer.jwks.endpoint.url may be; without it any."),
    _key("sasl.oauthbearer.allowed.files", _LIST, None,
         "The only files that sasl.oauthbearer.jwks.endpoint.url may name, or their folders; without it any."),
)
_OF_BROKERS_AS_CLIENTS = tuple(
    _key(name, kind, None, "Login of Kafka's brokers by tokens of their own.")
    for kind, names in (
        (_P, ("client.credentials.client.secret", "assertion.private.key.passphrase")),
        (_S, ("client.credentials.client.id", "token.endpoint.url", "scope", "header.urlencode",
              "jwt.retriever.class", "assertion.algorithm", "assertion.claim.aud", "assertion.claim.exp.seconds",
              "assertion.claim.iss", "assertion.claim.jti.include", "assertion.claim.nbf.seconds",
              "assertion.claim.sub", "assertion.file", "assertion.private.key.file", "assertion.template.file")),
    )
    for name in (f"{_PREFIX}{each}" for each in names)
) + tuple(
    _key(f"sasl.login.{each}", _S, None, "Login of Kafka's brokers by tokens of their own.")
    for each in ("callback.handler.class", "class", "connect.timeout.ms", "read.timeout.ms", "refresh.buffer.seconds",
                 "refresh.min.period.seconds", "refresh.window.factor", "refresh.window.jitter",
                 "retry.backoff.max.ms", "retry.backoff.ms")
)
# fmt: on

OAUTH_TABLE: Final = (*_OF_TOKENS, *_OF_BROKERS, *_OF_BROKERS_AS_CLIENTS)
OAUTH_KEYS_OF_MECHANISMS: Final = frozenset(key.name for key in (*_OF_TOKENS, *_OF_BROKERS_AS_CLIENTS))
"""Keys allowed for a single mechanism of a listener, or for a single listener."""
OAUTH_NOT_IN_EFFECT: Final = {
    key.name: "brokers log in to each other by the cluster secret" for key in _OF_BROKERS_AS_CLIENTS
}
"""Keys without effect, each with the reason."""
