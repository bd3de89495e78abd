"""Copies of mirrors among this broker's replicas. The log of a copy may have to end at another offset before it
leads."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from ..fetch_values import PartitionKey
from ..replica.partition import Partition
from .cut_searches import CutSearches

if TYPE_CHECKING:
    from ....protocol.cluster.mirror_table import MirrorTable

logger = logging.getLogger(__name__)


class MirrorCopies:
    """The replicas on this broker that are copies of mirrors: the mirror of each, and the offset at which its log has
    to end. One writer: the event loop.
    """

    def __init__(
        self,
        look_again: Callable[[set[PartitionKey]], None],
        give_up: Callable[[Iterable[PartitionKey]], None],
    ) -> None:
        """`look_again` is called with the replicas whose searches for a promotion's end offset are over. `give_up`
        takes replicas offline whose logs cannot be read.
        """
        self._cut_searches = CutSearches(look_again, give_up)

    def look_at(self, partition: Partition, mirrors: MirrorTable) -> None:
        """Set `partition.copy_of` to the name of the mirror that the replica is a copy of, or to an empty string."""
        mirror = mirrors.mirror_of(partition.topic_id)
        partition.copy_of = "" if mirror is None else mirror.name

    def goes_on_where_it_should(self, partition: Partition, mirrors: MirrorTable, leader_epoch: int) -> bool:
        """Make the log of a copy end where it must before the replica leads in `leader_epoch`. Returns False while the
        offset is still searched for.

        From some leader epoch on, the log of a copy may have to continue at another offset than its end. A copy that is
        promoted at a cut ends at the first marker at or after the cut. The records between belong to no transaction
        that was decided there, and may stay.
        """
        copy = mirrors.partition(partition.topic_id, partition.index)
        if copy is None:
            return True
        log = partition.log
        offset = copy.goes_on_at(log.leader_epochs.latest_epoch, log.log_end_offset, leader_epoch)
        resumption = copy.resumption
        if offset is not None and resumption is not None and copy.promoted_epoch == resumption.leader_epoch:
            search = self._cut_searches.end_of(partition, offset)
            if search is None:
                return False
            offset = search.marker
        if offset is not None:
            logger.warning("%r: the copy goes on at offset %d", partition, offset)
            partition.go_on_at(offset)
        return True

    def forget(self, partition: Partition) -> None:
        """Drop the search in the log of a replica that is removed or offline."""
        self._cut_searches.forget(partition)
