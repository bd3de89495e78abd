"""Token checks of a listener (OAUTHBEARER), from Kafka's keys and the options of its login module."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import SplitResult, unquote, urlsplit

from ...network.loopback import is_loopback
from ...network.tls.failures import TlsUnusable
from ...network.tls.settings import StoreSource, StoreType
from ...protocol.credentials.jaas import LoginModule
from ...protocol.messages.sasl import OAUTHBEARER
from ...protocol.settings.config_keys import NODE_KEYS, ConfigError
from ..security.oauth.settings import BearerSettings, KeySource, TokenRules

MODULE: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
JWKS_URL: Final = "sasl.oauthbearer.jwks.endpoint.url"
ALLOW_UNSECURED: Final = "sasl.oauthbearer.allow.unsecured"
_VALIDATOR = "unsecuredValidator"
_VALIDATOR_OPTIONS = frozenset(
    f"{_VALIDATOR}{name}"
    for name in ("PrincipalClaimName", "ScopeClaimName", "RequiredScope", "AllowableClockSkewMs")
)
_STORE_OPTIONS = frozenset(
    f"ssl.truststore.{name}" for name in ("location", "type", "password", "certificates")
)
_OPTIONS_AS_CLIENT = frozenset({"clientId", "clientSecret", "scope"})
_PREFIXES_AS_CLIENT = ("unsecuredLogin", "extension_")
_STORES = tuple(kind.value for kind in StoreType)

Find = Callable[[str], tuple[str, str]]
"""A function that returns the form of a key that applies to the mechanism of a listener, and its text; empty if it is
not given."""


def is_option(name: str) -> bool:
    """Return whether the JAAS entry for OAUTHBEARER may have an option of this name. Options for a broker's own token
    have no effect here.
    """
    known = _VALIDATOR_OPTIONS | _STORE_OPTIONS | _OPTIONS_AS_CLIENT
    return name in known or name.startswith(_PREFIXES_AS_CLIENT)


def bearer_settings(
    find: Find, module_key: str, module: LoginModule | None, properties: Mapping[str, str]
) -> BearerSettings:
    """Return the settings by which one listener checks OAUTHBEARER tokens. Raises ConfigError, which shows no value of
    the JAAS entry.
    """
    return _Reader(find, module_key, module, properties).settings()


class _Reader:
    def __init__(
        self, find: Find, module_key: str, module: LoginModule | None, properties: Mapping[str, str]
    ) -> None:
        self._find = find
        self._module_key = module_key
        self._prefix = module_key.removesuffix("sasl.jaas.config")
        self._options: Mapping[str, str] = {} if module is None else module.options
        self._properties = properties

    def settings(self) -> BearerSettings:
        for key in ("sasl.server.callback.handler.class", "sasl.oauthbearer.jwt.validator.class"):
            self._value(key)
        url_key, url = self._find(JWKS_URL)
        unsecured_key, _ = self._find(ALLOW_UNSECURED)
        is_unsecured = self._truth(ALLOW_UNSECURED)
        if url and is_unsecured:
            raise ConfigError(
                f"{url_key} and {unsecured_key} are both given: tokens are either signed or not"
            )
        if not url and not is_unsecured:
            raise ConfigError(
                f"{self._prefix}{JWKS_URL} is missing: it has the keys that tokens are signed with; for tests "
                f"{ALLOW_UNSECURED}=true takes tokens that nobody has signed"
            )
        return self._unsecured(unsecured_key) if is_unsecured else self._signed(url_key, url)

    def _unsecured(self, key: str) -> BearerSettings:
        skew = self._options.get(f"{_VALIDATOR}AllowableClockSkewMs", "0")
        if not (skew.isascii() and skew.isdecimal() and len(skew) < 16):
            raise ConfigError(
                f"{self._module_key} has the option {_VALIDATOR}AllowableClockSkewMs, which must be a whole number"
            )
        rules = TokenRules(
            skew_ms=int(skew),
            user_claim=self._options.get(f"{_VALIDATOR}PrincipalClaimName") or "sub",
            scope_claim=self._options.get(f"{_VALIDATOR}ScopeClaimName") or "scope",
            required_scopes=frozenset(self._options.get(f"{_VALIDATOR}RequiredScope", "").split()),
            needs_issue_time=False,
        )
        remark = f"{key} is true: whoever asks a listener for it is let in as any user by {OAUTHBEARER}"
        return BearerSettings(rules, None, (remark,))

    def _signed(self, url_key: str, url: str) -> BearerSettings:
        for option in self._options:
            if option.startswith(_VALIDATOR):
                raise ConfigError(
                    f"{self._module_key} has the option {option!r}, which is for tokens without a signature: "
                    f"{url_key} is given"
                )
        remarks = self._check_url(url_key, url)
        issuer = self._expected(
            "sasl.oauthbearer.expected.issuer", "sasl.oauthbearer.allow.unverified.issuer", remarks
        )
        audiences = self._expected(
            "sasl.oauthbearer.expected.audience", "sasl.oauthbearer.allow.unverified.audience", remarks
        )
        rules = TokenRules(
            issuer=issuer or None,
            audiences=frozenset(filter(None, map(str.strip, audiences.split(",")))),
            skew_ms=1000 * self._number("sasl.oauthbearer.clock.skew.seconds"),
            user_claim=str(self._value("sasl.oauthbearer.sub.claim.name")),
            scope_claim=str(self._value("sasl.oauthbearer.scope.claim.name")),
        )
        source = KeySource(
            url,
            self._trusted(),
            self._number("sasl.oauthbearer.jwks.endpoint.refresh.ms"),
            self._number("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms"),
            self._number("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms"),
        )
        return BearerSettings(rules, source, tuple(remarks))

    def _expected(self, key: str, waiver: str, remarks: list[str]) -> str:
        """Return the text of a key for the expected issuer or audiences. As in Kafka, the key is required unless the
        option `waiver` is true; then the result is empty and a remark is added.
        """
        _, text = self._find(key)
        if text:
            return text
        if not self._truth(waiver):
            raise ConfigError(
                f"{self._prefix}{key} is missing: tokens would be taken that were not meant for this listener; "
                f"{waiver}=true says that they may be"
            )
        remarks.append(
            f"{waiver} is true: it is not checked who gave a token, or for whom, if its signature is right"
        )
        return ""

    def _check_url(self, key: str, url: str) -> list[str]:
        """Check the URL of an authorization server's keys, and return remarks to be logged. Raises ConfigError if the
        URL cannot or must not be requested.
        """
        try:
            parts = urlsplit(url)
            _ = parts.port
        except ValueError as error:
            raise ConfigError(f"{key} is {url!r}: {error}") from None
        if parts.username is not None or parts.password is not None:
            raise ConfigError(f"{key} has a user or a password in it, which are not sent")
        if parts.scheme == "file":
            self._check_file(key, parts)
            return []
        if parts.scheme not in ("http", "https") or not parts.hostname or not url.isascii() or " " in url:
            raise ConfigError(
                f"{key} is {url!r}: it must be https://HOST/PATH, http://HOST/PATH or file:///PATH"
            )
        allowed = self._allowed("sasl.oauthbearer.allowed.urls")
        if allowed is not None and url not in allowed:
            raise ConfigError(f"{key} is {url!r}, which sasl.oauthbearer.allowed.urls does not list")
        if parts.scheme == "http" and not is_loopback(parts.hostname):
            return [f"{key} is {url}: whoever is on the way to there can make tokens; https would prevent it"]
        return []

    def _check_file(self, key: str, parts: SplitResult) -> None:
        path = Path(unquote(parts.path))
        if parts.netloc not in ("", "localhost") or not path.is_absolute():
            raise ConfigError(f"{key} must name a file of this machine: file:///PATH")
        allowed = self._allowed("sasl.oauthbearer.allowed.files")
        real = path.resolve()
        if allowed is not None and not any(real.is_relative_to(Path(folder).resolve()) for folder in allowed):
            raise ConfigError(f"{key} names {path}, which sasl.oauthbearer.allowed.files does not list")

    def _allowed(self, key: str) -> list[str] | None:
        text = self._properties.get(key)
        return None if text is None else [part.strip() for part in text.split(",") if part.strip()]

    def _trusted(self) -> StoreSource | None:
        """Return the trust store for connections to the authorization server, from options with the names of listeners'
        keys.
        """
        location = self._options.get("ssl.truststore.location")
        text = self._options.get("ssl.truststore.certificates", "")
        declared = self._options.get("ssl.truststore.type")
        if location and text:
            raise ConfigError(
                f"{self._module_key} has both ssl.truststore.location and ssl.truststore.certificates"
            )
        if declared is not None and declared not in _STORES:
            raise ConfigError(
                f"{self._module_key} has an ssl.truststore.type that is none of {', '.join(_STORES)}"
            )
        if not (location or text):
            return None
        option = "ssl.truststore.location" if location else "ssl.truststore.certificates"
        source = StoreSource(
            option=f"{option} in {self._module_key}",
            path=Path(location) if location else None,
            declared=StoreType(declared) if declared else None,
            password=self._options.get("ssl.truststore.password"),
            password_option="ssl.truststore.password",
            certificates=text,
        )
        # A late import: few configurations have a separate trust store.
        from ...network.tls.stores import load_trust_store

        try:
            load_trust_store(source)
        except TlsUnusable as error:
            raise ConfigError(str(error)) from None
        return source

    def _truth(self, key: str) -> bool:
        return self._value(key) is True

    def _number(self, key: str) -> int:
        value = self._value(key)
        assert isinstance(value, int), f"{key} is no whole number by its type"
        return value

    def _value(self, key: str) -> object:
        """Return the parsed value of a configuration key, or its default; None if it has neither. Raises ConfigError,
        which names the form of the key that is given.
        """
        found, text = self._find(key)
        declared = NODE_KEYS[key]
        if not text and declared.default is None:
            return None
        try:
            return declared.parse(text or declared.default or "")
        except ConfigError as error:
            raise ConfigError(f"{found}: {error}") from None
