"""Topics that are created as a side effect: Metadata creates missing topics, FindCoordinator internal ones."""

from __future__ import annotations

import asyncio
import logging
import random
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.topic_commands import CreatedTopic, CreateTopics, NewTopic, NewTopicConfig
from ...protocol.settings.config_fields import setting
from ...protocol.settings.config_share import share_number
from ..quorum.access import Quorum
from ..runtime.time_slices import pieces
from .internal_topics import OFFSETS_TOPIC, SHARE_STATE_TOPIC

logger = logging.getLogger(__name__)


TOPICS_PER_COMMAND = 250
_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def is_valid_topic_name(name: str) -> bool:
    """Return whether a name follows Kafka's rule: 1 to 249 of a-z, A-Z, 0-9, `.`, `_` and `-`, but neither `.` nor
    `..`."""
    return name not in (".", "..") and _TOPIC_NAME.fullmatch(name) is not None


@dataclass(frozen=True, slots=True)
class ShareStateTopic:
    """The settings of `__share_group_state`.

    A smaller cluster gets as many replicas as it has brokers. The minimum of the ISR falls by the missing replicas, so
    that a cluster of two brokers can lose one of them.
    """

    num_partitions: int
    replication_factor: int
    min_isr: int
    segment_bytes: int

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> ShareStateTopic:
        """Return the settings that a broker's properties set. Raises ConfigError."""
        return cls(
            share_number("share.coordinator.state.topic.num.partitions", properties),
            share_number("share.coordinator.state.topic.replication.factor", properties),
            share_number("share.coordinator.state.topic.min.isr", properties),
            share_number("share.coordinator.state.topic.segment.bytes", properties),
        )

    def new_topic(self, brokers: int) -> NewTopic:
        """Return the topic to create in a cluster with this number of brokers."""
        replicas = max(1, min(self.replication_factor, brokers))
        missing = self.replication_factor - replicas
        configs = {
            # The coordinators remove the redundant records: an update does not replace the update before it.
            "cleanup.policy": "delete",
            "retention.ms": "-1",
            "retention.bytes": "-1",
            "compression.type": "producer",
            "segment.bytes": str(self.segment_bytes),
            "min.insync.replicas": str(max(1, self.min_isr - missing)),
        }
        return NewTopic(
            name=SHARE_STATE_TOPIC,
            num_partitions=self.num_partitions,
            replication_factor=replicas,
            configs=_configs(configs),
        )


def _configs(configs: Mapping[str, str]) -> list[NewTopicConfig]:
    return [NewTopicConfig(name=key, value=value) for key, value in configs.items()]


@dataclass(frozen=True, slots=True)
class TopicDefaults:
    """The settings of topics that a broker creates on demand."""

    auto_create: bool = setting("auto.create.topics.enable", bool)
    num_partitions: int = setting("num.partitions")
    replication_factor: int = setting("default.replication.factor")
    offsets_num_partitions: int = setting("offsets.topic.num.partitions")
    offsets_replication_factor: int = setting("offsets.topic.replication.factor")
    offsets_segment_bytes: int = setting("offsets.topic.segment.bytes")
    share_states: ShareStateTopic = field(default_factory=lambda: ShareStateTopic.of({}))


def _several(names: list[str]) -> str:
    return f"topic {names[0]}" + (f" and {len(names) - 1} others" if len(names) > 1 else "")


def _outcome(name: str, created: CreatedTopic) -> ErrorCode:
    error = ErrorCode(created.error_code)
    if error in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
        return ErrorCode.NONE
    logger.warning("topic %s could not be created: %s %s", name, error.name, created.error_message)
    return error


class TopicCreator:
    """The creation of missing topics on behalf of clients' requests. Requests for a topic that is being created share
    the outcome.
    """

    def __init__(
        self, quorum: Quorum, defaults: TopicDefaults, rng: random.Random, *, timeout_ms: int = 5000
    ) -> None:
        self.defaults = defaults
        self._quorum = quorum
        self._rng = rng
        self._timeout_ms = timeout_ms
        self._creating: dict[str, asyncio.Task[dict[str, ErrorCode]]] = {}

    async def create(self, names: Iterable[str]) -> dict[str, ErrorCode]:
        """Create the topics of these names that do not exist. Returns the outcome of each."""
        outcomes: dict[str, ErrorCode] = {}
        wanted = list(dict.fromkeys(names))
        for some in pieces(wanted, TOPICS_PER_COMMAND):
            self._begin([name for name in some if name not in self._creating])
            tasks = {name: self._creating[name] for name in some}
            await asyncio.wait(set(tasks.values()))
            outcomes |= {name: task.result()[name] for name, task in tasks.items()}
            if ErrorCode.REQUEST_TIMED_OUT in outcomes.values():
                break  # The quorum is not available for the other topics either.
        return dict.fromkeys(wanted, ErrorCode.REQUEST_TIMED_OUT) | outcomes

    async def create_with(self, name: str, configs: Mapping[str, str]) -> None:
        """Create a topic with these settings. An existing topic is not changed. Raises KafkaError."""
        topic = NewTopic(
            name=name,
            num_partitions=self.defaults.num_partitions,
            replication_factor=self.defaults.replication_factor,
            configs=_configs(configs),
        )
        command = CreateTopics(topics=[topic], seed=self._rng.getrandbits(63))
        (created,) = (await self._quorum.submit(command, timeout_ms=self._timeout_ms)).topics
        if created.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            raise KafkaError(ErrorCode(created.error_code), f"topic {name!r}: {created.error_message}")

    def _begin(self, names: list[str]) -> None:
        if not names:
            return
        task = asyncio.get_running_loop().create_task(self._create(names))
        self._creating |= dict.fromkeys(names, task)
        task.add_done_callback(lambda _: [self._creating.pop(name) for name in names])

    async def _create(self, names: list[str]) -> dict[str, ErrorCode]:
        command = CreateTopics(topics=[self._topic(name) for name in names], seed=self._rng.getrandbits(63))
        try:
            result = await self._quorum.submit(command, timeout_ms=self._timeout_ms)
        except KafkaError as error:
            logger.warning("%s could not be created: %s %s", _several(names), error.code.name, error.message)
            return dict.fromkeys(names, error.code)
        except Exception:
            logger.exception("%s could not be created", _several(names))
            return dict.fromkeys(names, ErrorCode.UNKNOWN_SERVER_ERROR)
        return {name: _outcome(name, created) for name, created in zip(names, result.topics, strict=True)}

    def _topic(self, name: str) -> NewTopic:
        defaults = self.defaults
        if name == SHARE_STATE_TOPIC:
            return defaults.share_states.new_topic(len(self._quorum.image.brokers))
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
            configs=_configs(configs),
        )
