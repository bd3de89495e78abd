"""What a program is told when the partitions of its consumer change hands."""

from __future__ import annotations

from collections.abc import Awaitable

from ...records import TopicPartition


class RebalanceListener:
    """Override what is of interest; each may be a plain or an async function.

    While one runs, none of the partitions that it is told of is read, and the member stays in its group: there is time
    for `max_poll_interval_ms`. It may commit and seek, but not await `stop` or `unsubscribe`. What it raises is raised
    by the next read; the partitions change hands all the same.

        class Committing(RebalanceListener):
            async def on_partitions_revoked(self, partitions):
                await consumer.commit()

        consumer.subscribe(["originals"], listener=Committing())
    """

    def on_partitions_assigned(self, partitions: set[TopicPartition]) -> Awaitable[None] | None:
        """These are new, and will be read from where the group committed, or from where this seeks. Called after every
        rebalance, with none if none is new."""
        return None

    def on_partitions_revoked(self, partitions: set[TopicPartition]) -> Awaitable[None] | None:
        """These are about to go to somebody else: the last chance to commit for them. With assignors that are not
        cooperative that is all partitions, before each rebalance."""
        return None

    def on_partitions_lost(self, partitions: set[TopicPartition]) -> Awaitable[None] | None:
        """These have been somebody else's for a while perhaps, as the group has thrown this member out. Nothing can be
        committed for them."""
        return None
