"""The interface through which the rest of the broker reaches the metadata quorum."""

from __future__ import annotations

from typing import Protocol

from ...protocol.cluster.cluster_image import ClusterImage
from ...protocol.messages.command import Command, ResultT
from ..security.peer_session import PeerSession


class Quorum(Protocol):
    """The metadata quorum for the rest of the broker: the cluster's image on this broker, and a method to change the
    cluster."""

    @property
    def image(self) -> ClusterImage:
        """The cluster's metadata as this broker knows them. The image changes only between turns of the event loop."""
        ...

    @property
    def broker_epoch(self) -> int:
        """The epoch of this broker's registration; -1 before the registration."""
        ...

    async def submit(
        self,
        command: Command[ResultT],
        timeout_ms: int | None = None,
        *,
        author: PeerSession | None = None,
    ) -> ResultT:
        """Submit a command, which the quorum applies exactly once, in the order of the calls. Without `timeout_ms` the
        configured time limit holds. `author` is the client that the quorum's log names for a change of rights, users or
        settings.

        Returns the result as soon as the image contains the command's changes. Raises CommandRefused, with the quorum's
        own message, if the quorum refuses the command. Raises KafkaError if the outcome is unknown: REQUEST_TIMED_OUT
        if no outcome arrived in time, STALE_BROKER_EPOCH if another process has taken over this broker's id,
        BROKER_NOT_AVAILABLE while the quorum is missing metadata that this broker has followed.
        """
        ...
