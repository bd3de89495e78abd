"""Asking the quorum's leader what this broker's image does not tell.

Only an active leader answers: a node that leads no more is silent, as is one of an earlier version. The caller's
timeout covers both, and a new leader is asked again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from ...protocol.messages.app_version_questions import AppVersionsTold
from ...protocol.messages.quorum_session import QuorumStatus
from ...protocol.messages.transaction_questions import TransactionAnswer

Answer = QuorumStatus | TransactionAnswer | AppVersionsTold
Send = Callable[[int], None]
"""Passes the question of this number on to the present leader, if there is one."""


@dataclass(frozen=True, slots=True)
class _Question:
    send: Send
    answer: asyncio.Future[Answer]


class PendingQuestions:
    """The questions that wait for an answer, by number."""

    def __init__(self) -> None:
        self._last = 0
        self._waiting: dict[int, _Question] = {}

    async def ask(self, send: Send, timeout_s: float) -> Answer | None:
        """The leader's answer; None if none came in time."""
        self._last += 1
        number = self._last
        question = self._waiting[number] = _Question(send, asyncio.get_running_loop().create_future())
        try:
            async with asyncio.timeout(timeout_s):
                send(number)
                return await question.answer
        except TimeoutError:
            return None
        finally:
            del self._waiting[number]

    def new_leader(self) -> None:
        """It is asked whatever waits."""
        for number, question in self._waiting.items():
            question.send(number)

    def answered(self, answer: Answer) -> None:
        """Answers whoever asked this, if it still waits."""
        question = self._waiting.get(answer.question)
        if question is not None and not question.answer.done():
            question.answer.set_result(answer)
