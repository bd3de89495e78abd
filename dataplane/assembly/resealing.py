"""Re-encryption of secrets: a starting broker has every secret encrypted under the first cluster secret.

This happens once per start. While nodes restart one by one with changed lines in the secret's file, running brokers
still have the old line first. If they repeated it, they would undo the work of the restarted brokers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator

from ...protocol.errors import KafkaError
from ...protocol.exposition import Family, gauge
from ...protocol.messages.config_commands import AlterConfigs
from ...protocol.messages.user_commands import AlterScramCredentials
from ..quorum.access import Quorum
from ..runtime.time_slices import pieces
from ..security.resealing import Resealer

logger = logging.getLogger(__name__)

OLD_SECRETS = gauge(
    "ottla_secrets_under_old_cluster_secret",
    "Passwords of users and settings in the quorum that are encrypted under another cluster secret than the first.",
)
_CHANGES_PER_COMMAND = 250
_TRY_AGAIN_S = 10.0


class Resealing:
    """The task that encrypts secrets in the quorum's metadata under the first cluster secret. It ends by itself."""

    def __init__(self, quorum: Quorum, resealer: Resealer) -> None:
        self._quorum = quorum
        self._resealer = resealer
        self._task: asyncio.Task[None] | None = None

    def start(self) -> asyncio.Task[None]:
        """Start the re-encryption, once the cluster image is complete. Its task ends once all secrets are re-encrypted
        that a present cluster secret opens.
        """
        self._task = asyncio.create_task(self._run(), name="sealing anew")
        return self._task

    async def close(self) -> None:
        """Stop the re-encryption."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            try:
                count = await self._seal_anew()
            except KafkaError as error:
                logger.warning("what is encrypted under an older cluster secret stays so for now: %s", error)
                await asyncio.sleep(_TRY_AGAIN_S)
                continue
            if count:
                logger.info("%d secrets are encrypted under the first cluster secret now", count)
            if left := self.left():
                logger.warning("%d secrets cannot be read under any cluster secret: set them again", left)
            return

    def left(self) -> int:
        """Return the number of secrets in the cluster image that are not encrypted under the first cluster secret."""
        return self._resealer.left(self._quorum.image)

    def metric_families(self) -> Iterator[Family]:
        """Yield the metric of the number of secrets under an older cluster secret."""
        yield Family(OLD_SECRETS, [((), self.left())])

    async def _seal_anew(self) -> int:
        """Submit changes that encrypt secrets under the first cluster secret to the quorum. Returns the number of
        secrets. Raises KafkaError.
        """
        image = self._quorum.image
        credentials = list(self._resealer.credentials(image))
        for some in pieces(credentials, _CHANGES_PER_COMMAND):
            await self._quorum.submit(AlterScramCredentials(changes=list(some)))
        settings = list(self._resealer.settings(image))
        for few in pieces(settings, _CHANGES_PER_COMMAND):
            await self._quorum.submit(AlterConfigs(resources=list(few)))
        mirrors = list(self._resealer.mirrors(image))
        for command in mirrors:
            await self._quorum.submit(command)
        return len(credentials) + len(settings) + len(mirrors)
