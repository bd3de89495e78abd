"""Checks that report faults of a key store before a peer meets them in a handshake."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from ipaddress import ip_address

from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from .failures import TlsUnusable
from .settings import ReachedAs
from .stores import KeyStore

_FOR_SERVERS = {ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE}
DAYS_REMARKED = (1, 7, 30)
"""Bounds in days: a certificate that expires within one of them gets a remark."""


def is_valid(store: KeyStore, now: datetime) -> bool:
    """Return whether no certificate of the key store's chain has expired at `now`."""
    return all(certificate.not_valid_after_utc > now for certificate in store.chain)


def check_validity(store: KeyStore, now: datetime) -> Iterator[str]:
    """Yield warnings for the log about certificates that expire soon or are not valid yet. Raises TlsUnusable for an
    expired certificate."""
    for certificate in store.chain:
        end, begin = certificate.not_valid_after_utc, certificate.not_valid_before_utc
        name = subject_of(certificate)
        if end <= now:
            raise TlsUnusable(
                f"{store.source}: the certificate of {name} has expired on {end:%Y-%m-%d %H:%M} UTC"
            )
        if begin > now:
            yield f"{store.source}: the certificate of {name} is not valid before {begin:%Y-%m-%d %H:%M} UTC"
        days = (end - now).days
        within = next((most for most in DAYS_REMARKED if days < most), None)
        if within is not None:
            yield (
                f"{store.source}: the certificate of {name} expires on {end:%Y-%m-%d %H:%M} UTC, "
                f"in less than {within} day{'s' if within > 1 else ''}"
            )


def check_server_use(store: KeyStore, reached: ReachedAs | None) -> Iterator[str]:
    """Yield warnings for the log about a server's certificate, such as a missing name. Raises TlsUnusable if it is for
    other uses only.

    `reached` is the name that clients dial, or None if no name is known.
    """
    certificate, name = store.certificate, subject_of(store.certificate)
    try:
        usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        usage = None
    if usage is not None and not _FOR_SERVERS & set(usage):
        raise TlsUnusable(
            f"{store.source}: the certificate of {name} is not for servers: its extended key usage lacks serverAuth"
        )
    if reached is None:
        return
    names = alternative_names(certificate)
    if not names:
        yield (
            f"{store.source}: the certificate of {name} has no subject alternative name: whoever dials "
            f"{reached.host}, {reached.told}, and checks the name refuses it"
        )
    elif not any(_covers(pattern, reached.host) for pattern in names):
        yield (
            f"{store.source}: the certificate of {name} is for {', '.join(names)} and not for {reached.host}, "
            f"{reached.told}: whoever checks the name refuses it"
        )


def alternative_names(certificate: x509.Certificate) -> list[str]:
    """Return the host names and addresses among the subject alternative names."""
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return [
        *found.get_values_for_type(x509.DNSName),
        *(str(address) for address in found.get_values_for_type(x509.IPAddress)),
    ]


def subject_of(certificate: x509.Certificate) -> str:
    """Return the certificate's owner as text for people."""
    return repr(certificate.subject.rfc4514_string() or "(an empty name)")


def _covers(pattern: str, host: str) -> bool:
    try:
        return ip_address(host) == ip_address(pattern)
    except ValueError:
        pass
    pattern, host = pattern.lower().rstrip("."), host.lower().rstrip(".")
    if pattern.startswith("*."):
        label, dot, rest = host.partition(".")
        return bool(label and dot) and rest == pattern[2:]
    return pattern == host
