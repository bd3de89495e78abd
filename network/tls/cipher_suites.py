"""Translation of the names of cipher suites: IANA's and Java's names to OpenSSL's names for TLS 1.2."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from .failures import TlsUnusable

TLS13_SUITES: Final = frozenset(
    {"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"}
)
"""All suites that OpenSSL offers for TLS 1.3. Python cannot leave any of them out."""

_TLS12 = re.compile(
    r"TLS_(?P<exchange>ECDHE_RSA|ECDHE_ECDSA|DHE_RSA|RSA)_WITH_"
    r"(?P<cipher>AES_128|AES_256|CAMELLIA_128|CAMELLIA_256|ARIA_128|ARIA_256|CHACHA20_POLY1305)"
    r"(?:_(?P<mode>GCM|CBC|CCM_8|CCM))?(?:_(?P<digest>SHA256|SHA384|SHA))?"
)


def openssl_ciphers(suites: Sequence[str], option: str, *, with_tls12: bool, with_tls13: bool) -> str | None:
    """Return OpenSSL's cipher string for the suites of TLS 1.2 in the list; None if TLS 1.2 is off.

    Raises TlsUnusable for a list that cannot be enforced.
    """
    missing = sorted(TLS13_SUITES - set(suites))
    if with_tls13 and missing:
        raise TlsUnusable(
            f"{option}: leaves out {', '.join(missing)}, and TLSv1.3 is enabled: its suites cannot be restricted. "
            f"Name all of {', '.join(sorted(TLS13_SUITES))}, or leave TLSv1.3 out of ssl.enabled.protocols"
        )
    older = [suite for suite in suites if suite not in TLS13_SUITES]
    if not with_tls12:
        if older:
            raise TlsUnusable(f"{option}: {older[0]} is of TLSv1.2, which is not enabled")
        return None
    if not older:
        raise TlsUnusable(f"{option}: names no suite of TLSv1.2, which is enabled")
    return ":".join(_openssl_name(suite, option) for suite in older)


def _openssl_name(suite: str, option: str) -> str:
    found = _TLS12.fullmatch(suite)
    if found is None:
        raise TlsUnusable(
            f"{option}: {suite!r} is no suite of TLSv1.2 or TLSv1.3 that can be used here, like "
            "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"
        )
    exchange, cipher, mode, digest = found.group("exchange", "cipher", "mode", "digest")
    parts = [] if exchange == "RSA" else exchange.split("_")
    if cipher == "CHACHA20_POLY1305":
        return "-".join([*parts, "CHACHA20-POLY1305"])
    family, bits = cipher.split("_")
    if family == "AES":
        parts.append(f"AES{bits}")
        parts += [mode.replace("_", "")] if mode in ("GCM", "CCM", "CCM_8") else []
    elif mode == "CBC":
        parts.append(f"{family}{bits}")
    else:
        parts += [f"{family}{bits}", mode or ""]
    parts += [digest] if digest and mode not in ("CCM", "CCM_8") else []
    return "-".join(parts)
