"""JSON Web Tokens (RFC 7519) of unauthenticated peers: parsed with limits, and their claims checked by rules.

The rules follow Kafka's `BrokerJwtValidator` and `OAuthBearerUnsecuredJws`. They are stricter than Kafka's: a token has
a maximum size, no name may occur twice in it, and critical extensions are refused.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from .settings import TokenRules

TOKEN_BYTES_MAX: Final = 16 * 1024
KEY_ID_CHARACTERS_MAX: Final = 1000
UNSIGNED: Final = "none"
_SHOWN_CHARACTERS: Final = 100
_BLANK: Final = "".join(map(chr, range(33)))
"""The characters that Java's `trim` removes: Kafka removes them from users' names."""
_LATEST_S: Final = 253_402_300_799
"""The end of the year 9999 in seconds since 1970; later expiries are replaced by it."""


class TokenRefused(Exception):
    """An error: a token is invalid. The text is for the broker's log. `status` is sent to the client (RFC 6750)."""

    def __init__(self, reason: str, status: str = "invalid_token", scope: str = "") -> None:
        super().__init__(reason)
        self.status = status
        self.scope = scope


@dataclass(frozen=True, slots=True)
class Token:
    """A parsed JSON Web Token: header fields, claims and signature. Neither signature nor claims were checked yet."""

    algorithm: str
    key_id: str | None
    claims: Mapping[str, Any]
    signed: bytes
    """Bytes that the signature covers."""
    signature: bytes

    def claimed_user(self, rules: TokenRules) -> str:
        """Return the user in the token's user claim, unchecked; empty if it has none."""
        user = self.claims.get(rules.user_claim)
        return user if isinstance(user, str) else ""


@dataclass(frozen=True, slots=True)
class Bearer:
    """The result of a valid token: its user, and its expiry in milliseconds since 1970."""

    user: str
    expires_at_ms: int


def read_token(text: str) -> Token:
    """Parse a token in compact form (three base64url parts). Raises TokenRefused if it is malformed or too large."""
    if len(text) > TOKEN_BYTES_MAX:
        raise TokenRefused(f"it has {len(text)} bytes, allowed are {TOKEN_BYTES_MAX}")
    parts = text.split(".")
    if len(parts) != 3:
        raise TokenRefused(f"it has {len(parts)} parts, it must have 3")
    header = _object("its header", parts[0])
    if "crit" in header:
        raise TokenRefused("its header has critical extensions, and there are none here")
    algorithm, key_id = header.get("alg"), header.get("kid")
    if not isinstance(algorithm, str):
        raise TokenRefused("its header names no algorithm")
    if key_id is not None and (not isinstance(key_id, str) or len(key_id) > KEY_ID_CHARACTERS_MAX):
        raise TokenRefused(f"its key id is no text of at most {KEY_ID_CHARACTERS_MAX} characters")
    return Token(
        algorithm,
        key_id,
        _object("its payload", parts[1]),
        ".".join(parts[:2]).encode(),
        _decoded("its signature", parts[2]),
    )


def check_unsigned(token: Token) -> None:
    """Raise TokenRefused unless the token declares the algorithm "none" and has no signature."""
    if token.algorithm != UNSIGNED or token.signature:
        raise TokenRefused(f"it is signed by {shown(token.algorithm)}, and nothing here could check that")


def check_claims(token: Token, rules: TokenRules, now_ms: float) -> Bearer:
    """Return the user and expiry of a token whose claims satisfy the rules at `now_ms` (milliseconds since 1970).
    Raises TokenRefused.
    """
    claims = token.claims
    expires_s = _time(claims, "exp", is_required=True)
    assert expires_s is not None
    _check_times(claims, expires_s, rules, now_ms)
    if rules.issuer is not None and claims.get("iss") != rules.issuer:
        raise TokenRefused(f"its issuer is {shown(claims.get('iss'))}, expected is {shown(rules.issuer)}")
    _check_audience(claims, rules)
    _check_scopes(claims, rules)
    user = claims.get(rules.user_claim)
    if not isinstance(user, str) or not (name := user.strip(_BLANK)):
        raise TokenRefused(f"its claim {rules.user_claim} is {shown(user)}, it must be the name of a user")
    return Bearer(name, 1000 * int(expires_s))


