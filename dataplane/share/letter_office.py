"""The way to the topics for dead letters, and the transactions in which letters and durable states change together.

Each share partition has a transactional id, of which its leader is the only producer. A new leader aborts what a former
leader has left open under it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from ...protocol.cluster.cluster_image import ClusterImage
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.command import CommandRefused
from ...protocol.messages.config_commands import ResourceType
from ...protocol.messages.transaction_commands import (
    ClientOrigin,
    EndTransaction,
    EndTransactionResult,
    InitTransactionalId,
)
from ...protocol.records.record import NewRecord
from ...protocol.settings.config_fields import setting
from ...protocol.settings.transactional_ids import LETTERS_PREFIX
from ..coordinated_log.transactional_producer import TransactionalProducer
from ..quorum.access import Quorum
from .leader.dependencies import (
    CommitUnknown,
    LetterTopic,
    LetterTransactions,
    ShareKey,
    StateChange,
    TransactionalPersister,
)
from .leader.letters import encoded

TIMEOUT_MS: Final = 30_000
"""Time after which the quorum aborts a transaction of letters whose leader is gone."""
_RETRY_S: Final = 0.2
_PERMISSION: Final = "errors.deadletterqueue.group.enable"
_BATCH_BYTES_MAX: Final = 512 * 1024


class Appends(Protocol):
    """The appends of this broker to partitions that any broker leads."""

    async def append(
        self, topic_id: bytes, partition: int, records: bytes, writer: TransactionalProducer
    ) -> None:
        """Append one batch in the writer's transaction, and wait until it is replicated. Raises KafkaError."""
        ...


@dataclass(frozen=True, slots=True)
class LetterRules:
    """The cluster's settings of topics for dead letters."""

    prefix: str = setting("errors.deadletterqueue.topic.name.prefix", str)
    """Beginning of the names of such topics."""
    may_create: bool = setting("errors.deadletterqueue.auto.create.topics.enable", bool)
    """True if brokers create such topics."""


class TopicsForLetters:
    """The topics for dead letters of all share partitions that this broker leads."""

    def __init__(
        self,
        quorum: Quorum,
        rules: Callable[[], LetterRules],
        bytes_max: Callable[[str], int],
        appends: Appends,
        persister: TransactionalPersister,
        wall_ms: Callable[[], int],
        create_topic: Callable[[str, Mapping[str, str]], Awaitable[None]],
    ) -> None:
        """`rules` returns the settings in force, and `bytes_max` the maximum size of a batch in a topic. `create_topic`
        creates a topic with settings."""
        self._quorum, self._rules, self._bytes_max, self._appends = quorum, rules, bytes_max, appends
        self._persister, self._wall_ms, self._create_topic = persister, wall_ms, create_topic

    def transactions(self, key: ShareKey) -> LetterTransactions:
        """Return the transactions of a share partition."""
        return StateTransactions(key, self._quorum, self._appends, self._persister, self._wall_ms)

    async def topic(self, name: str, partition: int) -> LetterTopic:
        """Return the place for letters of a partition. The topic is created if brokers may create it.

        As in Kafka, letters of partition p go to partition p modulo the number of partitions. Raises KafkaError,
        POLICY_VIOLATION or UNKNOWN_TOPIC_OR_PARTITION, with the reason if the topic may not have letters.
        """
        rules = self._rules()
        if not name.startswith(rules.prefix):
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"topic {name!r} does not begin with {rules.prefix!r} (errors.deadletterqueue.topic.name.prefix)",
            )
        if name not in self._image.topics:
            await self._create(name, rules)
        topic = self._image.topics.get(name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name!r} does not exist")
        check_allows_letters(self._image, name)
        bytes_max = min(self._bytes_max(name), _BATCH_BYTES_MAX)
        return LetterTopic(name, topic.id, partition % len(topic.partitions), bytes_max)

    @property
    def _image(self) -> ClusterImage:
        return self._quorum.image

    async def _create(self, name: str, rules: LetterRules) -> None:
        if not rules.may_create:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"topic {name!r} does not exist, and errors.deadletterqueue.auto.create.topics.enable is false",
            )
        await self._create_topic(name, {_PERMISSION: "true", "message.timestamp.type": "CreateTime"})


def check_allows_letters(image: ClusterImage, topic: str) -> None:
    """Raise KafkaError POLICY_VIOLATION unless share groups may write dead letters into the topic."""
    settings = image.configs.get((ResourceType.TOPIC, topic), {})
    if settings.get(_PERMISSION, "false").lower() != "true":
        raise KafkaError(ErrorCode.POLICY_VIOLATION, f"topic {topic!r} needs the setting {_PERMISSION}=true")


class StateTransactions:
    """The transactions of one share partition under its transactional id."""

    def __init__(
        self,
        key: ShareKey,
        quorum: Quorum,
        appends: Appends,
        persister: TransactionalPersister,
        wall_ms: Callable[[], int],
    ) -> None:
        self._key, self._quorum, self._appends, self._persister = key, quorum, appends, persister
        self._wall_ms = wall_ms
        self._name = f"{LETTERS_PREFIX}{key.topic_id.hex()}-{key.partition}-{key.group_id}"
        # Producer of the next transaction; None if the last one has to be aborted first.
        self._writer: TransactionalProducer | None = None

    async def settle(self) -> None:
        """Abort a transaction of the transactional id that is open. Raises KafkaError, CONCURRENT_TRANSACTIONS while
        its markers are written."""
        self._writer = await self._initialized()

    async def commit(self, topic: LetterTopic, letters: Sequence[NewRecord], change: StateChange) -> None:
        """Write letters, and change the durable state, in one transaction.

        Raises KafkaError if the transaction is not committed, and never will be. Raises CommitUnknown.
        """
        writer, self._writer = self._writer or await self._initialized(), None
        records = encoded(letters, writer.producer_id, writer.producer_epoch)
        await self._appends.append(topic.topic_id, topic.partition, records, writer)
        await self._persister.write_in_transaction(*self._key, **change._asdict(), writer=writer)
        ended = await self._committed(writer)
        self._writer = TransactionalProducer(self._name, ended.producer_id, ended.producer_epoch)

    async def _initialized(self) -> TransactionalProducer:
        command = InitTransactionalId(
            transactional_id=self._name, timeout_ms=TIMEOUT_MS, origin=ClientOrigin(now_ms=self._wall_ms())
        )
        found = await self._quorum.submit(command)
        return TransactionalProducer(self._name, found.producer_id, found.producer_epoch)

    async def _committed(self, writer: TransactionalProducer) -> EndTransactionResult:
        """Commit the transaction; ask until the quorum answers. A repeated command has the outcome of the first."""
        command = EndTransaction(
            transactional_id=writer.transactional_id,
            producer_id=writer.producer_id,
            producer_epoch=writer.producer_epoch,
            commits=True,
            bumps_epoch=True,
            origin=ClientOrigin(now_ms=self._wall_ms()),
        )
        while True:
            try:
                return await self._quorum.submit(command)
            except CommandRefused as error:
                raise CommitUnknown(f"{error.code.name} {error.message}") from error
            except KafkaError:
                await asyncio.sleep(_RETRY_S)
