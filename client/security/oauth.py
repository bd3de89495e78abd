"""Tokens of an authorization server: from an object of the program, or from the server itself by the grant of client
credentials (RFC 6749, section 4.4)."""

from __future__ import annotations

import base64
import http.client
import inspect
import json
import ssl
import time
from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode, urlsplit

from ...network.loopback import is_loopback
from ...network.threads import in_thread
from .called_for import CalledFor, CredentialsUnavailable, Given
from .options import Token, TokenProvider

ANSWER_BYTES_MAX = 1024 * 1024
TOKEN_BYTES_MAX = 64 * 1024
REQUEST_S = 10.0


class BearerToken(NamedTuple):
    """An OAuth bearer token, and the extensions that are sent with it."""

    text: str
    extensions: tuple[tuple[str, str], ...] = ()


class BearerTokens:
    """The OAuth tokens of a provider, requested when needed for all connections of a client."""

    def __init__(
        self,
        provider: TokenProvider,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._provider = provider
        self._tokens = CalledFor("token", self._ask, clock=clock, monotonic=monotonic)

    async def current(self) -> BearerToken:
        """Return an OAuth token for a login, and its extensions. Raises CredentialsUnavailable."""
        return await self._tokens.current()

    def accepted(self, token: BearerToken) -> None:
        """Note that a broker has accepted this OAuth token at a login."""
        self._tokens.accepted(token)

    def refused(self, token: BearerToken) -> CredentialsUnavailable | None:
        """Forget an OAuth token that a broker has refused. Returns the error of the last call if that is why the token
        was old."""
        return self._tokens.refused(token)

    async def _ask(self) -> Given[BearerToken]:
        given = await self._called("token")
        token, ends_s = given if isinstance(given, tuple) and len(given) == 2 else (given, None)
        if isinstance(token, bytes):
            token = token.decode(errors="replace")
        if not isinstance(token, str) or not token or not token.isascii() or not token.isprintable():
            raise CredentialsUnavailable(
                f"token() gave no token, but a {type(given).__name__}", is_final=True
            )
        if len(token) > TOKEN_BYTES_MAX:
            raise CredentialsUnavailable(
                f"token() gave one of {len(token)} bytes; at most {TOKEN_BYTES_MAX} are sent"
            )
        extensions = await self._called("extensions") if hasattr(self._provider, "extensions") else {}
        try:
            pairs = tuple((str(key), str(value)) for key, value in dict(extensions or {}).items())
            return Given(BearerToken(token, pairs), None if ends_s is None else float(ends_s))
        except (TypeError, ValueError) as error:
            raise CredentialsUnavailable(
                "token() gives a token, or a token and its end in seconds since 1970, and extensions() a mapping: "
                f"{error}",
                is_final=True,
            ) from None

    async def _called(self, name: str) -> Any:
        method = getattr(self._provider, name)
        try:
            if inspect.iscoroutinefunction(method):
                return await method()
            given = await in_thread(method)
            return await given if inspect.isawaitable(given) else given
        except CredentialsUnavailable:
            raise
        except Exception as error:
            raise CredentialsUnavailable(
                f"{name}() of sasl_oauth_token_provider failed: {error!r}"
            ) from error


class ClientCredentials:
    """A provider that requests tokens from an authorization server with a client id and secret."""

    def __init__(
        self, *, url: str, client_id: str, client_secret: str, scope: str | None, cafile: str | None
    ) -> None:
        """Raises ValueError for an address to which the secret would be sent unencrypted."""
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
        """Return a token, with its expiry if the server names it. It blocks. Raises CredentialsUnavailable."""
        try:
            status, body = self._post()
        except (OSError, http.client.HTTPException, ValueError) as error:
            reason = str(error) or type(error).__name__
            raise CredentialsUnavailable(f"{self._shown} cannot be asked for a token: {reason}") from None
        try:
            fields = json.loads(body)
            token, lasts_s = fields["access_token"], fields.get("expires_in")
        except (ValueError, KeyError, TypeError, AttributeError):
            raise CredentialsUnavailable(
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
    """Return the error of RFC 6749, section 5.2, that the body has, or an empty text."""
    try:
        fields = json.loads(body)
        return "".join(
            f", {fields[key]!s:.200}"
            for key in ("error", "error_description")
            if isinstance(fields.get(key), str)
        )
    except (ValueError, AttributeError):
        return ""
