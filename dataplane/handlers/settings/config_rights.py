"""The right that the settings of a resource need: on the topic or group itself, else on the cluster."""

from __future__ import annotations

from ....protocol.cluster.acls import AclOperation, AclResourceType
from ....protocol.messages.config_commands import ResourceType
from ...security.authorization.access import Access


def check_config_right(access: Access, operation: AclOperation, resource_type: int, name: str) -> None:
    """Raises KafkaError if the operation, DESCRIBE_CONFIGS or ALTER_CONFIGS, is not allowed."""
    match resource_type:
        case ResourceType.TOPIC:
            access.check_topic(operation, name)
        case ResourceType.GROUP:
            access.check(operation, AclResourceType.GROUP, name)
        case _:
            access.check_cluster(operation)
