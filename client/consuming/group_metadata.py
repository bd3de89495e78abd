"""The identity under which offsets are committed for a group. Pure."""

from __future__ import annotations

from typing import NamedTuple

from ...protocol.messages.offsets import NO_GENERATION


class ConsumerGroupMetadata(NamedTuple):
    """A member of a group in a generation, for commits of offsets (KIP-447).

    The group's coordinator fences a commit of a former member. Without membership, only the group is named.
    """

    group_id: str
    generation: int = NO_GENERATION
    member_id: str = ""
    group_instance_id: str | None = None
