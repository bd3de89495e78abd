"""Commands about dynamic configurations."""

from __future__ import annotations

from enum import IntEnum

from ..schema import Message, array, boolean, data, int8, int16, string
from .command import Command, CommandResult


class ConfigOperation(IntEnum):
    """Kafka's operations on one configuration key."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ResourceType(IntEnum):
    """Kafka's config resource types, as far as the controller keeps any."""

    TOPIC = 2
    BROKER = 4
    CLIENT_METRICS = 16
    GROUP = 32


@data()
class ConfigChange(Message):
    """One change of one key."""

    name: str = string(about="Key.")
    operation: int = int8(about="A ConfigOperation.")
    value: str | None = string(nullable="0+", default=None, about="Null for DELETE.")
    replaces: str | None = string(
        "0+",
        nullable="0+",
        default=None,
        tag=0,
        about="Nothing is changed if the value is another than this; null: whatever it is.",
    )


@data()
class ConfigResource(Message):
    """What changes about one topic or broker: all or nothing."""

    resource_type: int = int8(about="A ResourceType.")
    resource_name: str = string(about="Topic, broker id, or empty for all brokers.")
    changes: list[ConfigChange] = array(ConfigChange, about="Changes.")


@data()
class AlteredConfig(Message):
    """How the change of one resource went."""

    resource_type: int = int8(about="As in the command.")
    resource_name: str = string(about="As in the command.")
    error_code: int = int16(about="0 for success.")
    error_message: str = string(about="For people.")


@data()
class AlterConfigsResult(CommandResult):
    """One result per resource, in order."""

    error_code: int = int16(about="About the whole command; 0 for success.")
    error_message: str = string(about="For people.")
    resources: list[AlteredConfig] = array(AlteredConfig, about="In the order of the command.")


@data()
class AlterConfigs(Command[AlterConfigsResult]):
    """Change dynamic configurations, each resource on its own."""

    resources: list[ConfigResource] = array(ConfigResource, about="Resources.")
    validate_only: bool = boolean(about="Whether only to check.")