def shown(value: object) -> str:
    """Return a value from a peer's token as text for a log: escaped, and shortened."""
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."


def _check_times(claims: Mapping[str, Any], expires_s: float, rules: TokenRules, now_ms: float) -> None:
    now_s, skew_s = now_ms / 1000, rules.skew_ms / 1000
    if now_s - skew_s >= expires_s:
        raise TokenRefused(f"it expired {now_s - expires_s:.0f} s ago")
    issued_s = _time(claims, "iat", is_required=rules.needs_issue_time)
    begins_s = _time(claims, "nbf", is_required=False)
    if begins_s is not None and begins_s > now_s + skew_s:
        raise TokenRefused(f"it holds from {begins_s - now_s:.0f} s on, and not before")
    for name, time_s in (("iat", issued_s), ("nbf", begins_s)):
        if time_s is not None and expires_s < time_s:
            raise TokenRefused(f"it expires (exp) before its {name}")
    if not rules.needs_issue_time and issued_s is not None and issued_s > now_s + skew_s:
        raise TokenRefused(f"it will be issued in {issued_s - now_s:.0f} s")


def _check_audience(claims: Mapping[str, Any], rules: TokenRules) -> None:
    if not rules.audiences:
        return
    audience = claims.get("aud")
    named = [audience] if isinstance(audience, str) else audience
    if not isinstance(named, list) or not all(isinstance(audience, str) for audience in named):
        raise TokenRefused(f"its audience is {shown(audience)}, it must be a text or a list of texts")
    if rules.audiences.isdisjoint(named):
        raise TokenRefused(
            f"its audience is {shown(audience)}, expected is one of {', '.join(sorted(rules.audiences))}"
        )


def _check_scopes(claims: Mapping[str, Any], rules: TokenRules) -> None:
    """Raise TokenRefused unless the token has the required scopes. As in Kafka, the claim may be missing or have
    another type; a list must have a valid form.
    """
    given = claims.get(rules.scope_claim)
    scopes = given if isinstance(given, list) else given.split() if isinstance(given, str) else []
    if not all(isinstance(scope, str) and scope.strip() for scope in scopes):
        raise TokenRefused(f"its claim {rules.scope_claim} is {shown(given)}, which is no list of texts")
    if isinstance(given, list) and len(set(scopes)) < len(scopes):
        raise TokenRefused(f"its claim {rules.scope_claim} names a scope twice")
    missing = rules.required_scopes.difference(scopes)
    if missing:
        wanted = " ".join(sorted(rules.required_scopes))
        raise TokenRefused(f"it lacks the scope {', '.join(sorted(missing))}", "insufficient_scope", wanted)


def _time(claims: Mapping[str, Any], name: str, *, is_required: bool) -> float | None:
    """Return a time claim of the token in seconds since 1970; None if it is missing and not required. A boolean is
    refused here, though Python counts it as a number.
    """
    value = claims.get(name)
    if value is None and not is_required:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        raise TokenRefused(f"its claim {name} is {shown(value)}, it must be a time in seconds")
    return min(value, _LATEST_S)


def _object(what: str, part: str) -> Mapping[str, Any]:
    try:
        read = json.loads(
            _decoded(what, part), object_pairs_hook=_without_repetition, parse_constant=_no_number
        )
    except (ValueError, RecursionError) as error:
        raise TokenRefused(f"{what} is no JSON: {error!s:.100}") from None
    if not isinstance(read, dict):
        raise TokenRefused(f"{what} is no JSON object")
    return read


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a dictionary. Raises ValueError for a repeated name, since parsers disagree on whether the first or the
    last value counts."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name stands twice in it")
    return found


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is no number")


def _decoded(what: str, part: str) -> bytes:
    """Decode base64url without =. If several texts decode to the same bytes, only the canonical one is accepted."""
    try:
        decoded = base64.b64decode(part.encode("ascii") + b"=" * (-len(part) % 4), b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise TokenRefused(f"{what} is not in base64url") from None
    if base64.urlsafe_b64encode(decoded).rstrip(b"=").decode() != part:
        raise TokenRefused(f"{what} is not in base64url")
    return decoded
