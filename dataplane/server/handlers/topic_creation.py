"""Topics that come into being because someone asked for them: auto-created ones and the internal ones."""

from __future__ import annotations

import asyncio
import logging
import random
import re
from collections.abc import Iterable
from dataclasses import dataclass

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.quorum_commands import CreateTopics, CreateTopicsResult, NewTopic, NewTopicConfig
from .cluster_access import OFFSETS_TOPIC, Quorum

log = logging.getLogger(__name__)


_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def is_valid_topic_name(name: str) -> bool:
    """Kafka's rule: 1 to 249 of a-z, A-Z, 0-9, `.`, `_` and `-`, but neither `.` nor `..`."""
    return name not in (".", "..") and _TOPIC_NAME.fullmatch(name) is not None


@dataclass(frozen=True, slots=True)
class TopicDefaults:
    """How topics are made whose creator does not say."""

    auto_create: bool = True
    num_partitions: int = 1
    replication_factor: int = 1
    offsets_num_partitions: int = 50
    offsets_replication_factor: int = 3
    offsets_segment_bytes: int = 104_857_600


class TopicCreator:
    """Creates topics on demand; requests that come while a topic is being created share the outcome."""

    def __init__(
        self, quorum: Quorum, defaults: TopicDefaults, rng: random.Random, *, timeout_ms: int = 5000
    ) -> None:
        self.defaults = defaults
        self._quorum = quorum
        self._rng = rng
        self._timeout_ms = timeout_ms
        self._creating: dict[str, asyncio.Task[ErrorCode]] = {}

    async def create(self, names: Iterable[str]) -> dict[str, ErrorCode]:
        """Create the topics of these names that do not exist, and say of each how it went."""
        tasks = {name: self._task(name) for name in names}
        await asyncio.wait(tasks.values())
        return {name: task.result() for name, task in tasks.items()}

    def _task(self, name: str) -> asyncio.Task[ErrorCode]:
        task = self._creating.get(name)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._create(name))
            self._creating[name] = task
            task.add_done_callback(lambda _: self._creating.pop(name))
        return task

    async def _create(self, name: str) -> ErrorCode:
        try:
            command = CreateTopics(topics=[self._topic(name)], seed=self._rng.getrandbits(63))
            result = await self._quorum.submit(command, timeout_ms=self._timeout_ms)
            assert isinstance(result, CreateTopicsResult)
            outcome = result.topics[0]
            error, message = ErrorCode(outcome.error_code), outcome.error_message
        except KafkaError as refusal:
            error, message = refusal.code, refusal.message
        except Exception:
            log.exception("topic %s could not be created", name)
            return ErrorCode.UNKNOWN_SERVER_ERROR
        if error not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            log.warning("topic %s could not be created: %s %s", name, error.name, message)
            return error
        return ErrorCode.NONE

    def _topic(self, name: str) -> NewTopic:
        defaults = self.defaults
        if name != OFFSETS_TOPIC:
            return NewTopic(
                name=name,
                num_partitions=defaults.num_partitions,
                replication_factor=defaults.replication_factor,
            )
        configs = {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(defaults.offsets_segment_bytes),
        }
        return NewTopic(
            name=name,
            num_partitions=defaults.offsets_num_partitions,
            replication_factor=defaults.offsets_replication_factor,
            configs=[NewTopicConfig(name=key, value=value) for key, value in configs.items()],
        )
