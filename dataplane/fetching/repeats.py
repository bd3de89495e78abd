"""Short cuts for fetches that differ from the previous one on their connection only in the offset.

A consumer of one partition sends the same bytes over and over, except the correlation id and the offset. So the
connection keeps the other bytes of its last such request, the replica, and the encoded answer with gaps. A matching
request is answered without decoding or encoding a message. That needs enough records at once, no fetch session, no
quota, no error, and the peer as it was: one that has authenticated itself anew, or has to, goes the long way. So does
the first request after an ACL has changed, and every other request: the handler knows all rules.
"""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING, Final

from ...protocol.codec import encode_parts
from ...protocol.errors import KafkaError
from ...protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from ...protocol.messages.headers import response_header
from ..server.handler import ClientRequest
from .reading import READ_COMMITTED

if TYPE_CHECKING:
    from ..log import LogSlice
    from ..quotas import ClientQuotas
    from ..replication.replica.partition import Partition
    from ..security.peer_session import PeerSession
    from ..server.connection import ClientConnection
    from .cold_reads import ColdReads
    from .sessions import SessionPartition

_FIRST_WITH_ZSTD: Final = 10
_FIRST_FLEXIBLE: Final = 12
_FIRST_WITH_TOPIC_IDS: Final = 13
_AFTER_CORRELATION: Final = 8
_OFFSET = struct.Struct(">q")
_INDEX = struct.Struct(">i")
_FRAME = struct.Struct(">ii")
_OFFSETS = struct.Struct(">qqq")
_RECORDS = struct.Struct(">i")
_MARK: Final = b"\x7a\x5a" * 12
_MARKED_OFFSET: Final = _OFFSET.unpack_from(_MARK)[0]
_EMPTY: Final = b""


class _Marked:
    """Records of an answer that serves as a pattern."""

    size = 1


class Repeat:
    """A request as it was, but for its offset, and the answer to it, but for what varies. Called with a frame, it
    answers it if it can."""

    __slots__ = (
        "_acl_version", "_after", "_answers", "_at", "_before", "_client_id", "_committed", "_end", "_flexible",
        "_grants", "_head", "_kind", "_leader_epoch", "_max_bytes", "_middle", "_min_bytes", "_replica", "_session",
        "_size", "_tail", "_until", "_version",
    )  # fmt: skip

    def __init__(
        self, answers: FetchRepeats, frame: memoryview, at: int, request: ClientRequest, message: FetchRequest,
        wanted: SessionPartition, replica: Partition,
    ) -> None:  # fmt: skip
        version = request.api_version
        self._answers = answers
        self._session = session = request.session
        self._grants = grants = request.access.grants
        self._acl_version = 0 if grants is None else grants.version
        self._until = math.inf if session.expires_at is None else session.expires_at
        self._size = len(frame)
        self._at, self._end = at, at + _OFFSET.size
        self._kind = bytes(frame[:4])
        self._before = bytes(frame[_AFTER_CORRELATION:at])
        self._after = bytes(frame[self._end :])
        self._version, self._client_id = version, request.client_id
        self._replica = replica
        self._leader_epoch = wanted.part.current_leader_epoch
        self._min_bytes = max(message.min_bytes, 1)
        self._max_bytes = min(message.max_bytes, wanted.part.partition_max_bytes, answers.max_bytes)
        self._committed = message.isolation_level == READ_COMMITTED
        self._flexible = version >= _FIRST_FLEXIBLE
        self._head, self._middle, self._tail = _pattern(version, message, wanted)

    def is_of(self, session: PeerSession, replica: Partition) -> bool:
        """Whether this answers the peer of `session` from `replica`, as long as no ACL changes."""
        return self._session is session and self._replica is replica and self._is_allowed

    @property
    def _is_allowed(self) -> bool:
        """Whether what the peer may do is what it was when this was made."""
        return self._grants is None or self._grants.version == self._acl_version

    def is_like(self, frame: memoryview) -> bool:
        """Whether `frame` is this request at some offset."""
        return (
            len(frame) == self._size
            and frame[: len(self._kind)] == self._kind
            and frame[_AFTER_CORRELATION : self._at] == self._before
            and frame[self._end :] == self._after
        )

    def __call__(self, connection: ClientConnection, frame: memoryview, now: float) -> bool:
        """False if the frame has to go the long way."""
        if connection.session is not self._session or now >= self._until:
            return False
        if self._grants is not None and self._grants.version != self._acl_version:
            return False
        if not self.is_like(frame) or self._answers.metered:
            return False
        replica = self._replica
        leader, log = replica.leader, replica.log
        if leader is None or 0 <= self._leader_epoch != leader.leader_epoch:
            return False
        (offset,) = _OFFSET.unpack_from(frame, self._at)
        watermark, start = leader.high_watermark, log.log_start_offset
        if not start <= offset < watermark:
            return False
        try:
            stable = log.transactions.last_stable_offset(watermark)
            upto = stable if self._committed else watermark
            records = log.read(offset, self._max_bytes, upto, at_least_one=True)
        except KafkaError:
            return False
        size = records.size
        if size < self._min_bytes or (self._committed and self._leaves_out(records, offset, stable)):
            records.release()
            return False
        replica.traffic.bytes_out += size
        (correlation_id,) = _INDEX.unpack_from(frame, 4)
        request = ClientRequest(
            connection, FetchRequest.api_key, self._version, correlation_id, self._client_id, now
        )
        connection.expect(request)
        length = _uvarint(size + 1) if self._flexible else _RECORDS.pack(size)
        tail = self._tail
        rest = self._head + _OFFSETS.pack(watermark, stable, start) + self._middle + length
        head = _FRAME.pack(4 + len(rest) + size + len(tail), correlation_id) + rest
        self._answers.cold_reads.answer(request, head, records, tail)
        return True

    def _leaves_out(self, records: LogSlice, offset: int, stable: int) -> bool:
        """Whether the answer may have to name aborted transactions."""
        try:
            return bool(self._replica.log.transactions.aborted_among(records, offset, stable))
        except KafkaError:
            return True


