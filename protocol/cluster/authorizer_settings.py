"""Settings of the authorizer, as given in the files of brokers and quorum nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ..errors import KafkaError
from ..settings.config_fields import default_text
from ..settings.config_key import ConfigError
from .acls import check_principal

STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
"""Name of the only authorizer."""

_CLASS, _SUPER_USERS, _OPEN = (
    "authorizer.class.name",
    "super.users",
    "allow.everyone.if.no.acl.found",
)


@dataclass(frozen=True, slots=True)
class AuthorizerSettings:
    """Settings of the authorizer: the principals that may do everything (super.users), and the verdict about resources
    that no ACL covers."""

    super_users: frozenset[str] = frozenset()
    open_without_acls: bool = False

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> AuthorizerSettings | None:
        """Parse the settings; None if no authorizer is set.

        Raises ConfigError for settings that would open a cluster that was meant to be closed, or the other way round.
        """
        name = properties.get(_CLASS, "").strip()
        if name not in ("", STANDARD_AUTHORIZER):
            raise ConfigError(f"{_CLASS} is {name!r}: it must be {STANDARD_AUTHORIZER}, or empty for none")
        super_users = listed_principals(properties, _SUPER_USERS)
        is_open = properties.get(_OPEN, "").strip().lower() or default_text(_OPEN)
        if is_open not in ("true", "false"):
            raise ConfigError(f"{_OPEN} is {is_open!r}: it must be true or false")
        return cls(super_users, is_open == "true") if name else None


def listed_principals(properties: Mapping[str, str], key: str) -> frozenset[str]:
    """Return the principals that a key lists, separated by ;. Raises ConfigError."""
    found = frozenset(text for entry in properties.get(key, "").split(";") if (text := entry.strip()))
    for principal in sorted(found):
        try:
            check_principal(principal)
        except KafkaError:
            raise ConfigError(
                f"{key}: {principal!r} is no principal: it has to be of the form User:name, with ; between several"
            ) from None
    return found
