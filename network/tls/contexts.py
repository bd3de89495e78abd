"""Functions that make `ssl.SSLContext` objects from loaded key and trust stores and TLS settings."""

from __future__ import annotations

import ssl
from collections.abc import Sequence

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from .cipher_suites import openssl_ciphers
from .failures import TlsUnusable
from .memory_file import in_memory
from .settings import PROTOCOLS, ClientAuth, TlsRules
from .stores import KeyStore, TrustStore

_VERIFY = {
    ClientAuth.NONE: ssl.CERT_NONE,
    ClientAuth.REQUESTED: ssl.CERT_OPTIONAL,
    ClientAuth.REQUIRED: ssl.CERT_REQUIRED,
}


def server_context(rules: TlsRules, keys: KeyStore, trusted: TrustStore | None) -> ssl.SSLContext:
    """Return the context for accepted connections. Without a trust store no client certificate is believed. Raises
    TlsUnusable."""
    context = _context(ssl.PROTOCOL_TLS_SERVER, rules)
    context.verify_mode = _VERIFY[rules.client_auth]
    # A resumed session skips the certificate check, and the certificate might have been revoked since.
    if rules.client_auth is not ClientAuth.NONE:
        context.num_tickets = 0
        context.options |= ssl.OP_NO_TICKET
    _trust(context, trusted)
    _revoke(context, rules)
    _load_keys(context, keys)
    return context


def client_context(rules: TlsRules, keys: KeyStore | None, trusted: TrustStore | None) -> ssl.SSLContext:
    """Return the context for dialled connections. Without a trust store the system's certificates are believed. Raises
    TlsUnusable."""
    context = _context(ssl.PROTOCOL_TLS_CLIENT, rules)
    context.check_hostname = rules.checks_names
    if trusted is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    _trust(context, trusted)
    _revoke(context, rules)
    if keys is not None:
        _load_keys(context, keys)
    return context


def _context(protocol: ssl._SSLMethod, rules: TlsRules) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    named = [name for name in PROTOCOLS if name in rules.protocols]
    if not named:
        raise TlsUnusable(f"{rules.protocols_option}: names none of {', '.join(PROTOCOLS)}")
    context.minimum_version, context.maximum_version = PROTOCOLS[named[0]], PROTOCOLS[named[-1]]
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    # A connection that ends without TLS's close_notify was cut off, maybe by a third party.
    context.options &= ~ssl.OP_IGNORE_UNEXPECTED_EOF
    if rules.key_log is not None:
        try:
            context.keylog_filename = str(rules.key_log)
        except OSError as error:
            raise TlsUnusable(
                f"{rules.key_log_option}: {rules.key_log} cannot be written: {error.strerror}"
            ) from None
    if rules.cipher_suites:
        ciphers = openssl_ciphers(
            rules.cipher_suites,
            rules.suites_option,
            with_tls12="TLSv1.2" in named,
            with_tls13="TLSv1.3" in named,
        )
        if ciphers is not None:
            _set_ciphers(context, ciphers, rules)
    return context


def _set_ciphers(context: ssl.SSLContext, ciphers: str, rules: TlsRules) -> None:
    for suite in ciphers.split(":"):
        try:
            context.set_ciphers(suite)  # given a list, OpenSSL ignores unknown suites
        except ssl.SSLError:
            raise TlsUnusable(f"{rules.suites_option}: this OpenSSL has no {suite}") from None
    context.set_ciphers(ciphers)


def _trust(context: ssl.SSLContext, trusted: TrustStore | None) -> None:
    # As in Java, each certificate of a trust store is believed by itself, even if it is not a root.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if trusted is None:
        return
    try:
        context.load_verify_locations(cadata=_pem(trusted.certificates))
    except ssl.SSLError as error:
        raise TlsUnusable(
            f"{trusted.source}: OpenSSL refuses a certificate in it: {error.reason or error}"
        ) from None


def _revoke(context: ssl.SSLContext, rules: TlsRules) -> None:
    if rules.crl is None:
        return
    try:
        context.load_verify_locations(cafile=str(rules.crl))
    except OSError as error:
        raise TlsUnusable(
            f"{rules.crl_option}: {rules.crl}: cannot be read as revocation lists in PEM: {error}"
        ) from None
    context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF


def _load_keys(context: ssl.SSLContext, keys: KeyStore) -> None:
    plain = keys.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    try:
        with in_memory(plain + _pem(keys.chain).encode()) as path:
            context.load_cert_chain(path)
    except ssl.SSLError as error:
        raise TlsUnusable(
            f"{keys.source}: OpenSSL refuses the key or its chain: {error.reason or error}"
        ) from None


def _pem(certificates: Sequence[x509.Certificate]) -> str:
    return "".join(certificate.public_bytes(Encoding.PEM).decode() for certificate in certificates)
