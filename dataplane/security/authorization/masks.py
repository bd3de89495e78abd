"""Sets of operations as bit masks: bit n is Kafka's operation with the code n."""

from __future__ import annotations

from functools import cache

from ....protocol.cluster.acls import IMPLYING, AclOperation

EVERY_OPERATION = sum(1 << operation for operation in AclOperation if operation > AclOperation.ALL)
"""All operations except ALL itself, which no request needs."""


@cache
def denied_by(operations: int) -> int:
    """Return the operations that DENY ACLs for `operations` deny, as a bit mask. DENY implies no other operation, but
    ALL denies every operation.
    """
    return EVERY_OPERATION if operations & 1 << AclOperation.ALL else operations


@cache
def allowed_by(operations: int) -> int:
    """Return the operations that ALLOW ACLs for `operations` allow, as a bit mask. Some operations imply DESCRIBE or
    DESCRIBE_CONFIGS.
    """
    if operations & 1 << AclOperation.ALL:
        return EVERY_OPERATION
    implied = sum(
        1 << operation
        for operation, by in IMPLYING.items()
        if any(operations & 1 << stronger for stronger in by)
    )
    return operations | implied
