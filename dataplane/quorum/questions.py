"""Requests to the quorum's leader for facts that are not in this broker's image; here they are called questions.

Only an active leader answers. A node that no longer leads is silent, as is a node of an earlier version. The caller's
timeout covers both cases, and a new leader is asked again.
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
"""A function that sends the question of this number to the present leader, if there is one."""


@dataclass(frozen=True, slots=True)
class _Question:
    send: Send
    answer: asyncio.Future[Answer]


class PendingQuestions:
    """The questions to the quorum's leader that wait for an answer, by number."""

    def __init__(self) -> None:
        self._last = 0
        self._waiting: dict[int, _Question] = {}

    async def ask(self, send: Send, timeout_s: float) -> Answer | None:
        """Send a question to the quorum's leader by calling `send` with its number. Return the answer; None if none
        came in time."""
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
        """Send all pending questions again, to the new leader of the quorum."""
        for number, question in self._waiting.items():
            question.send(number)

    def answered(self, answer: Answer) -> None:
        """Pass an answer to the caller that asked the question, if it still waits."""
        question = self._waiting.get(answer.question)
        if question is not None and not question.answer.done():
            question.answer.set_result(answer)
