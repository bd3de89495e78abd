"""Who commits offsets for a group. Pure."""

from __future__ import annotations

from typing import NamedTuple

NO_GENERATION = -1
"""The generation of whoever is no member of the group."""


class ConsumerGroupMetadata(NamedTuple):
    """Who commits offsets for a group: a member in a generation, which the group's coordinator fences once it is not
    (KIP-447). Without membership, only the group.
    """

    group_id: str
    generation: int = NO_GENERATION
    member_id: str = ""
    group_instance_id: str | None = None
