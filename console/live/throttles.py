"""Limits of copying between brokers (KIP-73), which reassignments set and leave behind."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from ...client.admin import BROKER_RESOURCE, Admin, ConfigEntry
from ...client.admin.throttles import RATES
from ...protocol.errors import KafkaError
from .snapshots import answer_or_error

_SOURCES: Final = ("broker", "all brokers")
"""The sources of settings that change while brokers run."""


@dataclass(frozen=True, slots=True)
class CopyLimit:
    """The limits of a broker in bytes per second: of what it sends as a leader, and of what it copies as a follower.

    None is no limit.
    """

    leader: int | None
    follower: int | None


@dataclass(frozen=True, slots=True)
class Throttles:
    """The limits of the brokers that have one. `trouble` is the reason why limits of brokers are unknown."""

    brokers: Mapping[int, CopyLimit] = field(default_factory=dict)
    trouble: str = ""


def throttle_of(entries: list[ConfigEntry]) -> CopyLimit | None:
    """Return the limits among a broker's settings; None without a limit."""
    found = {
        entry.name: int(entry.value)
        for entry in entries
        if entry.name in RATES
        and entry.source in _SOURCES
        and (entry.value or "").isdecimal()
        and entry.value
    }
    return CopyLimit(found.get(RATES[0]), found.get(RATES[1])) if found else None


async def read_throttles(admin: Admin) -> Throttles:
    """Return the limits of all live brokers. Raises KafkaError if the cluster does not list its brokers."""
    brokers = [broker.id for broker in (await admin.describe_cluster()).brokers]
    asked = (admin.describe_configs(BROKER_RESOURCE, str(broker)) for broker in brokers)
    answers = await asyncio.gather(*map(answer_or_error, asked))
    found: dict[int, CopyLimit] = {}
    trouble = ""
    for broker, answer in zip(brokers, answers, strict=True):
        if isinstance(answer, KafkaError):
            trouble = trouble or f"broker {broker}: {answer.message}"
        elif (throttle := throttle_of(answer)) is not None:
            found[broker] = throttle
    return Throttles(found, trouble)
