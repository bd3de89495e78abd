"""Tokens of an authorization server: from an object of the program's, or from the server itself by the grant of client
credentials (RFC 6749, section 4.4).
"""

from __future__ import annotations

import asyncio
import base64
import http.client
import inspect
import json
import ssl
import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from ...network.loopback import is_loopback
from ...network.threads import in_thread
from .options import Token, TokenProvider

ANSWER_BYTES_MAX = 1024 * 1024
TOKEN_BYTES_MAX = 64 * 1024
REQUEST_S = 10.0
_KEPT = 0.75
"""A token is used for this part of its life: less than the part after which logins are renewed, so that each renewal
brings a new token."""


class TokenUnavailable(Exception):
    """There is no token. The text holds no secret. `is_final`: asking again would not help."""

    def __init__(self, message: str, *, is_final: bool = False) -> None:
        super().__init__(message)
        self.is_final = is_final


class BearerTokens:
    """What the provider gives, for all connections of a client."""

    def __init__(self, provider: TokenProvider, clock: Callable[[], float] = time.time) -> None:
        self._provider = provider
        self._clock = clock
        self._kept: str | None = None
        self._until_s = 0.0
        self._asking = asyncio.Lock()

    async def current(self) -> tuple[str, Mapping[str, str]]:
        """A token and its extensions. Raises TokenUnavailable."""
        async with self._asking:
            token = self._kept
            if token is None or self._clock() >= self._until_s:
                token = self._take(await self._called("token"))
            extensions = await self._called("extensions") if hasattr(self._provider, "extensions") else {}
        return token, {str(key): str(value) for key, value in dict(extensions or {}).items()}

    def forget(self) -> None:
        """The broker does not take it: ask for another one next time."""
        self._kept = None

    def _take(self, given: Any) -> str:
        """The token. One that comes with its end is kept."""
        token, ends = given if isinstance(given, tuple) and len(given) == 2 else (given, None)
        if isinstance(token, bytes):
            token = token.decode(errors="replace")
        if not isinstance(token, str) or not token or not token.isascii() or not token.isprintable():
            raise TokenUnavailable(f"token() gave no token, but a {type(given).__name__}", is_final=True)
        if len(token) > TOKEN_BYTES_MAX:
            raise TokenUnavailable(
                f"token() gave one of {len(token)} bytes; at most {TOKEN_BYTES_MAX} are sent"
            )
        if ends is not None:
            now = self._clock()
            self._kept, self._until_s = token, now + _KEPT * (float(ends) - now)
        return token

    async def _called(self, name: str) -> Any:
        method = getattr(self._provider, name)
        try:
            if inspect.iscoroutinefunction(method):
                return await method()
            given = await in_thread(method)
            return await given if inspect.isawaitable(given) else given
        except TokenUnavailable:
            raise
        except Exception as error:
            raise TokenUnavailable(f"{name}() of sasl_oauth_token_provider failed: {error!r}") from error


class ClientCredentials:
    """Asks an authorization server, as a client of its own with a secret."""

    def __init__(
        self, *, url: str, client_id: str, client_secret: str, scope: str | None, cafile: str | None
    ) -> None:
        """Raises ValueError for an address that would show the secret to others."""
        parts = urlsplit(url)
        if parts.scheme not in ("https", "http") or not parts.hostname:
            raise ValueError(f"sasl_oauthbearer_token_endpoint_url is https://HOST/PATH, not {url!r}")
        if parts.scheme == "http" and not is_loopback(parts.hostname):
            raise ValueError(
                f"sasl_oauthbearer_token_endpoint_url is https://HOST/PATH, not {url!r}: the secret would go there "
                "unencrypted"
            )
        self._is_tls = parts.scheme == "https"
        self._host, self._port = parts.hostname, parts.port
        self._path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
        self._cafile = cafile
        pair = f"{quote(client_id, safe='')}:{quote(client_secret, safe='')}"
        self._authorization = "Basic " + base64.b64encode(pair.encode()).decode()
        self._form = {"grant_type": "client_credentials"} | ({} if scope is None else {"scope": scope})

    def token(self) -> Token:
        """Waits for the server; for a thread. Raises TokenUnavailable."""
        try:
            status, body = self._post()
        except (OSError, http.client.HTTPException, ValueError) as error:
            reason = str(error) or type(error).__name__
            raise TokenUnavailable(f"{self._shown} cannot be asked for a token: {reason}") from None
        try:
            told = json.loads(body)
            token, lasts_s = told["access_token"], told.get("expires_in")
        except (ValueError, KeyError, TypeError, AttributeError):
            raise TokenUnavailable(
                f"{self._shown} gave no token (status {status}{_refusal(body)})",
                is_final=status in (400, 401, 403, 404),
            ) from None
        return token if not isinstance(lasts_s, int | float) else (token, time.time() + lasts_s)

    def _post(self) -> tuple[int, bytes]:
        if self._is_tls:
            context = ssl.create_default_context()
            if self._cafile is not None:
                context.load_verify_locations(self._cafile)
            asked: http.client.HTTPConnection = http.client.HTTPSConnection(
                self._host, self._port, timeout=REQUEST_S, context=context
            )
        else:
            asked = http.client.HTTPConnection(self._host, self._port, timeout=REQUEST_S)
        headers = {
            "Authorization": self._authorization,
            "Content-Type": "application/x-www-form-urlencoded",
            "Accept": "application/json",
            "Connection": "close",
        }
        try:
            asked.request("POST", self._path, urlencode(self._form), headers)
            answer = asked.getresponse()
            body = answer.read(ANSWER_BYTES_MAX + 1)
        finally:
            asked.close()
        if len(body) > ANSWER_BYTES_MAX:
            raise ValueError(f"it answers more than {ANSWER_BYTES_MAX} bytes")
        return answer.status, body


def _refusal(body: bytes) -> str:
    """The error of RFC 6749, section 5.2, if it is one."""
    try:
        told = json.loads(body)
        return "".join(
            f", {told[key]!s:.200}"
            for key in ("error", "error_description")
            if isinstance(told.get(key), str)
        )
    except (ValueError, AttributeError):
        return ""
