"""The messages between quorum nodes and their format: a type byte, then fixed fields, big-endian.

The frame bounds every field. A malformed message closes the connection.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

from .journal_recovery import Entry


class MalformedRaftMessage(Exception):
    """Bytes that no node of this version sends."""


@dataclass(frozen=True, slots=True)
class Hello:
    """First message on every connection, sent again when it changes: the cluster membership of a folder, and the
    cluster's founders.

    Nodes of earlier versions know only `formed`, and ignore the rest once they are formed.
    """

    formed: bool
    founders: tuple[tuple[int, bytes], ...]
    takes_promises: bool = False
    """True if the sender accepts `Promised`; other nodes would close the connection on it."""
    abstains: bool = False
    """True if the sender does not vote, because it is catching up."""


@dataclass(frozen=True, slots=True)
class PreVote:
    """Question whether the receiver would vote for the sender in `term`. It changes nothing at either end."""

    term: int
    last_index: int
    last_term: int


@dataclass(frozen=True, slots=True)
class PreVoteReply:
    """Answer to `PreVote`. `asked_term` repeats the question's term, `term` is the answering node's own."""

    term: int
    asked_term: int
    granted: bool


@dataclass(frozen=True, slots=True)
class RequestVote:
    """Raft's RequestVote."""

    term: int
    last_index: int
    last_term: int


@dataclass(frozen=True, slots=True)
class GrantVote:
    """The sender's durable vote for the receiver in `term`."""

    term: int


@dataclass(frozen=True, slots=True)
class Append:
    """Raft's AppendEntries. The entries follow (`previous_index`, `previous_term`) without a gap.

    `generation` counts how often the leader has moved back for this follower; replies repeat it.
    """

    term: int
    generation: int
    commit_index: int
    previous_index: int
    previous_term: int
    entries: tuple[Entry, ...] = ()


@dataclass(frozen=True, slots=True)
class AppendReply:
    """Answer to `Append`. With `success` everything below `next_index` equals the leader's log and is durable at the
    sender.

    Without `success` the follower's log does not match, and the leader should try from `next_index`.
    """

    term: int
    generation: int
    success: bool
    next_index: int


@dataclass(frozen=True, slots=True)
class SnapshotChunk:
    """A chunk of the snapshot of `index`: `data` at `offset` of a file of `size` bytes."""

    term: int
    index: int
    snapshot_term: int
    size: int
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class SnapshotReply:
    """Answer to `SnapshotChunk`: the follower has `received` bytes; `installed` is true once the state is in use."""

    term: int
    index: int
    received: int
    installed: bool


@dataclass(frozen=True, slots=True)
class StaleTerm:
    """Answer to a message of a past term: the current term is `term`."""

    term: int


@dataclass(frozen=True, slots=True)
class Promised:
    """The receiver's own acknowledgements, as the sender remembers them: see `acknowledged_index.AcknowledgedIndex`."""

    term: int
    index: int
    index_term: int


Message = (
    Hello
    | PreVote
    | PreVoteReply
    | RequestVote
    | GrantVote
    | Append
    | AppendReply
    | SnapshotChunk
    | SnapshotReply
    | StaleTerm
    | Promised
)

_HELLO, _PRE_VOTE, _PRE_VOTE_REPLY, _REQUEST_VOTE, _GRANT_VOTE = 1, 2, 3, 4, 5
_APPEND, _APPEND_REPLY, _SNAPSHOT_CHUNK, _SNAPSHOT_REPLY, _STALE_TERM, _PROMISED = 6, 7, 8, 9, 10, 11
_FORMED, _TAKES_PROMISES, _ABSTAINS = 1, 2, 4
"""Flag bits of `Hello`. An unformed node sets none, since nodes of earlier versions read any bit as `formed`."""

_LAYOUT = {
    _HELLO: struct.Struct(">BBH"),
    _PRE_VOTE: struct.Struct(">BQQQ"),
    _PRE_VOTE_REPLY: struct.Struct(">BQQ?"),
    _REQUEST_VOTE: struct.Struct(">BQQQ"),
    _GRANT_VOTE: struct.Struct(">BQ"),
    _APPEND: struct.Struct(">BQIQQQI"),
    _APPEND_REPLY: struct.Struct(">BQI?Q"),
    _SNAPSHOT_CHUNK: struct.Struct(">BQQQQQ"),
    _SNAPSHOT_REPLY: struct.Struct(">BQQQ?"),
    _STALE_TERM: struct.Struct(">BQ"),
    _PROMISED: struct.Struct(">BQQQ"),
}
_FOUNDER = struct.Struct(">i16s")
_ENTRY = struct.Struct(">QI")
ENTRY_OVERHEAD_BYTES = _ENTRY.size


