"""What the connections of one client are made with."""

from __future__ import annotations

import ipaddress
import logging

from .logins import ClientLogin
from .tls import ClientTls

logger = logging.getLogger(__name__)


class Security:
    """Shared by all connections of a client; at least one of both is there."""

    def __init__(self, tls: ClientTls | None, login: ClientLogin | None) -> None:
        self.tls = tls
        self.login = login
        self._has_warned = False

    @property
    def user(self) -> str | None:
        """As whom the client logs in, where it knows that itself."""
        return None if self.login is None else self.login.user

    def warn_of_readable_password(self, peer: str) -> None:
        """Once, if a password is about to go to another machine as it is."""
        if self.tls is not None or self.login is None or not self.login.shows_password or self._has_warned:
            return
        try:
            if ipaddress.ip_address(peer.partition("%")[0]).is_loopback:
                return
        except ValueError:
            return  # no address: a socket of this machine
        self._has_warned = True
        logger.warning(
            "the password of %r goes to %s unencrypted (SASL_PLAINTEXT, %s): anyone on the way can read it",
            self.login.user, peer, self.login.mechanism,
        )  # fmt: skip
