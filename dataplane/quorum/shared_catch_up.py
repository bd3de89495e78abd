"""Questions to the quorum that let this broker's image catch up. All callers that wait at the same time share a
question."""

from __future__ import annotations

import asyncio
from typing import Final

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.transaction_commands import VerifyTransaction
from .access import Quorum

QUESTION_TIMEOUT_S: Final = 5.0


class SharedCatchUp:
    """A wait for the image to catch up with the quorum's decisions, shared by its callers. At most one request to the
    quorum is under way, and at most one is to follow.

    The quorum answers a `VerifyTransaction` command in the order of its log, and the answer comes once the image has
    all earlier decisions. So an answer serves every caller that came before its question was sent.
    """

    def __init__(self, broker_id: int, quorum: Quorum) -> None:
        self._broker_id = broker_id
        self._quorum = quorum
        self._asking = asyncio.Lock()
        self._next: asyncio.Task[None] | None = None

    async def wait(self) -> None:
        """Return once the image has all decisions that the quorum had made when this was called.

        Raises KafkaError as `Quorum.submit` does; REQUEST_TIMED_OUT if no answer came in time.
        """
        if self._next is None:
            self._next = asyncio.create_task(self._ask(), name="catching up with the quorum")
            # If all callers have given up, nothing else retrieves the failure.
            self._next.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.shield(self._next)

    async def _ask(self) -> None:
        async with self._asking:
            # The question does not cover the needs of callers that come from now on.
            self._next = None
            verify = VerifyTransaction(broker_id=self._broker_id, broker_epoch=self._quorum.broker_epoch)
            try:
                async with asyncio.timeout(QUESTION_TIMEOUT_S):
                    await self._quorum.submit(verify)
            except TimeoutError:
                raise KafkaError(
                    ErrorCode.REQUEST_TIMED_OUT,
                    f"the metadata quorum did not answer within {QUESTION_TIMEOUT_S:g} s",
                ) from None
