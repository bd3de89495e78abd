"""The options for connections to a secured cluster, and the rules for their combination. Pure; `security` turns them
into the objects that connections need."""

from __future__ import annotations

import os
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, Literal, Protocol, TypedDict

from ...protocol.credentials.scram import SCRAM_MECHANISMS
from ...protocol.messages.sasl import GSSAPI, OAUTHBEARER
from ...protocol.nearest import nearest
from ..declared_options import optional

SecurityProtocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
SaslMechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI"]
Password = str | Callable[[], str] | Callable[[], Awaitable[str]]
"""A password, or a function that is called at each login, once for concurrent logins. While calls fail, the last
password is used."""

Token = str | tuple[str, float]
"""A token, with its expiry in seconds since 1970 if that is known."""


class TokenProvider(Protocol):
    """A provider of tokens that a program implements; aiokafka and kafka-python use the same interface.

    It may also have a method `extensions()` that returns a mapping (KIP-342).
    """

    def token(self) -> Token | Awaitable[Token]:
        """Return a token that is valid now, directly or as a coroutine. A method that is not async is called in a
        thread.

        It is called at each login, once for concurrent logins. A token with an expiry is kept for three quarters of its
        life. While calls fail, the last token is used until it expires.
        """


_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MECHANISMS = ("PLAIN", *SCRAM_MECHANISMS, OAUTHBEARER, GSSAPI)
_BY_PASSWORD: Final = "PLAIN and SCRAM"
_OWNERS: Final = {"sasl_oauth": OAUTHBEARER, "sasl_kerberos": GSSAPI}
"""The mechanism of the options that begin with a prefix; all other options belong to the mechanisms with a password."""


