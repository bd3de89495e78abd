"""The limit for the transactional ids of a cluster. The leader refuses more, since only it knows all.

A refused command still goes into the log, since its broker's commands are numbered. It is replaced by one that every
version refuses without an effect: the continuation of a known id under a producer id that it never had. Pure.
"""

from __future__ import annotations

from typing import Any, Final

from ..protocol.cluster.cluster_image import ClusterImage
from ..protocol.errors import ErrorCode
from ..protocol.messages.command import Command
from ..protocol.messages.transaction_commands import InitTransactionalId, InitTransactionalIdResult

TRANSACTIONAL_IDS_MAX: Final = 2_000_000
"""Limit for transactional ids. Each takes a kilobyte on every quorum node, until `transactional.id.expiration.ms` after
its last use."""
_NEVER_GIVEN_OUT: Final = 2**62


def refusal_for_room(
    image: ClusterImage, command: Command[Any], ids_max: int = TRANSACTIONAL_IDS_MAX
) -> InitTransactionalIdResult | None:
    """Return the refusal of a command for which there is no room, else None. A refused command is changed so that it
    has no effect."""
    known = image.transactions.by_id
    if (
        not isinstance(command, InitTransactionalId)
        or len(known) < ids_max
        or command.transactional_id in known
        or not known
    ):
        return None
    command.transactional_id = next(iter(known))
    command.producer_id, command.producer_epoch = _NEVER_GIVEN_OUT, 0
    return InitTransactionalIdResult(
        error_code=ErrorCode.POLICY_VIOLATION,
        error_message=f"There are {len(known)} transactional ids already: at most {ids_max} are allowed.",
    )
