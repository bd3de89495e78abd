"""Reactions of a broker to the failure of the disk under a data folder."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Callable

from ...protocol.cluster.cluster_image import ClusterImage
from ...protocol.errors import KafkaError
from ..replication.replicas.replicas import Replicas
from ..storage.log_store import LogStore
from .foundation import StorageUnusable

logger = logging.getLogger(__name__)


class StorageFailures:
    """The handler of failed folders, which takes their replicas offline.

    After the failure of the last folder it ends this process by a signal.
    """

    def __init__(self, logs: LogStore, replicas: Replicas, image: Callable[[], ClusterImage]) -> None:
        self.fatal: StorageUnusable | None = None
        """Reason why this broker cannot continue; None while a folder is left."""
        self._logs = logs
        self._replicas = replicas
        self._image = image
        self._loop = asyncio.get_running_loop()
        logs.on_failure = self._failed_in_any_thread

    def _failed_in_any_thread(self, error: KafkaError) -> None:
        with contextlib.suppress(RuntimeError):  # The event loop has ended, so there is no need to notify it.
            self._loop.call_soon_threadsafe(self._failed, error)

    def _failed(self, error: KafkaError) -> None:
        logger.critical("a data folder is offline: %s", error.message)
        topics = self._image().topics
        self._replicas.take_offline(
            [(topics[topic].id, index) for topic, index in self._logs.let_failed_go() if topic in topics]
        )
        if not self._logs.usable and self.fatal is None:
            self.fatal = StorageUnusable(0, f"the disk failed, this broker stops: {error.message}")
            logger.critical("%s", self.fatal.strerror)
            os.kill(os.getpid(), signal.SIGTERM)
