"""A broker: opens its sockets and folders, assembles its parts, runs them, and stops them in order."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Iterator

from ..protocol.exposition import Family
from ..protocol.session.node_proof import INCARNATION_BYTES
from .assembly.foundation import StorageUnusable, lay_foundation
from .assembly.lifecycle import close_all
from .assembly.parts import BrokerParts
from .configuration.config import BrokerConfig
from .mirroring.source import Sources
from .quorum.registration import SessionLost
from .runtime.allocator import keep_freed_memory

__all__ = ["Broker", "StorageUnusable"]

logger = logging.getLogger(__name__)


class Broker:
    """A broker: its logs, its session with the quorum, its replicas, its groups, its server.

    When the disk under a data folder fails, the replicas in it go offline, and other brokers lead their partitions.
    When that was the last folder, the broker leaves the cluster in good order. A full disk is not a failure: other
    brokers lead until it has room again.
    """

    def __init__(self, config: BrokerConfig, sources: Sources | None = None) -> None:
        """Create a broker that is not running. `sources` opens connections to the clusters that mirrors copy; None if
        there are no mirrors."""
        self.config = config
        self._sources = sources
        self.parts: BrokerParts | None = None
        """The parts of the broker; None until sockets are bound and logs are open."""
        self._incarnation = os.urandom(INCARNATION_BYTES)
        self._serves = False

    async def start(self) -> None:
        """Bind, load, register, serve; return once this broker may lead. The quorum may come up later.

        Raises StorageUnusable if the data folders cannot be used. Raises PortInUse if another process has an address.
        Raises SessionLost if another process has this broker's id.
        """
        keep_freed_memory()
        foundation = await lay_foundation(self.config)
        self.parts = parts = BrokerParts(
            self.config, self._incarnation, foundation, _end_process, self._sources
        )
        for part in parts.started:
            part.start()
        await parts.session.start()
        await parts.session.registered()
        # Report before unfencing: an unfenced broker would be elected for replicas that it has lost.
        await parts.replicas.offline.reported()
        parts.session.ask_to_unfence()
        await parts.session.unfenced()
        # Serve only now: with an empty image, this broker would answer that there are no topics and no brokers, itself
        # included, and clients drop the addresses that an answer leaves out.
        parts.server.start()
        parts.storage.moves.resume()
        parts.security.resealing.start()
        self._serves = True
        logger.info("broker %d serves", self.config.node_id)

    async def stop(self) -> None:
        """Move leaderships away, stop serving, and leave the logs closed cleanly.

        Raises StorageUnusable if the disk under the last data folder has failed.
        """
        parts = self.parts
        if parts is None:
            return
        clean_epoch = await self._leave(parts)
        await close_all(parts.closed)
        # After the replicas, since they report their last changes through the session.
        await parts.session.stop()
        # After the session, which no longer moves the position, and before the logs, whose folders hold it.
        await parts.storage.upkeep.write_position()
        failure = parts.storage.failures.fatal
        await asyncio.to_thread(parts.logs.close, clean=failure is None, broker_epoch=clean_epoch)
        if failure is not None:
            raise failure

    async def _leave(self, parts: BrokerParts) -> int:
        """Have this broker's leaderships moved to other brokers; return the broker epoch up to which the logs are
        complete."""
        session = parts.session
        if session.broker_epoch < 0:
            # This process never registered, so the logs are as the last registration left them.
            return parts.logs.previous_broker_epoch
        epoch = session.broker_epoch
        if not session.fenced:
            timeout_s = self.config.quorum.controlled_shutdown_timeout_ms / 1000
            if not await session.shut_down_controlled(timeout_s):
                logger.warning(
                    "leaderships did not all move within %.0f s, or no quorum node runs: clients will fail over",
                    timeout_s,
                )
        return epoch

    @property
    def has_tls(self) -> bool:
        """True if a listener has keys and certificates."""
        return self.config.quorum.tls is not None or any(
            listener.tls is not None for listener in self.config.listeners
        )

    def look_at_keys(self) -> None:
        """Reload the keys and certificates of all TLS listeners from their files. Unusable files change nothing."""
        if self.parts is not None:
            self.parts.tls_reloads.look_again()

    def families(self) -> Iterator[Family | None]:
        """Return the broker's metrics for a page that is scraped; none before the broker serves."""
        return self.parts.metrics.families() if self.parts is not None and self._serves else iter(())

    def unready(self) -> str:
        """Return the reason why the broker does not take part now; empty if it does.

        It takes part once its replicas have been in sync.
        """
        parts, name = self.parts, f"broker {self.config.node_id}"
        if parts is not None and parts.session.history_lost:
            return parts.session.history_lost
        if parts is None or not self._serves:
            return f"{name} is starting"
        if parts.storage.failures.fatal is not None:
            return str(parts.storage.failures.fatal.strerror)
        if parts.session.fenced:
            return f"{name} is fenced"
        if lack := parts.storage.room.lack():
            return f"{name} has no room: {lack}"
        behind = parts.catch_up.behind()
        return f"{name} is catching up: {behind} of its replicas are not in sync" if behind else ""


def _end_process(reason: SessionLost) -> None:
    """Stop this process in good order, as by a signal, because another process has this broker's id."""
    logger.error("stopping: %s", reason)
    os.kill(os.getpid(), signal.SIGTERM)
