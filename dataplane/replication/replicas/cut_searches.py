"""Searches for the end of copies that are promoted at a cut: the first marker at or after the cut. They run in steps on
the event loop.

The records copied since the cut may be those of a second or of days. Until the end is known the replica has no role.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ....protocol.errors import KafkaError
from ...log.copies import look_for_marker
from ..fetch_values import PartitionKey
from ..replica.partition import Partition

logger = logging.getLogger(__name__)

BATCHES_PER_TURN = 200


@dataclass(slots=True, eq=False)
class EndOfCopy:
    """The search of one mirror's copy for its first transaction marker at or after the offset `cut`, at which the copy
    is promoted.
    """

    partition: Partition
    cut: int
    reached: int
    """Offset up to which there is no marker."""
    is_over: bool = False
    marker: int | None = None
    """Offset of the marker, once the search is over; None if there is none."""


class CutSearches:
    """The searches of copies for their ends, one replica after the other, a piece in each iteration of the event loop.
    One writer: the event loop.
    """

    def __init__(
        self,
        look_again: Callable[[set[PartitionKey]], None],
        give_up: Callable[[Iterable[PartitionKey]], None],
    ) -> None:
        """`look_again` is called with the replicas whose searches are over. `give_up` takes replicas offline whose logs
        cannot be read.
        """
        self._loop = asyncio.get_running_loop()
        self._look_again = look_again
        self._give_up = give_up
        self._searches: dict[PartitionKey, EndOfCopy] = {}
        self._is_due = False

    def end_of(self, partition: Partition, cut: int) -> EndOfCopy | None:
        """Return the search for the first transaction marker of a copy at or after the offset `cut`, if the search is
        over. Otherwise start or continue it, and return None.
        """
        key = (partition.topic_id, partition.index)
        search = self._searches.get(key)
        if search is None or search.partition is not partition or search.cut != cut:
            self._searches[key] = EndOfCopy(partition, cut, cut)
            self._have_a_turn()
            return None
        if not search.is_over:
            return None
        return self._searches.pop(key)

    def forget(self, partition: Partition) -> None:
        """Drop the search in the log of a replica that is removed or offline."""
        self._searches.pop((partition.topic_id, partition.index), None)

    def _have_a_turn(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._is_due = False
        if not self._searches:
            return
        key, search = next(iter(self._searches.items()))
        try:
            self._look(search)
        except KafkaError as error:
            logger.error("%r: the end of the copy cannot be found: %s", search.partition, error.message)
            del self._searches[key]
            self._give_up([key])
        if search.is_over:
            self._look_again({key})
            # A replica that no longer leads does not ask for the result, so it is dropped.
            self._searches.pop(key, None)
        if self._searches:
            self._have_a_turn()

    def _look(self, search: EndOfCopy) -> None:
        log = search.partition.log
        search.marker, search.reached = look_for_marker(log, search.reached, BATCHES_PER_TURN)
        search.is_over = search.marker is not None or search.reached >= log.log_end_offset