class SecurityKeywords(TypedDict, total=False):
    """The keyword arguments of SecurityOptions, for type checkers."""

    security_protocol: SecurityProtocol
    ssl_context: ssl.SSLContext | None
    ssl_cafile: str | os.PathLike[str] | None
    ssl_cadata: str | None
    ssl_certfile: str | os.PathLike[str] | None
    ssl_certdata: str | None
    ssl_keyfile: str | os.PathLike[str] | None
    ssl_keydata: str | None
    ssl_password: str | None
    ssl_crlfile: str | os.PathLike[str] | None
    ssl_ciphers: str | None
    ssl_check_hostname: bool
    sasl_mechanism: SaslMechanism | None
    sasl_plain_username: str | None
    sasl_plain_password: Password | None
    sasl_token_auth: bool
    sasl_oauth_token_provider: TokenProvider | None
    sasl_oauthbearer_token_endpoint_url: str | None
    sasl_oauthbearer_client_id: str | None
    sasl_oauthbearer_client_secret: str | None
    sasl_oauthbearer_scope: str | None
    sasl_oauthbearer_extensions: Mapping[str, str] | None
    sasl_kerberos_service_name: str
    sasl_kerberos_domain_name: str | None
    sasl_kerberos_principal: str | None
    sasl_kerberos_keytab: str | os.PathLike[str] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SecurityOptions:
    """Options of secured clusters, common to all clients. Secrets are not part of the repr."""

    security_protocol: SecurityProtocol = optional(
        "PLAINTEXT",
        "Protocol of the brokers' listener. Options of TLS need SSL or SASL_SSL, options of logins SASL_PLAINTEXT or "
        "SASL_SSL.",
    )
    ssl_context: ssl.SSLContext | None = optional(
        None, "Context of the program, in place of all other options that begin with `ssl_`."
    )
    ssl_cafile: str | os.PathLike[str] | None = optional(
        None, "File with the trusted authorities, in PEM. None: `ssl_cadata`, or the system's authorities."
    )
    ssl_cadata: str | None = optional(None, "Text with the trusted authorities, in PEM.")
    ssl_certfile: str | os.PathLike[str] | None = optional(
        None, "File with the client's certificate and its chain, in PEM. It may also hold the key."
    )
    ssl_certdata: str | None = optional(None, "Text with the client's certificate and its chain, in PEM.")
    ssl_keyfile: str | os.PathLike[str] | None = optional(
        None, "File with the private key of the client's certificate, in PEM."
    )
    ssl_keydata: str | None = optional(
        None, "Text with the private key of the client's certificate, in PEM.", is_secret=True
    )
    ssl_password: str | None = optional(None, "Password of the private key.", is_secret=True)
    ssl_crlfile: str | os.PathLike[str] | None = optional(None, "File with revoked certificates, in PEM.")
    ssl_ciphers: str | None = optional(
        None, "Ciphers of TLS 1.2, by OpenSSL's names. None: OpenSSL's choice."
    )
    ssl_check_hostname: bool = optional(
        True, "Whether a broker's certificate must have the name that the client connects to."
    )
    sasl_mechanism: SaslMechanism | None = optional(
        None, "Mechanism of logins; required with SASL_PLAINTEXT and SASL_SSL."
    )
    sasl_plain_username: str | None = optional(None, "Name of the user, for PLAIN and SCRAM.")
    sasl_plain_password: Password | None = optional(
        None,
        "Password, for PLAIN and SCRAM: a text, or a function or coroutine function that is called at each login.",
        is_secret=True,
    )
    sasl_token_auth: bool = optional(
        False, "Whether user name and password are the id and the HMAC of a delegation token (SCRAM)."
    )
    sasl_oauth_token_provider: TokenProvider | None = optional(
        None,
        "Object whose method `token()`, plain or async, returns a token, or a token and its end in seconds since 1970. "
        "For OAUTHBEARER.",
        is_secret=True,
    )
    sasl_oauthbearer_token_endpoint_url: str | None = optional(
        None,
        "Address of an authorization server that grants tokens by client credentials, in place of a provider. It must "
        "be https, except on loopback.",
    )
    sasl_oauthbearer_client_id: str | None = optional(None, "Id of the client at the authorization server.")
    sasl_oauthbearer_client_secret: str | None = optional(
        None, "Secret of the client at the authorization server.", is_secret=True
    )
    sasl_oauthbearer_scope: str | None = optional(
        None, "Scope that the client asks the authorization server for."
    )
    sasl_oauthbearer_extensions: Mapping[str, str] | None = optional(
        None, "Mapping that is sent with each token (KIP-342)."
    )
    sasl_kerberos_service_name: str = optional("kafka", "First part of the brokers' principal, for GSSAPI.")
    sasl_kerberos_domain_name: str | None = optional(
        None, "Host in the brokers' principal. None: the host that the client connects to."
    )
    sasl_kerberos_principal: str | None = optional(
        None, "Principal of the user. None: the principal of the tickets of `kinit`."
    )
    sasl_kerberos_keytab: str | os.PathLike[str] | None = optional(
        None, "File with the key of `sasl_kerberos_principal`. None: the tickets of `kinit`."
    )

    def __post_init__(self) -> None:
        """Raise ValueError that names an invalid option or combination."""
        if self.security_protocol not in _PROTOCOLS:
            raise ValueError(
                f"security_protocol is {', '.join(_PROTOCOLS[:-1])} or {_PROTOCOLS[-1]}, not {self.security_protocol!r}"
            )
        given = [option.name for option in fields(self) if getattr(self, option.name) != option.default]
        self._check_families(given)
        self._check_tls(given)
        if self.has_sasl:
            self._check_sasl(given)

    @property
    def has_tls(self) -> bool:
        """True if connections are encrypted."""
        return self.security_protocol.endswith("SSL")

    @property
    def has_sasl(self) -> bool:
        """True if the client logs in."""
        return self.security_protocol.startswith("SASL")

    def _check_families(self, given: list[str]) -> None:
        for family, is_used, protocols in (
            ("ssl_", self.has_tls, "SSL or SASL_SSL"),
            ("sasl_", self.has_sasl, "SASL_PLAINTEXT or SASL_SSL"),
        ):
            named = next((option for option in given if option.startswith(family)), None)
            if named is not None and not is_used:
                raise ValueError(f"{named} needs security_protocol {protocols}, not {self.security_protocol}")

    def _check_tls(self, given: list[str]) -> None:
        if self.ssl_context is not None:
            other = next(
                (option for option in given if option.startswith("ssl_") and option != "ssl_context"), None
            )
            if other is not None:
                raise ValueError(f"ssl_context brings its own rules and certificates: it excludes {other}")
        for option in ("ssl_keyfile", "ssl_keydata", "ssl_password"):
            if option in given and self.ssl_certfile is None and self.ssl_certdata is None:
                raise ValueError(f"{option} belongs to a certificate: it needs ssl_certfile or ssl_certdata")
        for file, data in (("ssl_certfile", "ssl_certdata"), ("ssl_keyfile", "ssl_keydata")):
            if file in given and data in given:
                raise ValueError(f"{file} and {data} are both given: one of them suffices")
        if self.ssl_certdata is not None:
            if "PRIVATE KEY" in self.ssl_certdata:
                raise ValueError(
                    "ssl_certdata holds a private key, which is a secret: it goes into ssl_keydata"
                )
            if self.ssl_keyfile is None and self.ssl_keydata is None:
                raise ValueError(
                    "ssl_certdata needs the certificate's private key: ssl_keydata or ssl_keyfile"
                )

    def _check_sasl(self, given: list[str]) -> None:
        mechanism = self.sasl_mechanism
        if mechanism is None:
            raise ValueError(
                f"security_protocol {self.security_protocol} needs a sasl_mechanism: {', '.join(_MECHANISMS)}"
            )
        if mechanism not in _MECHANISMS:
            raise ValueError(f"sasl_mechanism {mechanism!r}: {_no_mechanism(mechanism)}")
        own = mechanism if mechanism in _OWNERS.values() else _BY_PASSWORD
        for option in given:
            if not option.startswith("sasl_") or option == "sasl_mechanism":
                continue
            owner = next(
                (owner for prefix, owner in _OWNERS.items() if option.startswith(prefix)), _BY_PASSWORD
            )
            if owner != own:
                raise ValueError(f"{option} is for {owner}, not for sasl_mechanism {mechanism}")
        if mechanism == OAUTHBEARER:
            self._check_oauth()
        elif mechanism == GSSAPI:
            self._check_kerberos()
        else:
            self._check_user()

    def _check_user(self) -> None:
        for name in ("sasl_plain_username", "sasl_plain_password"):
            value = getattr(self, name)
            if value is None or value == "":
                raise ValueError(f"sasl_mechanism {self.sasl_mechanism} needs {name}")
            if isinstance(value, str) and "\0" in value:
                raise ValueError(f"{name} has a zero character, which no broker takes")
            if not isinstance(value, str) and not callable(value):
                raise ValueError(f"{name} is a text, or is called for one, and not a {type(value).__name__}")
        if self.sasl_token_auth and self.sasl_mechanism not in SCRAM_MECHANISMS:
            raise ValueError(
                "sasl_token_auth, a login with a delegation token, needs sasl_mechanism SCRAM-SHA-256 or "
                f"SCRAM-SHA-512, not {self.sasl_mechanism}"
            )

    def _check_kerberos(self) -> None:
        if not self.sasl_kerberos_service_name or "/" in self.sasl_kerberos_service_name:
            raise ValueError(
                "sasl_kerberos_service_name is the first part of the brokers' principal, as kafka, not "
                f"{self.sasl_kerberos_service_name!r}"
            )
        if self.sasl_kerberos_keytab is not None and self.sasl_kerberos_principal is None:
            raise ValueError("sasl_kerberos_keytab needs sasl_kerberos_principal, whose key it holds")

    def _check_oauth(self) -> None:
        provider, url = self.sasl_oauth_token_provider, self.sasl_oauthbearer_token_endpoint_url
        if (provider is None) == (url is None):
            both = "both of them are given" if url is not None else "neither is given"
            raise ValueError(
                "sasl_mechanism OAUTHBEARER needs either sasl_oauth_token_provider or "
                f"sasl_oauthbearer_token_endpoint_url; {both}"
            )
        if provider is not None:
            if not callable(getattr(provider, "token", None)):
                raise ValueError(
                    f"sasl_oauth_token_provider is an object with a method token(), not a {type(provider).__name__}"
                )
            for name in ("client_id", "client_secret", "scope"):
                if getattr(self, f"sasl_oauthbearer_{name}") is not None:
                    raise ValueError(f"sasl_oauthbearer_{name} needs sasl_oauthbearer_token_endpoint_url")
            return
        for name in ("sasl_oauthbearer_client_id", "sasl_oauthbearer_client_secret"):
            if not getattr(self, name):
                raise ValueError(f"sasl_oauthbearer_token_endpoint_url needs {name}")


def _no_mechanism(given: Any) -> str:
    meant = nearest(str(given).upper(), _MECHANISMS)
    return f"did you mean {meant!r}?" if meant else f"there are {', '.join(_MECHANISMS)}"
