"""The reason why a TLS handshake failed, in words that show whom to ask.

OpenSSL says only that the certificate was refused. So its facts are read by another connection that accepts any
certificate, sends nothing, and is closed at once.
"""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress
from datetime import UTC, datetime

from ...network.dialing import connected_socket
from .tls import ClientTls

LOOK_S = 3.0
"""Maximum time in seconds for the second connection."""

_EXPIRED, _NOT_YET = 10, 9
_NAME_MISMATCH = (62, 64)
_UNTRUSTED = (18, 19, 20, 21)
_REVOKED, _NO_CRL = 23, 3
_NO_TLS = (
    "WRONG_VERSION_NUMBER",
    "PACKET_LENGTH_TOO_LONG",
    "RECORD_LAYER_FAILURE",
    "HTTP_REQUEST",
    "UNKNOWN_PROTOCOL",
)
_WANTS_CERTIFICATE = ("CERTIFICATE_REQUIRED", "BAD_CERTIFICATE", "HANDSHAKE_FAILURE")


async def refused_certificate(
    error: ssl.SSLCertVerificationError, host: str, port: int, tls: ClientTls
) -> str:
    """Return the fault of the broker's certificate: OpenSSL's reason, the subject, the issuer, the expiry, and the
    names that it is valid for."""
    certificate = await _look(host, port)
    facts = {} if certificate is None else _facts(certificate)
    code = error.verify_code
    if code == _EXPIRED:
        what = f"the certificate of {host} expired{_on(facts, 'not after')}"
    elif code == _NOT_YET:
        what = (
            f"the certificate of {host} is not valid before{_on(facts, 'not before') or ' some later time'}"
        )
    elif code in _NAME_MISMATCH:
        names = facts.get("names") or "other names"
        what = f"the certificate of {host} is for {names}, and not for {host} (ssl_check_hostname)"
    elif code in _UNTRUSTED:
        what = (
            f"the certificate of {host} is not signed by anyone whom the client trusts: that is {tls.trusted}"
        )
    elif code == _REVOKED:
        what = f"the certificate of {host} was revoked"
    elif code == _NO_CRL:
        what = f"ssl_crlfile has no revocation list of the issuer of the certificate of {host}"
    else:
        what = f"the certificate of {host} is refused"
    reasons = [f"OpenSSL: {error.verify_message}"]
    reasons += [
        f"{name}: {facts[name]}" for name in ("subject", "issuer", "not after", "names") if name in facts
    ]
    return f"{what} ({'; '.join(reasons)})"


def broken_handshake(error: ssl.SSLError) -> str:
    """Return the meaning of a failure that does not concern the broker's certificate."""
    reason = error.reason or ""
    said = reason.replace("_", " ").lower() or str(error)
    if any(reason.endswith(end) for end in _NO_TLS):
        return f"this broker does not speak TLS on that port (OpenSSL: {said})"
    if "ALERT" in reason:
        alert = said.partition("alert ")[2] or said
        hint = ""
        if reason.endswith(_WANTS_CERTIFICATE):
            hint = (
                "; it may want a certificate of the client (ssl_certfile), or may not speak TLS on that port"
            )
        elif reason.endswith(
            ("UNKNOWN_CA", "CERTIFICATE_UNKNOWN", "CERTIFICATE_EXPIRED", "CERTIFICATE_REVOKED")
        ):
            hint = "; it does not believe the certificate of the client (ssl_certfile)"
        return f"the broker ended the TLS handshake with {alert!r}{hint}"
    return f"the TLS handshake failed (OpenSSL: {said})"


async def _look(host: str, port: int) -> bytes | None:
    """Return the broker's certificate in DER; None if it is unavailable."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with suppress(OSError, TimeoutError):
        async with asyncio.timeout(LOOK_S):
            transport, _ = await asyncio.get_running_loop().create_connection(
                asyncio.Protocol, sock=await connected_socket(host, port), ssl=context, server_hostname=host
            )
            found: bytes | None = transport.get_extra_info("ssl_object").getpeercert(binary_form=True)
            transport.abort()
            return found
    return None


def _facts(der: bytes) -> dict[str, str]:
    from cryptography import x509  # loaded late: only failures need it

    try:
        certificate = x509.load_der_x509_certificate(der)
        facts = {
            "subject": certificate.subject.rfc4514_string() or "an empty name",
            "issuer": certificate.issuer.rfc4514_string() or "an empty name",
            "not before": _time(certificate.not_valid_before_utc),
            "not after": _time(certificate.not_valid_after_utc),
        }
        names = _names(certificate)
    except ValueError:
        return {}
    return facts | ({"names": names} if names else {})


def _names(certificate: object) -> str:
    from cryptography import x509

    assert isinstance(certificate, x509.Certificate)
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ""
    named = [*found.get_values_for_type(x509.DNSName), *map(str, found.get_values_for_type(x509.IPAddress))]
    return ", ".join(named[:10]) + (", ..." if len(named) > 10 else "")


def _time(when: datetime) -> str:
    return when.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _on(facts: dict[str, str], name: str) -> str:
    return f" on {facts[name]}" if name in facts else ""
