"""What a group keeps for a partition. Pure."""

from __future__ import annotations

from typing import NamedTuple


class OffsetAndMetadata(NamedTuple):
    """An offset as a group keeps it, the next to read, and a text that the one who commits it adds."""

    offset: int
    metadata: str = ""


Place = int | OffsetAndMetadata
"""Where a group is to go on."""
