"""Commands about dynamic configurations."""

from __future__ import annotations

from enum import IntEnum

from ..wire.schema import Message, array, boolean, data, int8, int16, string
from .command import Command, CommandResult


class ConfigOperation(IntEnum):
    """Kafka's operations on a configuration key, with its numbers: set, delete, append to a list, subtract from a
    list."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ResourceType(IntEnum):
    """Kafka's types of resources that have a configuration, with its numbers; only types that the controller stores."""

    TOPIC = 2
    BROKER = 4
    CLIENT_METRICS = 16
    GROUP = 32


@data()
class ConfigChange(Message):
    """A change of one configuration key."""

    name: str = string(about="Configuration key.")
    operation: int = int8(about="Operation, a ConfigOperation.")
    value: str | None = string(nullable="0+", default=None, about="New value; null for DELETE.")
    replaces: str | None = string(
        "0+",
        nullable="0+",
        default=None,
        tag=0,
        about="Value that the key must have now, otherwise nothing changes; null: any value.",
    )


@data()
class ConfigResource(Message):
    """Changes of one resource's configuration, such as a topic's or a broker's. All are made, or none."""

    resource_type: int = int8(about="Type of the resource, a ResourceType.")
    resource_name: str = string(about="Topic, broker id, or empty for all brokers.")
    changes: list[ConfigChange] = array(ConfigChange, about="Changes of the resource.")


@data()
class AlteredConfig(Message):
    """Result of the changes of one resource's configuration."""

    resource_type: int = int8(about="Type of the resource, as in the command.")
    resource_name: str = string(about="Name of the resource, as in the command.")
    error_code: int = int16(about="Error code, 0 for success.")
    error_message: str = string(about="Explanation for people.")


@data()
class AlterConfigsResult(CommandResult):
    """Results of AlterConfigs, one for each resource in the order of the command."""

    error_code: int = int16(about="Error code of the whole command, 0 for success.")
    error_message: str = string(about="Explanation for people.")
    resources: list[AlteredConfig] = array(AlteredConfig, about="Results, in the order of the command.")


@data()
class AlterConfigs(Command[AlterConfigsResult]):
    """Command to change dynamic configurations, each resource independently of the others."""

    resources: list[ConfigResource] = array(ConfigResource, about="Resources to change.")
    validate_only: bool = boolean(about="Whether to validate only, without any change.")
