"""Answers about partitions, each from the leader of its partition."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from ...protocol.errors import KafkaError
from ..records import TopicPartition

Answer = TypeVar("Answer")


def settled(answers: Mapping[TopicPartition, Answer | KafkaError]) -> dict[TopicPartition, Answer]:
    """Return the answers by partition if none is an error. Raises the first KafkaError among them, with the partition's
    name."""
    good: dict[TopicPartition, Answer] = {}
    for partition, answer in answers.items():
        if isinstance(answer, KafkaError):
            raise KafkaError(answer.code, f"{partition.topic}-{partition.partition}: {answer.message}")
        good[partition] = answer
    return good
