"""What the handlers need of the session with the metadata quorum."""

from __future__ import annotations

from typing import Protocol

from ottla.protocol.cluster_image import ClusterImage
from ottla.protocol.messages.quorum_commands import Command
from ottla.protocol.schema import Message


class Quorum(Protocol):
    """The session with the metadata quorum."""

    @property
    def image(self) -> ClusterImage:
        """The cluster as this broker knows it; changed only between turns of the event loop."""
        ...

    async def submit(self, command: Command, timeout_ms: int | None = None) -> Message:
        """Have a command applied exactly once and return its result, once the image contains its effects.

        Raises KafkaError, REQUEST_TIMED_OUT among them.
        """
        ...
