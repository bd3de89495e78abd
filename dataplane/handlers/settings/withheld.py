"""Values that do not travel to the quorum, which writes all that it is asked into its log, also what it refuses."""

from __future__ import annotations

from ....protocol.messages.config_commands import ResourceType
from ....protocol.settings.config_keys import TOPIC_KEYS, looks_secret, node_key


def sent_value(resource_type: int, name: str, value: str | None) -> str | None:
    """The value of a setting, or nothing for one that the quorum will refuse for its name, which looks like that of a
    secret."""
    if value is None or not looks_secret(name):
        return value
    known = name in TOPIC_KEYS if resource_type == ResourceType.TOPIC else node_key(name) is not None
    return value if known else ""
