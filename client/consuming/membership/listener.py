"""Notifications of a program about the partitions that its consumer gets and gives up."""

from __future__ import annotations

from collections.abc import Awaitable

from ...records import TopicPartition


class RebalanceListener:
    """A base class for listeners: override the methods you need, as plain or async functions.

    During a method, the partitions passed to it are not read, and the consumer stays a member of its group: the method
    may take up to `max_poll_interval_ms`. It may commit and seek, but not await `stop` or `unsubscribe`. The next read
    raises its exception; the partitions change hands all the same.

        class Committing(RebalanceListener):
            async def on_partitions_revoked(self, partitions):
                await consumer.commit()

        consumer.subscribe(["originals"], listener=Committing())
    """

    def on_partitions_assigned(self, partitions: set[TopicPartition]) -> Awaitable[None] | None:
        """Handle newly assigned partitions.

        Reading begins at their committed offsets, or at the places that this method seeks. Called after every
        rebalance, with an empty set if no partition is new.
        """
        return None

    def on_partitions_revoked(self, partitions: set[TopicPartition]) -> Awaitable[None] | None:
        """Handle partitions that are about to go to another member: the last chance to commit for them.

        With assignors that are not cooperative, these are all partitions, before each rebalance.
        """
        return None

    def on_partitions_lost(self, partitions: set[TopicPartition]) -> Awaitable[None] | None:
        """Handle partitions that other members may have had for a while, as the group has thrown this member out.

        Nothing can be committed for them.
        """
        return None
