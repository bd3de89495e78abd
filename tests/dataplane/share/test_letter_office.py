"""The transactions of one share partition: a dead letter and the end of its record are written together."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import pytest

from ottla.dataplane.coordinated_log.transactional_producer import TransactionalProducer
from ottla.dataplane.share.leader.dependencies import CommitUnknown, LetterTopic, ShareKey, StateChange
from ottla.dataplane.share.letter_office import StateTransactions
from ottla.dataplane.share.states import DurableState, StateBatch
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.command import CommandRefused
from ottla.protocol.messages.transaction_commands import EndTransaction, InitTransactionalId
from ottla.protocol.records.record import NewRecord

KEY = ShareKey("g", b"t" * 16, 3)
TOPIC = LetterTopic("dlq.t", b"d" * 16, 0, 1_000_000)
LETTERS: list[NewRecord] = [(None, b"v", 1)]
CHANGE = StateChange(0, 1, [StateBatch(7, 7, DurableState.ARCHIVED)])


class Producer(NamedTuple):
    """The answer of the quorum with the producer of the next transaction."""

    producer_id: int
    producer_epoch: int


class Steps:
    """The quorum, the topic for letters and the durable state in one: they note what is done, in its order."""

    def __init__(self, **errors: Exception) -> None:
        self.made: list[str] = []
        self.errors = errors
        self._epoch = -1

    def _make(self, step: str, producer_epoch: int) -> None:
        if step in self.errors:
            raise self.errors.pop(step)
        self.made.append(f"{step} {producer_epoch}")

    async def submit(self, command: Any) -> Producer:
        if isinstance(command, InitTransactionalId):
            self._epoch += 1
            self._make("begin", self._epoch)
        else:
            assert isinstance(command, EndTransaction)
            assert command.commits
            self._make("commit", command.producer_epoch)
            self._epoch += 1
        return Producer(7, self._epoch)

    async def append(
        self, topic_id: bytes, partition: int, records: bytes, writer: TransactionalProducer
    ) -> None:
        assert (topic_id, partition) == (TOPIC.topic_id, TOPIC.partition)
        self._make("letter", writer.producer_epoch)

    async def write_in_transaction(self, *key: object, writer: TransactionalProducer, **change: Any) -> None:
        assert (key, change) == (KEY, CHANGE._asdict())
        self._make("end", writer.producer_epoch)


def transactions(steps: Steps) -> StateTransactions:
    return StateTransactions(KEY, cast(Any, steps), steps, cast(Any, steps), lambda: 5)


async def test_a_letter_and_the_end_of_its_record_are_one_transaction() -> None:
    steps = Steps()
    of_one = transactions(steps)
    await of_one.commit(TOPIC, LETTERS, CHANGE)
    assert steps.made == ["begin 0", "letter 0", "end 0", "commit 0"]
    await of_one.commit(TOPIC, LETTERS, CHANGE)
    assert steps.made[4:] == ["letter 1", "end 1", "commit 1"]


@pytest.mark.parametrize("step", ["letter", "end"])
async def test_a_transaction_without_one_of_both_is_aborted_by_the_next(step: str) -> None:
    steps = Steps(**{step: KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, "below min ISR")})
    of_one = transactions(steps)
    with pytest.raises(KafkaError, match="below min ISR"):
        await of_one.commit(TOPIC, LETTERS, CHANGE)
    assert not any(made.startswith("commit") for made in steps.made)
    before = len(steps.made)
    await of_one.commit(TOPIC, LETTERS, CHANGE)
    assert steps.made[before:] == ["begin 1", "letter 1", "end 1", "commit 1"], (
        "a new epoch aborts the former"
    )


async def test_the_outcome_of_a_refused_commit_is_in_the_durable_state_alone() -> None:
    steps = Steps(commit=CommandRefused(ErrorCode.INVALID_PRODUCER_EPOCH, "a new leader has begun"))
    of_one = transactions(steps)
    with pytest.raises(CommitUnknown, match="a new leader"):
        await of_one.commit(TOPIC, LETTERS, CHANGE)


async def test_a_commit_is_repeated_until_the_quorum_answers() -> None:
    steps = Steps(commit=KafkaError(ErrorCode.REQUEST_TIMED_OUT, "no leader"))
    await transactions(steps).commit(TOPIC, LETTERS, CHANGE)
    assert steps.made == ["begin 0", "letter 0", "end 0", "commit 0"]
