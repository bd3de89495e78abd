"""OAUTHBEARER: a login by a token of an authorization server (RFC 7628, KIP-255).

The refusal of a token is first sent as JSON. The client answers it, and only then the login fails, with that JSON as
its text: Kafka does so, and clients show it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from typing import Final

from ....protocol.messages.sasl import OAUTHBEARER
from ..oauth.provider_keys import NoKeysYet, ProviderKeys
from ..oauth.settings import TokenRules
from ..oauth.tokens import Bearer, Token, TokenRefused, check_claims, check_unsigned, read_token
from .login import LoggedIn, LoginRefused, LoginUndecided

_MESSAGE_BYTES_MAX: Final = 64 * 1024
_PAIR: Final = re.compile(r"([A-Za-z]+)=([\x21-\x7e \t\r\n]+)", re.ASCII)
_HEADER: Final = re.compile(r"n,(?:a=((?:[^\x00=,]|=2C|=3D)+))?,", re.DOTALL)
_AUTHORIZATION: Final = re.compile(r"(\w+) +([-_~+/.a-zA-Z0-9]+=*)", re.ASCII)
_SEPARATOR: Final = "\x01"

CheckSignature = Callable[[Token], Awaitable[None]]
"""A function that checks a token's signature. It raises TokenRefused and NoKeysYet."""


class BearerMechanism:
    """The SASL mechanism OAUTHBEARER, for tokens whose signature and claims satisfy a listener's settings."""

    name = OAUTHBEARER

    def __init__(self, rules: TokenRules, keys: ProviderKeys | None, now_ms: Callable[[], float]) -> None:
        """`keys` is None if tokens have no signature. `now_ms` is the wall clock."""
        self._rules = rules
        self._check_signature = _believe if keys is None else keys.check
        self._now_ms = now_ms

    def begin(self) -> BearerLogin:
        """Return a new login attempt of a client."""
        return BearerLogin(self._rules, self._check_signature, self._now_ms)


async def _believe(token: Token) -> None:
    check_unsigned(token)


class BearerLogin:
    """A login attempt: a single message, and a second one if the token is refused."""

    def __init__(
        self, rules: TokenRules, check_signature: CheckSignature, now_ms: Callable[[], float]
    ) -> None:
        self._rules = rules
        self._check_signature = check_signature
        self._now_ms = now_ms
        self._refusal: LoginRefused | None = None
        self.claimed = ""
        self.outcome: LoggedIn | None = None

    async def receive(self, message: bytes) -> bytes:
        """Return the answer to the client's message: empty for a valid token, else the refusal as JSON. Raises
        LoginRefused and LoginUndecided.
        """
        if self._refusal is not None:
            raise self._refusal
        authorization_id, text = _parts(message)
        try:
            bearer = await self._bearer(text)
        except TokenRefused as error:
            answer = _told(error)
            self._refusal = LoginRefused(f"the token is refused: {error}", told=answer)
            return answer.encode()
        except NoKeysYet as error:
            raise LoginUndecided(str(error)) from None
        if authorization_id not in ("", bearer.user):
            raise LoginRefused(
                "it wants to act as another user",
                told=f"Authentication failed: Client requested an authorization id ({authorization_id}) that is "
                f"different from the token's principal name ({bearer.user})",
            )
        self.outcome = LoggedIn(bearer.user, bearer.expires_at_ms)
        return b""

    async def _bearer(self, text: str) -> Bearer:
        token = read_token(text)
        self.claimed = token.claimed_user(self._rules)
        check_claims(token, self._rules, self._now_ms())
        await self._check_signature(token)
        # Fetching keys may have taken seconds: the token must still be valid now.
        return check_claims(token, self._rules, self._now_ms())


def _told(refusal: TokenRefused) -> str:
    fields = {"status": refusal.status} | ({"scope": refusal.scope} if refusal.scope else {})
    return json.dumps(fields, separators=(",", ":"))


def _parts(message: bytes) -> tuple[str, str]:
    """Return the authorization id (the user to act as; empty if not given) and the token from the client's message.
    Extensions (KIP-342) must have a valid form, and have no effect. Raises LoginRefused.
    """
    if len(message) > _MESSAGE_BYTES_MAX:
        raise LoginRefused(f"a message of {len(message)} bytes, allowed are {_MESSAGE_BYTES_MAX}")
    try:
        header, *pairs = message.decode().split(_SEPARATOR)
    except UnicodeDecodeError:
        raise LoginRefused("a message that is not UTF-8") from None
    opening = _HEADER.fullmatch(header)
    if opening is None or pairs[-2:] != ["", ""]:
        raise LoginRefused("a message that does not have the form of OAUTHBEARER")
    found: dict[str, str] = {}
    for pair in pairs[:-2]:
        parts = _PAIR.fullmatch(pair)
        if parts is None or parts[1] in found:
            raise LoginRefused("a message with a pair that is malformed, or that stands twice")
        found[parts[1]] = parts[2]
    authorization = _AUTHORIZATION.fullmatch(found.get("auth", ""))
    if authorization is None or authorization[1].lower() != "bearer":
        raise LoginRefused("a message without a bearer token")
    return (opening[1] or "").replace("=2C", ",").replace("=3D", "="), authorization[2]
