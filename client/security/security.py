"""The security of a client's connections: TLS and the login."""

from __future__ import annotations

import ipaddress
import logging
import os

from ...protocol.credentials.scram import SCRAM_MECHANISMS
from ...protocol.messages.sasl import GSSAPI, OAUTHBEARER
from .kerberos import KerberosClientLogin
from .logins import BearerClientLogin, ClientLogin, PlainClientLogin, ScramClientLogin
from .oauth import BearerTokens, ClientCredentials
from .options import SecurityOptions
from .tls import ClientTls, TlsFiles

logger = logging.getLogger(__name__)


class Security:
    """The TLS and the login that all connections of a client share; at least one of both is set."""

    def __init__(self, tls: ClientTls | None, login: ClientLogin | None) -> None:
        self.tls = tls
        self.login = login
        self._has_warned = False

    @property
    def user(self) -> str | None:
        """The user's name for the login, if the client knows it."""
        return None if self.login is None else self.login.user

    def warn_of_readable_password(self, peer: str) -> None:
        """Warn once if a password is about to be sent unencrypted to another machine."""
        if self.tls is not None or self.login is None or not self.login.shows_password or self._has_warned:
            return
        try:
            if ipaddress.ip_address(peer.partition("%")[0]).is_loopback:
                return
        except ValueError:
            return  # not an IP address: a socket of this machine
        self._has_warned = True
        logger.warning(
            "the password of %r goes to %s unencrypted (SASL_PLAINTEXT, %s): anyone on the way can read it",
            self.login.user, peer, self.login.mechanism,
        )  # fmt: skip


def security_of(options: SecurityOptions) -> Security | None:
    """Return the security of connections; None for PLAINTEXT.

    Raises ValueError for files that cannot be used. Certificates are loaded here, so an error is raised when the client
    is created.
    """
    if options.security_protocol == "PLAINTEXT":
        return None
    return Security(_tls(options) if options.has_tls else None, _login(options) if options.has_sasl else None)


def _tls(options: SecurityOptions) -> ClientTls:
    files = TlsFiles(
        cafile=_path(options.ssl_cafile),
        cadata=options.ssl_cadata,
        certfile=_path(options.ssl_certfile),
        certdata=options.ssl_certdata,
        keyfile=_path(options.ssl_keyfile),
        keydata=options.ssl_keydata,
        password=options.ssl_password,
        crlfile=_path(options.ssl_crlfile),
        ciphers=options.ssl_ciphers,
        checks_names=options.ssl_check_hostname,
    )
    return ClientTls(files, options.ssl_context)


def _login(options: SecurityOptions) -> ClientLogin:
    user, password = options.sasl_plain_username or "", options.sasl_plain_password or ""
    if options.sasl_mechanism == "PLAIN":
        return PlainClientLogin(user, password)
    if options.sasl_mechanism == GSSAPI:
        return KerberosClientLogin(
            options.sasl_kerberos_service_name,
            options.sasl_kerberos_domain_name,
            options.sasl_kerberos_principal,
            _path(options.sasl_kerberos_keytab),
        )
    if options.sasl_mechanism != OAUTHBEARER:
        mechanism = SCRAM_MECHANISMS[options.sasl_mechanism or ""]
        return ScramClientLogin(mechanism, user, password, with_token=options.sasl_token_auth)
    provider = options.sasl_oauth_token_provider or ClientCredentials(
        url=options.sasl_oauthbearer_token_endpoint_url or "",
        client_id=options.sasl_oauthbearer_client_id or "",
        client_secret=options.sasl_oauthbearer_client_secret or "",
        scope=options.sasl_oauthbearer_scope,
        cafile=_path(options.ssl_cafile),
    )
    return BearerClientLogin(BearerTokens(provider), options.sasl_oauthbearer_extensions or {})


def _path(given: str | os.PathLike[str] | None) -> str | None:
    return None if given is None else os.fspath(given)
