"""`min.insync.replicas` of several topics, asked of a cluster concurrently."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from ...protocol.errors import KafkaError
from .values import TOPIC_RESOURCE

if TYPE_CHECKING:
    from . import Admin

MIN_ISR: Final = "min.insync.replicas"
_AT_A_TIME: Final = 16


async def least_in_sync(admin: Admin, topics: Iterable[str]) -> dict[str, int]:
    """Return `min.insync.replicas` of topics by name; a topic is left out if the cluster refuses its settings."""
    turns = asyncio.Semaphore(_AT_A_TIME)

    async def ask(topic: str) -> int | None:
        try:
            async with turns:
                entries = await admin.describe_configs(TOPIC_RESOURCE, topic)
        except KafkaError:
            return None
        values = (entry.value or "" for entry in entries if entry.name == MIN_ISR)
        return next((int(value) for value in values if value.isdecimal()), None)

    names = list(dict.fromkeys(topics))
    answers = await asyncio.gather(*map(ask, names))
    return {topic: least for topic, least in zip(names, answers, strict=True) if least is not None}
