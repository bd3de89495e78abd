"""A check that this quorum still has all metadata records that a broker has received. Some are missing if the quorum's
folders were restored from old copies."""

from __future__ import annotations

import logging
from collections.abc import Callable

from ..protocol.messages.quorum_session import HistoryCompared, Subscribe
from .broker_sessions import BrokerSession
from .feed import MetadataFeed
from .raft.node import RaftNode

logger = logging.getLogger(__name__)

Compared = Callable[[bool | None], None]
"""Callback for the result: true if this history is missing records that the broker has followed; None if this node does
not lead."""


class HistoryCheck:
    """A comparison of each broker's position in the metadata stream (offset and history mark) with the feed of the
    active leader."""

    def __init__(self, raft: RaftNode, feed: MetadataFeed, publish: Callable[[], None]) -> None:
        """`publish` brings the feed up to the applied commands."""
        self._raft = raft
        self._feed = feed
        self._publish = publish

    def lacks(self, offset: int, history: int) -> bool:
        """Return whether this node's feed seems to be missing records that a broker has followed up to `offset`, where
        the broker's history mark is `history`."""
        return self._feed.lacks(offset, history)

    def compare(self, broker_id: int, offset: int, history: int, compared: Compared) -> None:
        """Determine whether the quorum has lost records that the broker has, and pass the result to `compared`.

        A majority first confirms that this node leads. It then has all committed records, and so all records that any
        broker can have.
        """

        def confirmed(_: object, error: Exception | None) -> None:
            if error is not None:
                compared(None)
                return
            self._publish()
            lacks = self.lacks(offset, history)
            if lacks:
                logger.error(
                    "the quorum has lost metadata: broker %d has followed it up to offset %d, and here it ends at %d "
                    'or went on differently. Folders were put back from old copies: see "Restore the quorum from a '
                    'backup" in docs/OPERATIONS.md',
                    broker_id,
                    offset,
                    self._feed.end_offset,
                )
            compared(lacks)

        self._raft.submit(None, confirmed)

    def subscribed(self, session: BrokerSession, message: Subscribe) -> None:
        """Answer a broker's subscription with the result of the comparison, if this node leads. The comparison is made
        if the broker asks for it, or this node seems to be missing records that the broker has."""
        if message.history < 0 or not self._raft.is_leader:
            return

        def compared(lacks: bool | None) -> None:
            if lacks is not None:
                session.send(
                    HistoryCompared(term=self._raft.term, end_offset=self._feed.end_offset, stands=not lacks)
                )

        if message.asks or self.lacks(message.metadata_offset, message.history):
            self.compare(session.broker_id, message.metadata_offset, message.history, compared)
