"""The format of an entry of the Raft log.

The first byte is the library's entry type. A group entry holds all commands that waited at one turn of the loop: `0 |
version | (u32 length | command)*`; an empty group is a barrier. Entries of other types carry no command.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

_GROUP = 0
_VERSION = 1
_PREFIX = bytes((_GROUP, _VERSION))
_LENGTH = struct.Struct(">I")
OVERHEAD_BYTES = _LENGTH.size


class MalformedEntry(Exception):
    """An entry that this version of the program cannot have written."""


def pack_group(commands: Iterable[bytes]) -> bytes:
    """Return the payload of an entry that holds `commands` in order."""
    parts = [_PREFIX]
    for command in commands:
        parts.append(_LENGTH.pack(len(command)))
        parts.append(command)
    return b"".join(parts)


def unpack_group(payload: bytes) -> list[bytes]:
    """Return the commands of an entry, an empty list for a barrier or a no-op. Raises MalformedEntry."""
    if payload[:1] != _PREFIX[:1]:
        return []
    if payload[:2] != _PREFIX:
        raise MalformedEntry(f"entry version {payload[1:2].hex()}, this node knows {_VERSION}")
    commands = []
    position = len(_PREFIX)
    while position < len(payload):
        start = position + _LENGTH.size
        if start > len(payload):
            raise MalformedEntry("a length is cut off")
        (length,) = _LENGTH.unpack_from(payload, position)
        position = start + length
        if position > len(payload):
            raise MalformedEntry(f"a command of {length} bytes is cut off")
        commands.append(payload[start:position])
    return commands
