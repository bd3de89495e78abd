"""Deletion of the logs of removed replicas, a few in each iteration of the event loop, since a topic may have
thousands."""

from __future__ import annotations

import asyncio
import logging
from itertools import islice
from typing import Protocol

from ....protocol.errors import KafkaError

logger = logging.getLogger(__name__)

_PER_TURN = 16


class Deletes(Protocol):
    """A store that deletes logs on this broker."""

    def delete(self, topic: str, topic_id: bytes, index: int) -> None:
        """Delete a log. Raises KafkaError if that fails."""


class LogRemovals:
    """The logs of removed replicas that are still to be deleted, by topic name and partition index."""

    def __init__(self, logs: Deletes, loop: asyncio.AbstractEventLoop) -> None:
        self._logs = logs
        self._loop = loop
        self._waiting: dict[tuple[str, int], bytes] = {}
        self._in_turn = 0

    def add(self, topic: str, topic_id: bytes, index: int) -> None:
        """Delete a log: now, or in a later iteration if there are many."""
        self.now(topic, index)
        if not self._in_turn:
            self._loop.call_soon(self._next_turn)
        self._waiting[topic, index] = topic_id
        if self._in_turn < _PER_TURN:
            self._in_turn += 1
            self.now(topic, index)

    def now(self, topic: str, index: int) -> None:
        """Delete this partition's log at once if its deletion is pending, since a new log with the same name is about
        to be created.
        """
        topic_id = self._waiting.pop((topic, index), None)
        if topic_id is not None:
            self._delete(topic, topic_id, index)

    def _next_turn(self) -> None:
        some = list(islice(self._waiting, _PER_TURN))
        self._in_turn = len(some)
        if some:
            self._loop.call_soon(self._next_turn)
        for topic, index in some:
            self.now(topic, index)

    def close(self) -> None:
        """Delete all remaining logs."""
        for topic, index in list(self._waiting):
            self.now(topic, index)

    def _delete(self, topic: str, topic_id: bytes, index: int) -> None:
        try:
            self._logs.delete(topic, topic_id, index)
        except KafkaError as error:
            logger.error("%s-%d is left behind, to be deleted at the next start: %s", topic, index, error)
