"""The operations that ACLs may name for each type of resource, and their effects in words. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ....protocol.cluster.acls import AclOperation, AclResourceType

RESOURCES: Final[Mapping[str, AclResourceType]] = {
    "topic": AclResourceType.TOPIC,
    "group": AclResourceType.GROUP,
    "transactional id": AclResourceType.TRANSACTIONAL_ID,
    "cluster": AclResourceType.CLUSTER,
    "user": AclResourceType.USER,
    "delegation token": AclResourceType.DELEGATION_TOKEN,
}
"""Types of resources by the names that forms and addresses have."""
OPERATIONS: Final = tuple(operation.name for operation in AclOperation if operation > AclOperation.ALL)
_SETTINGS: Final = {
    AclOperation.DESCRIBE_CONFIGS: "see settings",
    AclOperation.ALTER_CONFIGS: "change settings, which includes DESCRIBE_CONFIGS",
}
MEANINGS: Final[Mapping[AclResourceType, Mapping[AclOperation, str]]] = {
    AclResourceType.TOPIC: {
        AclOperation.READ: "read records, and commit offsets; includes DESCRIBE",
        AclOperation.WRITE: "write records; includes DESCRIBE",
        AclOperation.CREATE: "create topics of this name",
        AclOperation.DELETE: "delete the topic or its records; includes DESCRIBE",
        AclOperation.ALTER: "add partitions; includes DESCRIBE",
        AclOperation.DESCRIBE: "see the topic and its offsets",
        **_SETTINGS,
    },
    AclResourceType.GROUP: {
        AclOperation.READ: "join the group, and commit its offsets; includes DESCRIBE",
        AclOperation.DESCRIBE: "see the group and its offsets",
        AclOperation.DELETE: "delete the group or its offsets; includes DESCRIBE",
        **_SETTINGS,
    },
    AclResourceType.TRANSACTIONAL_ID: {
        AclOperation.WRITE: "run transactions; includes DESCRIBE",
        AclOperation.DESCRIBE: "see the state of its transaction",
        AclOperation.TWO_PHASE_COMMIT: "prepare transactions for a commit in two phases",
    },
    AclResourceType.CLUSTER: {
        AclOperation.ALTER: "change ACLs, users, replicas, leaders and mirrors; includes DESCRIBE",
        AclOperation.ALTER_CONFIGS: "change quotas, and settings of brokers; includes DESCRIBE_CONFIGS",
        AclOperation.CREATE: "create topics of any name",
        AclOperation.DELETE: "delete topics of any name; includes DESCRIBE",
        AclOperation.DESCRIBE: "see ACLs, users, data folders, reassignments and the quorum",
        AclOperation.DESCRIBE_CONFIGS: "see quotas, and settings of brokers",
        AclOperation.IDEMPOTENT_WRITE: "write idempotently without WRITE on a topic",
        AclOperation.CLUSTER_ACTION: "act as a broker of the cluster",
    },
    AclResourceType.USER: {
        AclOperation.CREATE_TOKENS: "create delegation tokens for this user",
        AclOperation.DESCRIBE_TOKENS: "see delegation tokens of this user",
    },
    AclResourceType.DELEGATION_TOKEN: {AclOperation.DESCRIBE: "see the token"},
}
"""The effects of the operations that apply to each type of resource."""
EVERY_OPERATION: Final = "every operation above, and operations that later versions add"
