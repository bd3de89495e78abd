"""What a leader looks at again because somebody could not use it: a follower that asks once more for what it has
just been sent, or a read that met no batch where one should begin.

Nobody checks a CRC on the way out. The follower does before it appends; when it asks again, the leader reads what it
sent, off the loop, and where its own log is damaged somebody else had better lead.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from ....protocol.errors import KafkaError
from ...log import is_damage
from ...log.verification import check_slice
from ...runtime.threads import in_thread
from ..fetch_values import PartitionKey
from ..replica.partition import Partition

logger = logging.getLogger(__name__)

_AGAIN_AFTER_S = 2.0
"""There are other reasons to ask again, and each look reads from the disk."""


class Rechecks:
    """Looks, one at a time for each partition; `condemn` is called when a log proves to be damaged."""

    def __init__(
        self,
        holds: Callable[[Partition], bool],
        condemn: Callable[[Partition, KafkaError], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._holds = holds
        self._condemn = condemn
        self._looked_at: dict[PartitionKey, float] = {}
        self._looking: dict[asyncio.Task[None], None] = {}

    def raised(self, partition: Partition, offset: int, max_bytes: int) -> None:
        """What lies at `offset` may be damaged."""
        if not self._is_due(partition):
            return
        task = asyncio.create_task(self._look(partition, offset, max_bytes), name=f"look at {partition!r}")
        self._looking[task] = None
        task.add_done_callback(self._looking.pop)

    def confirmed(self, partition: Partition, error: KafkaError) -> None:
        """A look-up on the loop has met damage: there is nothing to look at again."""
        if self._is_due(partition) and self._holds(partition):
            self._condemn(partition, error)

    def _is_due(self, partition: Partition) -> bool:
        """Whether the last look at this partition was long enough ago. Notes that it is looked at now."""
        key, now = (partition.topic_id, partition.index), self._loop.time()
        if now < self._looked_at.get(key, -_AGAIN_AFTER_S) + _AGAIN_AFTER_S:
            return False
        self._looked_at = {k: at for k, at in self._looked_at.items() if now < at + _AGAIN_AFTER_S}
        self._looked_at[key] = now
        return True

    async def _look(self, partition: Partition, offset: int, max_bytes: int) -> None:
        log = partition.log
        cuts = log.durability.cuts
        found: KafkaError | None = None
        try:
            piece = log.read(offset, max_bytes, log.log_end_offset, at_least_one=True)
        except KafkaError as error:
            found = error if is_damage(error) else None
        else:
            try:
                found = await in_thread(
                    partial(
                        check_slice,
                        piece,
                        log.directory,
                        log.leader_epochs.copy(),
                        offset=offset,
                        contiguous=log.is_contiguous,
                    )
                )
            except OSError as error:
                piece.failed(error)
            finally:
                piece.release()
        # A cut meanwhile explains what was found, and a log in another folder may be in order.
        if (
            found is not None
            and self._holds(partition)
            and partition.log is log
            and log.durability.cuts == cuts
        ):
            self._condemn(partition, found)

    async def close(self) -> None:
        """Look no more; returns once the disk has answered."""
        looking = list(self._looking)
        for task in looking:
            task.cancel()
        if looking:
            await asyncio.wait(looking)
