"""Admission of requests, decided by their headers. Pure.

Every page that a browser on this machine shows can reach a console on loopback. So three things are checked:

- The Host header names an address of the console. A foreign name that resolves to this machine (DNS rebinding) fails
  this check.
- A cookie holds a value that only the printed address gives, or the number of a session that began with a user and a
  password of the cluster.
- A change comes from a page of the console: by its Origin, and by a value that only forms of such pages contain.
"""

from __future__ import annotations

import hmac
import ipaddress
import secrets
import socket
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from ..network.addresses import host_in_url, host_port

TOKEN_LENGTH_MIN: Final = 16
HEADERS: Final = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",  # Without a policy browsers send forms with the origin null.
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
"""The headers of every answer."""
_DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """The address at which the console listens; port 0 takes a free port."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """True if only this machine can reach the address."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def origins(self) -> tuple[str, ...]:
        """The origins, such as `http://localhost:9280`, under which browsers reach the address.

        Empty for 0.0.0.0 and ::.
        """
        if self.is_loopback:
            hosts = {self.host, "localhost"}
        elif self.host in ("0.0.0.0", "::"):
            return ()
        else:
            hosts = {self.host}
        return tuple(sorted(origin_of(f"http://{host_port(host, self.port)}") for host in hosts))

    def in_url(self, port: int) -> str:
        """Return `HOST:PORT` as it stands in a URL, with a port that the socket has."""
        return host_port(self.host, port)

    def bound(self) -> socket.socket:
        """Return a socket that is bound to the address. Raises OSError."""
        found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        family, kind, protocol, _, where = found[0]
        bound = socket.socket(family, kind, protocol)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(where)
        except OSError:
            bound.close()
            raise
        return bound


@dataclass(frozen=True, slots=True)
class Door:
    """The checks that a request to the console must pass.

    `origins` are the URLs of the console, such as `http://127.0.0.1:9280`; `token` is the secret of the printed
    address; `cookie` is the name of the console's cookie.
    """

    origins: frozenset[str]
    token: str
    cookie: str

    def knows_host(self, host: str) -> bool:
        """Return whether a Host header names the console."""
        return any(host.lower() == urlsplit(origin).netloc for origin in self.origins)

    def is_own_page(self, headers: Mapping[str, str]) -> bool:
        """Return whether a form's headers show that it comes from a page of the console, and from the same origin as
        the request."""
        origin = headers.get("origin", "").lower()
        if origin not in self.origins or urlsplit(origin).netloc != headers.get("host", "").lower():
            return False
        return headers.get("sec-fetch-site", "same-origin") == "same-origin"

    def opens_with(self, token: str) -> bool:
        """Return whether `token` is the token of the console's printed address."""
        return same(token, self.token)

    def has_entered(self, cookies: Mapping[str, str]) -> bool:
        """Return whether the browser's cookies show that it opened the printed address before."""
        return same(cookies.get(self.cookie, ""), self.entered)

    @property
    def entered(self) -> str:
        """The cookie value of browsers that have opened the printed address; an HMAC-SHA256 of the token."""
        return self._derived("cookie")

    @property
    def form_value(self) -> str:
        """The hidden value in all forms of the session that the token admits to, against forged forms; an HMAC-SHA256
        of the token."""
        return self._derived("form")

    def set_cookie(self, host: str, value: str) -> str:
        """Return the Set-Cookie header for the console's cookie, which lasts until the browser is closed.

        An empty `value` removes the cookie. `host` is the request's Host header.
        """
        secure = "; Secure" if f"https://{host.lower()}" in self.origins else ""
        ends = "" if value else "; Max-Age=0"
        return f"{self.cookie}={value}; Path=/; HttpOnly; SameSite=Strict{secure}{ends}"

    def _derived(self, purpose: str) -> str:
        return hmac.new(self.token.encode(), purpose.encode(), "sha256").hexdigest()


def door_of(listen: ListenAddress, public: Iterable[str] = (), token: str | None = None) -> Door:
    """Return the request checks of a console that admits browsers by a token.

    `public` are further URLs under which browsers reach the console. Raises ValueError if other machines can reach the
    console and there is no URL or no token.
    """
    if token is not None and len(token) < TOKEN_LENGTH_MIN:
        raise ValueError(f"the token has {len(token)} characters; {TOKEN_LENGTH_MIN} is the least")
    if token is None and not listen.is_loopback:
        raise ValueError(
            f"--listen {listen.host}:{listen.port} is not loopback: others reach it, so it needs --token-file FILE "
            f"with a token of {TOKEN_LENGTH_MIN} characters or more, or --login"
        )
    return _door(listen, [*listen.origins, *map(origin_of, public)], token)


def door_of_logins(listen: ListenAddress, public: Iterable[str] = ()) -> Door:
    """Return the request checks of a console that admits browsers by user and password.

    Raises ValueError if passwords would cross a network unencrypted.
    """
    named = [origin_of(address) for address in public]
    for origin in named:
        if not origin.startswith("https://"):
            raise ValueError(f"--login takes passwords: --public is https://HOST[:PORT], not {origin}")
    if not listen.is_loopback and not named:
        raise ValueError(
            f"--login takes passwords, and --listen {listen.host}:{listen.port} is not loopback: it needs a proxy with "
            "TLS in front, and --public https://HOST[:PORT] that says where browsers reach that"
        )
    return _door(listen, [*(listen.origins if listen.is_loopback else ()), *named], None)


def _door(listen: ListenAddress, origins: Sequence[str], token: str | None) -> Door:
    if not origins:
        raise ValueError(
            f"--listen {listen.host} is no address for browsers: give one with --public http://HOST:PORT"
        )
    return Door(frozenset(origins), token or secrets.token_urlsafe(24), f"ottla_console_{listen.port}")


def listen_address(text: str) -> ListenAddress:
    """Parse `HOST:PORT`, `[::1]:PORT` or a port alone. Raises ValueError."""
    host, _, port = text.rpartition(":")
    host = (host or "127.0.0.1").removeprefix("[").removesuffix("]")
    if not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"an address to listen at is HOST:PORT with a port up to 65535, not {text!r}")
    return ListenAddress(host, int(port))


def origin_of(address: str) -> str:
    """Return a URL's origin, `scheme://host[:port]`, as browsers send it. Raises ValueError."""
    parts = urlsplit(address)
    if parts.scheme not in _DEFAULT_PORTS or not parts.hostname or parts.path not in ("", "/") or parts.query:
        raise ValueError(f"a public address is http://HOST[:PORT] or https://HOST[:PORT], not {address!r}")
    host = host_in_url(parts.hostname)
    port = parts.port
    return f"{parts.scheme}://{host}" + ("" if port in (None, _DEFAULT_PORTS[parts.scheme]) else f":{port}")


def same(text: str, other: str) -> bool:
    """Compare two texts in constant time."""
    return hmac.compare_digest(text.encode(), other.encode())
