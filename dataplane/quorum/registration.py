"""This broker's registration: the request to the quorum, and the registration's state in the cluster image."""

import asyncio
import logging

from ...protocol.cluster.cluster_image import BrokerState, ClusterImage
from ...protocol.features import FEATURES
from ...protocol.messages.broker_commands import RegisterBroker
from ...protocol.messages.metadata_records import BrokerFeature
from ...protocol.messages.quorum_commands import encode_command
from ...protocol.messages.quorum_session import SubmitCommand
from ..runtime.clocks import wall_ms
from .config import MetadataPosition, QuorumSessionConfig

logger = logging.getLogger(__name__)


class SessionLost(Exception):
    """This process has lost its registration and has to stop, because it is no longer registered as this
    broker."""


class Registration:
    """The registration of one process as a broker. The process registers once, is fenced and unfenced many times, and
    may lose the registration."""

    def __init__(self, config: QuorumSessionConfig) -> None:
        self._config = config
        self._taken_at: int | None = None
        self._registered = asyncio.Event()
        self._unfenced = asyncio.Event()
        self.lost: SessionLost | None = None
        """The reason why this process has to stop."""

    def request(self) -> SubmitCommand:
        """Return the command that registers this process as a broker."""
        config = self._config
        command = RegisterBroker(
            broker_id=config.broker_id,
            incarnation=config.incarnation,
            previous_broker_epoch=config.previous_broker_epoch,
            listeners=list(config.listeners),
            rack=config.rack,
            log_dirs=list(config.log_dirs),
            features=[BrokerFeature(name=feature.name, most=feature.most) for feature in FEATURES.values()],
            host=config.host,
            now_ms=wall_ms(),
        )
        reached = config.reached or MetadataPosition(-1, 0)
        return SubmitCommand(
            sequence=0,
            command=encode_command(None, command),
            reached_offset=reached.offset,
            reached_history=reached.history,
        )

    def taken(self, metadata_offset: int) -> None:
        """Note the metadata offset at which the quorum has registered this process. An image at that offset contains
        the registration."""
        self._taken_at = metadata_offset

    async def registered(self) -> None:
        """Wait until this broker is registered and its image contains the registration. Raises SessionLost."""
        await self._registered.wait()
        self._raise_if_lost()

    async def unfenced(self) -> None:
        """Wait until this broker is unfenced. Raises SessionLost."""
        await self._unfenced.wait()
        self._raise_if_lost()

    def in_image(self, image: ClusterImage) -> BrokerState | None:
        """Return this registration's broker state in the image, or None if the image has none."""
        broker = image.brokers.get(self._config.broker_id)
        return broker if broker is not None and broker.incarnation == self._config.incarnation else None

    def is_in(self, image: ClusterImage) -> bool:
        """Return whether the image has this registration and all its consequences."""
        is_past = self._taken_at is not None and image.offset >= self._taken_at
        return is_past and self.in_image(image) is not None

    def look(self, image: ClusterImage) -> bool:
        """Update from the image whether this broker is registered and unfenced. Returns False if the image should
        contain this registration and does not."""
        if self._taken_at is None or image.offset < self._taken_at:
            return True
        broker = self.in_image(image)
        if broker is None:
            return False
        self._registered.set()
        if broker.fenced:
            if self._unfenced.is_set():
                logger.warning("this broker was fenced")
            self._unfenced.clear()
        else:
            self._unfenced.set()
        return True

    def lose(self, reason: str) -> SessionLost:
        """Note that the registration no longer holds, and wake all waiting tasks, which then raise SessionLost."""
        logger.error("%s", reason)
        self.lost = SessionLost(reason)
        self._registered.set()
        self._unfenced.set()
        return self.lost

    def _raise_if_lost(self) -> None:
        if self.lost is not None:
            raise self.lost
