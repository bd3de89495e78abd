"""The settings of the authorizer, as the files of brokers and quorum nodes give them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from .acls import check_principal
from .config_key import ConfigError
from .errors import KafkaError

STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
"""The name of the one authorizer there is."""

_CLASS, _SUPER_USERS, _OPEN = (
    "authorizer.class.name",
    "super.users",
    "allow.everyone.if.no.acl.found",
)


@dataclass(frozen=True, slots=True)
class AuthorizerSettings:
    """Who may do everything, and who may do what no ACL is about."""

    super_users: frozenset[str] = frozenset()
    open_without_acls: bool = False

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> AuthorizerSettings | None:
        """None: there is no authorizer. Raises ConfigError for whatever would leave a cluster open that was meant to be
        closed, or the other way round.
        """
        name = properties.get(_CLASS, "").strip()
        if name not in ("", STANDARD_AUTHORIZER):
            raise ConfigError(f"{_CLASS} is {name!r}: it must be {STANDARD_AUTHORIZER}, or empty for none")
        super_users = frozenset(
            user for entry in properties.get(_SUPER_USERS, "").split(";") if (user := entry.strip())
        )
        for user in sorted(super_users):
            try:
                check_principal(user)
            except KafkaError:
                raise ConfigError(
                    f"{_SUPER_USERS}: {user!r} is no principal: it has to be of the form User:name, with ; between "
                    "several"
                ) from None
        is_open = properties.get(_OPEN, "").strip().lower() or "false"
        if is_open not in ("true", "false"):
            raise ConfigError(f"{_OPEN} is {is_open!r}: it must be true or false")
        return cls(super_users, is_open == "true") if name else None