class FetchRepeats:
    """Leaves short cuts on connections. `max_bytes` is fetch.max.bytes."""

    def __init__(self, max_bytes: int, cold_reads: ColdReads, quotas: ClientQuotas) -> None:
        self.max_bytes = max_bytes
        self.cold_reads = cold_reads
        self._quotas = quotas

    @property
    def metered(self) -> bool:
        """Quotas are counted on the long way."""
        return self._quotas.consumer is not None or self._quotas.requests is not None

    def note(
        self, request: ClientRequest, message: FetchRequest, wanted: SessionPartition, replica: Partition
    ) -> None:
        """A plain fetch of one partition is being answered with records: the next may be like it.

        Not below the first version in which every compression may be sent: there, each batch is looked at.
        """
        frame, version = request.frame, request.api_version
        if frame is None or version < _FIRST_WITH_ZSTD or wanted.part.last_fetched_epoch >= 0:
            return
        known = request.connection.shortcut
        if isinstance(known, Repeat) and known.is_of(request.session, replica) and known.is_like(frame):
            return
        at = _offset_position(frame, version, wanted)
        if at is not None:
            request.connection.shortcut = Repeat(self, frame, at, request, message, wanted, replica)


def _offset_position(frame: memoryview, version: int, wanted: SessionPartition) -> int | None:
    """Where the offset stands in the frame of a plain fetch of one partition; None where it cannot be told."""
    at = _AFTER_CORRELATION
    at += 2 + max(0, int.from_bytes(frame[at : at + 2], "big", signed=True))
    if version >= _FIRST_FLEXIBLE:
        if frame[at]:
            return None  # tagged fields
        at += 1
    at += 13 if version >= 15 else 17  # (replica id), wait, least, most, isolation level
    at += 8  # session id and epoch
    at += 1 if version >= _FIRST_FLEXIBLE else 4
    if version >= _FIRST_WITH_TOPIC_IDS:
        at += 16
    else:
        at += (1 if version >= _FIRST_FLEXIBLE else 2) + len(wanted.topic.encode())
    at += 1 if version >= _FIRST_FLEXIBLE else 4
    part = wanted.part
    # Whatever was taken for granted above: if this is not the place, the request is not a plain one.
    if at + 24 > len(frame) or _INDEX.unpack_from(frame, at)[0] != part.partition:
        return None
    at += 4
    if _INDEX.unpack_from(frame, at)[0] != part.current_leader_epoch:
        return None
    at += 4
    return at if _OFFSET.unpack_from(frame, at)[0] == part.fetch_offset else None


def _pattern(version: int, message: FetchRequest, wanted: SessionPartition) -> tuple[bytes, bytes, bytes]:
    """What stands, in an answer, before the three offsets, between them and the records' size, and at the end."""
    data = PartitionData(
        partition_index=wanted.part.partition,
        high_watermark=_MARKED_OFFSET,
        last_stable_offset=_MARKED_OFFSET,
        log_start_offset=_MARKED_OFFSET,
        aborted_transactions=[] if message.isolation_level == READ_COMMITTED else None,
        records=_Marked(),  # type: ignore[arg-type]  # the codec leaves it out, as it does slices of files
    )
    topic = FetchableTopicResponse(topic=wanted.topic, topic_id=wanted.topic_id, partitions=[data])
    parts = encode_parts(FetchResponse(responses=[topic]), version)
    before = response_header(FetchRequest.api_key, version, 0)[4:] + parts[0]
    at = before.rindex(_MARK)
    size_bytes = 1 if version >= _FIRST_FLEXIBLE else _RECORDS.size
    tail = parts[2] if len(parts) > 2 else _EMPTY
    return before[:at], before[at + len(_MARK) : -size_bytes], tail


def _uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
