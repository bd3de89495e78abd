"""Asking the quorum's leader how far everybody has come.

The question rides on a heartbeat, so it costs nothing while nobody asks. A leader that does not know it stays
silent, as does a node that leads no more; the caller's timeout covers both, and a new leader is asked again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ...protocol.messages.quorum_session import QuorumStatus


class StatusQuestions:
    """The questions that wait for an answer.

    `send(number)` passes one on to the present leader, if there is one.
    """

    def __init__(self, send: Callable[[int], None]) -> None:
        self._send = send
        self._last = 0
        self._waiting: dict[int, asyncio.Future[QuorumStatus]] = {}

    async def ask(self, timeout_s: float) -> QuorumStatus | None:
        """The leader's answer; None if none came in time."""
        self._last += 1
        number = self._last
        answer: asyncio.Future[QuorumStatus] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        try:
            async with asyncio.timeout(timeout_s):
                self._send(number)
                return await answer
        except TimeoutError:
            return None
        finally:
            del self._waiting[number]

    def new_leader(self) -> None:
        """One question to it stands for all that wait."""
        if self._waiting:
            self._send(self._last)

    def answered(self, status: QuorumStatus) -> None:
        """Answers whoever asked before the answer was made."""
        for number, answer in self._waiting.items():
            if number <= status.question and not answer.done():
                answer.set_result(status)
