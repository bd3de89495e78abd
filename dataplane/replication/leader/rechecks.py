"""Checks of a leader's log after doubts: a follower requests records a second time, or a read finds no batch where one
should begin.

The leader does not check a CRC when it sends records. The follower checks it before it appends. If the follower asks
again, the leader reads the sent range in a thread. If its own log is damaged, another replica should lead.
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
"""Minimum interval between checks of a partition, in seconds. There are other reasons to ask again, and each check
reads from the disk."""


class Rechecks:
    """The checks of leaders' logs for damaged records, at most one per partition in 2 s. `condemn` is called if a log
    is damaged.
    """

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
        """Check the records at `offset` in a thread, unless the partition was checked a short while ago."""
        if not self._is_due(partition):
            return
        task = asyncio.create_task(self._look(partition, offset, max_bytes), name=f"look at {partition!r}")
        self._looking[task] = None
        task.add_done_callback(self._looking.pop)

    def confirmed(self, partition: Partition, error: KafkaError) -> None:
        """Report the damaged log, which a read on the event loop has found by itself: no check is needed."""
        if self._is_due(partition) and self._holds(partition):
            self._condemn(partition, error)

    def _is_due(self, partition: Partition) -> bool:
        """Return whether the partition's last check was long enough ago. If so, the current time counts as its last
        check.
        """
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
        # A truncation meanwhile explains the finding, and a log in another folder may be intact.
        if (
            found is not None
            and self._holds(partition)
            and partition.log is log
            and log.durability.cuts == cuts
        ):
            self._condemn(partition, found)

    async def close(self) -> None:
        """Stop all checks of logs. Returns once the disk has answered."""
        looking = list(self._looking)
        for task in looking:
            task.cancel()
        if looking:
            await asyncio.wait(looking)
