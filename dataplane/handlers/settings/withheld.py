"""Values that brokers do not send to the quorum, since its log would keep them even if it refuses them."""

from __future__ import annotations

from ....protocol.messages.config_commands import ResourceType
from ....protocol.settings.config_keys import TOPIC_KEYS, looks_secret, node_key


def sent_value(resource_type: int, name: str, value: str | None) -> str | None:
    """Return the value of a setting; empty if the quorum will refuse the setting because its name looks like a
    secret's."""
    if value is None or not looks_secret(name):
        return value
    known = name in TOPIC_KEYS if resource_type == ResourceType.TOPIC else node_key(name) is not None
    return value if known else ""