def encode(message: Message) -> list[bytes]:
    """Encode a message between quorum nodes as parts of one payload; entries and chunks are not copied."""
    match message:
        case Append(term, generation, commit, previous_index, previous_term, entries):
            head = _LAYOUT[_APPEND].pack(
                _APPEND, term, generation, commit, previous_index, previous_term, len(entries)
            )
            parts = [head]
            for payload, _, entry_term in entries:
                parts.append(_ENTRY.pack(entry_term, len(payload)))
                parts.append(payload)
            return parts
        case AppendReply(term, generation, success, next_index):
            return [_LAYOUT[_APPEND_REPLY].pack(_APPEND_REPLY, term, generation, success, next_index)]
        case SnapshotChunk(term, index, snapshot_term, size, offset, data):
            head = _LAYOUT[_SNAPSHOT_CHUNK].pack(_SNAPSHOT_CHUNK, term, index, snapshot_term, size, offset)
            return [head, data]
        case SnapshotReply(term, index, received, installed):
            return [_LAYOUT[_SNAPSHOT_REPLY].pack(_SNAPSHOT_REPLY, term, index, received, installed)]
        case PreVote(term, last_index, last_term):
            return [_LAYOUT[_PRE_VOTE].pack(_PRE_VOTE, term, last_index, last_term)]
        case PreVoteReply(term, asked_term, granted):
            return [_LAYOUT[_PRE_VOTE_REPLY].pack(_PRE_VOTE_REPLY, term, asked_term, granted)]
        case RequestVote(term, last_index, last_term):
            return [_LAYOUT[_REQUEST_VOTE].pack(_REQUEST_VOTE, term, last_index, last_term)]
        case GrantVote(term):
            return [_LAYOUT[_GRANT_VOTE].pack(_GRANT_VOTE, term)]
        case StaleTerm(term):
            return [_LAYOUT[_STALE_TERM].pack(_STALE_TERM, term)]
        case Promised(term, index, index_term):
            return [_LAYOUT[_PROMISED].pack(_PROMISED, term, index, index_term)]
        case Hello(formed, founders, takes_promises, abstains):
            flags = _FORMED | _TAKES_PROMISES * takes_promises | _ABSTAINS * abstains if formed else 0
            head = _LAYOUT[_HELLO].pack(_HELLO, flags, len(founders))
            return [head, *(_FOUNDER.pack(*founder) for founder in founders)]


def decode(payload: bytes) -> Message:
    """Decode the payload of a message between quorum nodes. Raises MalformedRaftMessage."""
    kind = payload[0] if payload else 0
    layout = _LAYOUT.get(kind)
    if layout is None:
        raise MalformedRaftMessage(f"unknown message type {kind}")
    if len(payload) < layout.size:
        raise MalformedRaftMessage(
            f"message of type {kind} with {len(payload)} bytes, at least {layout.size} needed"
        )
    fields: Any = layout.unpack_from(payload)[1:]
    if kind not in _WITH_TAIL and len(payload) != layout.size:
        raise MalformedRaftMessage(
            f"message of type {kind} with {len(payload)} bytes, expected {layout.size}"
        )
    if kind == _APPEND:
        term, generation, commit, previous_index, previous_term, count = fields
        entries = _decode_entries(payload, layout.size, previous_index, count)
        return Append(term, generation, commit, previous_index, previous_term, entries)
    if kind == _SNAPSHOT_CHUNK:
        term, index, snapshot_term, size, offset = fields
        return SnapshotChunk(term, index, snapshot_term, size, offset, payload[layout.size :])
    if kind == _HELLO:
        flags, count = fields
        founders = _decode_founders(payload, layout.size, count)
        return Hello(bool(flags & _FORMED), founders, bool(flags & _TAKES_PROMISES), bool(flags & _ABSTAINS))
    return _PLAIN[kind](*fields)  # type: ignore[no-any-return]


_WITH_TAIL = {_HELLO, _APPEND, _SNAPSHOT_CHUNK}
_PLAIN: dict[int, type] = {
    _PRE_VOTE: PreVote,
    _PRE_VOTE_REPLY: PreVoteReply,
    _REQUEST_VOTE: RequestVote,
    _GRANT_VOTE: GrantVote,
    _APPEND_REPLY: AppendReply,
    _SNAPSHOT_REPLY: SnapshotReply,
    _STALE_TERM: StaleTerm,
    _PROMISED: Promised,
}


def _decode_entries(payload: bytes, position: int, previous_index: int, count: int) -> tuple[Entry, ...]:
    if count * _ENTRY.size > len(payload) - position:
        raise MalformedRaftMessage(f"{count} entries cannot fit in {len(payload)} bytes")
    entries = []
    for index in range(previous_index + 1, previous_index + 1 + count):
        start = position + _ENTRY.size
        if start > len(payload):
            raise MalformedRaftMessage("an entry is cut off")
        term, length = _ENTRY.unpack_from(payload, position)
        position = start + length
        if position > len(payload):
            raise MalformedRaftMessage(f"an entry of {length} bytes is cut off")
        entries.append((payload[start:position], index, term))
    if position != len(payload):
        raise MalformedRaftMessage(f"{len(payload) - position} bytes behind the last entry")
    return tuple(entries)


def _decode_founders(payload: bytes, position: int, count: int) -> tuple[tuple[int, bytes], ...]:
    if len(payload) != position + count * _FOUNDER.size:
        raise MalformedRaftMessage(f"{count} founders do not fit in {len(payload)} bytes")
    return tuple(_FOUNDER.unpack_from(payload, position + number * _FOUNDER.size) for number in range(count))
