"""How many transactional ids a cluster keeps. The leader refuses new ones beyond that, as it alone knows them all.

A command that is refused goes into the log all the same, since its broker's commands are numbered. In its place goes
one that every version refuses without an effect: to go on with a known id under a producer id that it never had. Pure.
"""

from __future__ import annotations

from typing import Any, Final

from ..protocol.cluster.cluster_image import ClusterImage
from ..protocol.errors import ErrorCode
from ..protocol.messages.command import Command
from ..protocol.messages.transaction_commands import InitTransactionalId, InitTransactionalIdResult

TRANSACTIONAL_IDS_MAX: Final = 2_000_000
"""Each takes a kilobyte on every quorum node, until `transactional.id.expiration.ms` after its last use."""
_NEVER_GIVEN_OUT: Final = 2**62


def refusal_for_room(
    image: ClusterImage, command: Command[Any], ids_max: int = TRANSACTIONAL_IDS_MAX
) -> InitTransactionalIdResult | None:
    """Return the answer to a command for which there is no room, None if there is. The command is made one without an
    effect then."""
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
