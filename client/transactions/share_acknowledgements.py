"""Acknowledgements of share groups' records in the transactions of one producer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, Literal

from ...protocol.errors import KafkaError
from ...protocol.messages.share_fetch import AcknowledgeType
from ..producing.accumulator import ProducerIdentity
from ..sharing.enlisted import EnlistingTransaction
from ..sharing.tasks import Acknowledgement, ShareTask, enlist
from .questions import ProducerQuestions

AcknowledgementKind = Literal["accept", "release", "reject"]
KINDS: Final[dict[str, AcknowledgeType]] = {
    "accept": AcknowledgeType.ACCEPT,
    "release": AcknowledgeType.RELEASE,
    "reject": AcknowledgeType.REJECT,
}


class TaskAcknowledgements:
    """The acknowledgements of the open transaction. The consumers of the tasks send them at once; a commit waits for
    the answers."""

    def __init__(
        self,
        transactional_id: str,
        questions: ProducerQuestions,
        refused: Callable[[KafkaError, Callable[[], bool]], Awaitable[None]],
    ) -> None:
        """`refused` fails the transaction that an error belongs to, if the function that it gets says that the
        transaction is still in progress."""
        self._transactional_id = transactional_id
        self._questions = questions
        self._refused = refused
        self._transaction: EnlistingTransaction | None = None
        self._answers: set[asyncio.Task[None]] = set()

    def add(
        self, tasks: Iterable[ShareTask], kind: str, producer: ProducerIdentity, useful: Callable[[], bool]
    ) -> None:
        """Acknowledge tasks with the open transaction of `producer`. Raises TypeError and ValueError for an invalid
        argument, and the errors of `enlist`."""
        if kind not in KINDS:
            raise ValueError(f"kind is {', '.join(list(KINDS)[:-1])} or {list(KINDS)[-1]}, not {kind!r}")
        chosen = list(tasks)
        for task in chosen:
            if not isinstance(task, ShareTask):
                raise TypeError(f"a transaction acknowledges tasks of an ottla.ShareConsumer, not {task!r}")
        if self._transaction is None:
            self._transaction = EnlistingTransaction(self._transactional_id, producer)
        answers = enlist(chosen, self._transaction, KINDS[kind])
        answering = self._questions.spawn(self._await(answers, useful))
        self._answers.add(answering)
        answering.add_done_callback(self._answers.discard)

    async def answered(self) -> None:
        """Wait until all acknowledgements so far are answered. A refusal has failed the transaction by then."""
        if self._answers:
            await asyncio.wait(list(self._answers))

    def close(self) -> None:
        """Note that nothing more becomes part of the transaction. Tasks whose acknowledgements were not sent are
        released."""
        transaction, self._transaction = self._transaction, None
        if transaction is not None:
            transaction.close()

    async def _await(self, answers: Iterable[Acknowledgement], useful: Callable[[], bool]) -> None:
        try:
            for answer in answers:
                await answer
        except KafkaError as error:
            await self._refused(error, useful)
