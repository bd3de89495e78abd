"""The current term and this node's vote in it, which must survive restarts so that a term has one leader.

Raft, figure 2: both are durable before any message that depends on them. Saving replaces the file, so it holds the old
pair or the new pair. A damaged file is fatal, because a forgotten vote can elect two leaders.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from .disk import CorruptFile, Disk, read_checked, write_checked

FILE_NAME = "vote"
_MAGIC = b"OTTLVOTE"
_BODY = struct.Struct(">Qi")
_NOBODY = -1


@dataclass(frozen=True, slots=True)
class Vote:
    """A Raft term and the node that this node has voted for in it; None while it has not voted."""

    term: int = 0
    voted_for: int | None = None


def load(disk: Disk) -> Vote | None:
    """Load the saved vote; None if there is no file. Raises CorruptFile."""
    body = read_checked(disk, FILE_NAME, _MAGIC)
    if body is None:
        return None
    if len(body) != _BODY.size:
        raise CorruptFile(f"{FILE_NAME} holds {len(body)} bytes, expected {_BODY.size}")
    term, voted_for = _BODY.unpack(body)
    return Vote(term, None if voted_for == _NOBODY else voted_for)


def save(disk: Disk, vote: Vote) -> None:
    """Make `vote` durable. Blocks."""
    body = _BODY.pack(vote.term, _NOBODY if vote.voted_for is None else vote.voted_for)
    write_checked(disk, FILE_NAME, _MAGIC, body)
