"""A controller for tests, with methods that apply commands and return their results."""

from __future__ import annotations

from typing import Any, TypeVar

from ottla.metadata_quorum.state.controller import Applied, Controller
from ottla.protocol.features import FEATURES
from ottla.protocol.messages import quorum_commands as q
from ottla.protocol.messages.broker_commands import (
    FenceBroker,
    RegisterBroker,
    RegisterBrokerResult,
    UnfenceBroker,
)
from ottla.protocol.messages.cluster_commands import FormCluster, InitialFeature
from ottla.protocol.messages.command import Command, PlainResult
from ottla.protocol.messages.metadata_records import BrokerFeature
from ottla.protocol.messages.partition_commands import ReplicaLogEnd
from ottla.protocol.messages.topic_commands import (
    CreatedTopic,
    CreateTopics,
    CreateTopicsResult,
    NewTopic,
    NewTopicConfig,
    PartitionAssignment,
)
from ottla.protocol.wire.schema import Message

R = TypeVar("R", bound=Message)


class ControllerWithBrokers:
    """A controller with a number of unfenced brokers 1, 2, ..., on the given racks and hosts."""

    def __init__(
        self,
        brokers: int = 3,
        racks: dict[int, str] | None = None,
        hosts: dict[int, str] | None = None,
        levels: dict[str, int] | None = None,
    ) -> None:
        """Start with `levels`, the feature levels that all brokers know."""
        self.machine: Controller = Controller()
        self._racks, self._hosts = racks or {}, hosts or {}
        self._levels = levels or {}
        if self._levels:
            features = [InitialFeature(feature=name, level=level) for name, level in self._levels.items()]
            self.do(FormCluster(cluster_id="c", features=features), PlainResult)
        self._incarnations = 0
        for broker_id in range(1, brokers + 1):
            self.start(broker_id)
            self.unfence(broker_id)

    def apply(self, command: Command[Any], session: q.Session | None = None) -> Applied:
        return self.machine.apply(1, 1, q.encode_command(session, command))

    def do(self, command: Command[Any], expected: type[R]) -> R:
        """Return the result of a command outside of any session."""
        result = q.decode_result(command, self.apply(command).result)
        assert isinstance(result, expected)
        return result

    def epoch(self, broker_id: int) -> int:
        return self.machine.image.brokers[broker_id].broker_epoch

    def start(self, broker_id: int, *, clean: bool = False, folders: list[bytes] | None = None) -> None:
        self._incarnations += 1
        self.do(
            RegisterBroker(
                broker_id=broker_id,
                incarnation=self._incarnations.to_bytes(16, "big"),
                previous_broker_epoch=self.epoch(broker_id) if clean else -1,
                rack=self._racks.get(broker_id),
                host=self._hosts.get(broker_id),
                log_dirs=folders or [],
                features=[BrokerFeature(name=name, most=FEATURES[name].most) for name in self._levels],
            ),
            RegisterBrokerResult,
        )

    def unfence(self, broker_id: int) -> PlainResult:
        return self.do(UnfenceBroker(broker_id=broker_id, broker_epoch=self.epoch(broker_id)), PlainResult)

    def fence(self, broker_id: int, progress: list[ReplicaLogEnd] | None = None) -> PlainResult:
        command = FenceBroker(
            broker_id=broker_id, broker_epoch=self.epoch(broker_id), progress=progress or []
        )
        return self.do(command, PlainResult)

    def create(self, *topics: NewTopic, validate_only: bool = False) -> list[CreatedTopic]:
        # Each command gets a different seed, as brokers draw it, so that a recreated topic has a new id.
        seed = 7 + self.machine.image.offset
        command = CreateTopics(topics=list(topics), validate_only=validate_only, seed=seed)
        return self.do(command, CreateTopicsResult).topics

    def topic_id(self, name: str) -> bytes:
        return self.machine.image.topics[name].id


def topic(name: str, partitions: int = 1, factor: int = 1, **configs: str) -> NewTopic:
    """Return a topic without assigned replicas; keys have `_` in place of dots."""
    return NewTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        configs=[NewTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()],
    )


def assigned(name: str, *assignments: list[int]) -> NewTopic:
    """Return a topic with assigned replicas."""
    return NewTopic(
        name=name,
        assignments=[
            PartitionAssignment(partition=index, replicas=replicas)
            for index, replicas in enumerate(assignments)
        ],
    )
