"""Shortcuts for fetches that differ from the previous fetch on their connection only in the offset.

A consumer of one partition sends the same bytes over and over, except the correlation id and the offset. The connection
keeps the other bytes of its last such request, the replica, and the encoded answer with gaps. A matching request is
answered without decoding or encoding a message. The conditions: no fetch session, no quota, no error, and an unchanged
peer that need not authenticate itself again. All other requests go to the handler, which knows all rules. So does the
first request after an ACL has changed.

A consumer at the end of the log waits for enough records, as with any fetch. If the answer turns out to need more than
records, the handler gives it: when the time is over, the replica's role has changed, or the log was trimmed. If an
authorizer is in use, the handler does the waiting, too, since permissions may change meanwhile.
"""

from __future__ import annotations

import asyncio
import math
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from ...protocol.errors import KafkaError
from ...protocol.messages.fetch import (
    FIRST_WITH_TOPIC_IDS,
    FIRST_WITH_ZSTD,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from ...protocol.messages.headers import response_header
from ...protocol.wire.codec import encode_parts
from ..server.handler import ClientRequest
from .reading import READ_COMMITTED

if TYPE_CHECKING:
    from ..log import LogSlice
    from ..quotas import ClientQuotas
    from ..replication.replica.partition import Partition
    from ..security.peer_session import PeerSession
    from ..server.connection import ClientConnection
    from ..server.purgatory import Parked
    from .cold_reads import ColdReads
    from .sessions import SessionPartition

_FIRST_FLEXIBLE: Final = 12
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
    """A placeholder for the records in the answer from which a shortcut takes the constant bytes."""

    size = 1


class _Found(NamedTuple):
    """The records of a partition for a consumer, and its high watermark, last stable offset and log start offset."""

    records: LogSlice
    watermark: int
    stable: int
    start: int


class Repeat:
    """A shortcut for one consumer's repeated fetch: the request's bytes without its offset, and the answer's bytes
    without records and offsets.

    Called with a frame, it answers the fetch if the frame matches.
    """

    __slots__ = (
        "_acl_version", "_after", "_answers", "_at", "_before", "_client_id", "_committed", "_end", "_flexible",
        "_grants", "_head", "_kind", "_leader_epoch", "_max_bytes", "_max_wait_s", "_middle", "_session", "_size",
        "_tail", "_until", "_version", "min_bytes", "replica",
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
        self.replica = replica
        self._leader_epoch = wanted.part.current_leader_epoch
        # A request with min_bytes 0 is answered at once, with or without records.
        self._max_wait_s = message.max_wait_ms / 1000 if message.min_bytes > 0 else 0.0
        self.min_bytes = max(message.min_bytes, 1)
        self._max_bytes = min(message.max_bytes, wanted.part.partition_max_bytes, answers.max_bytes)
        self._committed = message.isolation_level == READ_COMMITTED
        self._flexible = version >= _FIRST_FLEXIBLE
        self._head, self._middle, self._tail = _pattern(version, message, wanted)

    def is_of(self, session: PeerSession, replica: Partition) -> bool:
        """Return whether the shortcut answers the peer of `session` from `replica`, and no ACL has changed."""
        return self._session is session and self.replica is replica and self._is_allowed

    @property
    def _is_allowed(self) -> bool:
        """True if the peer's permissions are those at the creation of this shortcut."""
        return self._grants is None or self._grants.version == self._acl_version

    def is_like(self, frame: memoryview) -> bool:
        """Return whether a frame has the bytes of this request, except the correlation id and the offset."""
        return (
            len(frame) == self._size
            and frame[: len(self._kind)] == self._kind
            and frame[_AFTER_CORRELATION : self._at] == self._before
            and frame[self._end :] == self._after
        )

    def __call__(self, connection: ClientConnection, frame: memoryview, now: float) -> bool:
        """Answer the fetch in this frame. Returns False if the handler of Fetch must answer it instead."""
        if connection.session is not self._session or now >= self._until:
            return False
        if self._grants is not None and self._grants.version != self._acl_version:
            return False
        if not self.is_like(frame) or self._answers.metered:
            return False
        (offset,) = _OFFSET.unpack_from(frame, self._at)
        found = self.read(offset)
        if found is None:
            return False
        is_enough = found.records.size >= self.min_bytes
        if not is_enough:
            found.records.release()
            if self._grants is not None or self._max_wait_s <= 0:
                return False
        (correlation_id,) = _INDEX.unpack_from(frame, 4)
        request = ClientRequest(
            connection, FetchRequest.api_key, self._version, correlation_id, self._client_id, now
        )
        connection.expect(request)
        if is_enough:
            self.reply(request, found)
        else:
            TailFetch(self, self._answers, request, bytes(frame), offset, now + self._max_wait_s)
        return True

    def read(self, offset: int) -> _Found | None:
        """Return the partition's records from `offset` on, possibly none yet; None if the handler of Fetch has to
        answer."""
        leader, log = self.replica.leader, self.replica.log
        if leader is None or 0 <= self._leader_epoch != leader.leader_epoch:
            return None
        watermark, start = leader.high_watermark, log.log_start_offset
        if not start <= offset <= watermark:
            return None
        try:
            stable = log.transactions.last_stable_offset(watermark)
            upto = stable if self._committed else watermark
            records = log.read(offset, self._max_bytes, upto, at_least_one=True)
        except KafkaError:
            return None
        if self._committed and records.size and self._leaves_out(records, offset, stable):
            records.release()
            return None
        return _Found(records, watermark, stable, start)

    def reply(self, request: ClientRequest, found: _Found) -> None:
        """Answer with records."""
        records, watermark, stable, start = found
        size = records.size
        self.replica.traffic.bytes_out += size
        length = _uvarint(size + 1) if self._flexible else _RECORDS.pack(size)
        tail = self._tail
        rest = self._head + _OFFSETS.pack(watermark, stable, start) + self._middle + length
        head = _FRAME.pack(4 + len(rest) + size + len(tail), request.correlation_id) + rest
        self._answers.cold_reads.answer(request, head, records, tail)

    def _leaves_out(self, records: LogSlice, offset: int, stable: int) -> bool:
        """Return whether the answer may have to name aborted transactions."""
        try:
            return bool(self.replica.log.transactions.aborted_among(records, offset, stable))
        except KafkaError:
            return True


class TailFetch:
    """A consumer's fetch that came by a shortcut, and waits for records at the end of a log."""

    __slots__ = ("_answers", "_due", "_frame", "_offset", "_parked", "_repeat", "_request")

    def __init__(
        self,
        repeat: Repeat,
        answers: FetchRepeats,
        request: ClientRequest,
        frame: bytes,
        offset: int,
        until_s: float,
    ) -> None:
        self._repeat = repeat
        self._answers = answers
        self._request = request
        self._frame = frame
        self._offset = offset
        self._due = False
        repeat.replica.readers.add(self)
        self._parked: Parked | None = answers.park(until_s, self.expired)
        answers.remember(self, request.connection)

    def wake(self) -> None:
        """Read the partition again at the end of this loop iteration, since it may have records by now."""
        if not self._due:
            self._due = True
            asyncio.get_running_loop().call_soon(self._look)

    def _look(self) -> None:
        self._due = False
        if self._parked is None:
            return
        found = None if self._answers.metered else self._repeat.read(self._offset)
        if found is None:
            self.expired()
        elif found.records.size < self._repeat.min_bytes:
            found.records.release()
            self._repeat.replica.readers.add(self)
        else:
            self._finish()
            self._repeat.reply(self._request, found)

    def expired(self) -> None:
        """Have the handler of Fetch answer now, since the fetch's time is over."""
        self._finish()
        self._answers.answer_now(self._request, self._frame)

    def abandon(self) -> None:
        """Drop the waiting fetch, since its client has disconnected."""
        self._finish()

    def _finish(self) -> None:
        if self._parked is not None:
            self._parked.cancel()
            self._parked = None
        self._repeat.replica.readers.discard(self)
        self._answers.forget(self, self._request.connection)


class FetchRepeats:
    """The shortcuts that this broker sets on connections. `max_bytes` is fetch.max.bytes.

    `park` is the purgatory's method. A fetch passed to `remember` is abandoned when its connection closes, unless
    `forget` is called first. `answer_now` has the handler answer a frame with the records available.
    """

    def __init__(
        self,
        max_bytes: int,
        cold_reads: ColdReads,
        quotas: ClientQuotas,
        park: Callable[[float, Callable[[], None]], Parked],
        remember: Callable[[TailFetch, ClientConnection], None],
        forget: Callable[[TailFetch, ClientConnection], None],
        answer_now: Callable[[ClientRequest, bytes], None],
    ) -> None:
        self.max_bytes = max_bytes
        self.cold_reads = cold_reads
        self.park = park
        self.remember = remember
        self.forget = forget
        self.answer_now = answer_now
        self._quotas = quotas

    @property
    def metered(self) -> bool:
        """True if quotas of clients apply. Then fetches go to the handler, which alone counts their bytes."""
        return self._quotas.consumer is not None or self._quotas.requests is not None

    def note(
        self, request: ClientRequest, message: FetchRequest, wanted: SessionPartition, replica: Partition
    ) -> None:
        """Set a shortcut after a plain fetch of one partition that is answered with records, or waits for them.

        There is no shortcut below the first version in which all compressions may be sent: there, each batch is
        examined.
        """
        frame, version = request.frame, request.api_version
        if frame is None or version < FIRST_WITH_ZSTD or wanted.part.last_fetched_epoch >= 0:
            return
        known = request.connection.shortcut
        if isinstance(known, Repeat) and known.is_of(request.session, replica) and known.is_like(frame):
            return
        at = _offset_position(frame, version, wanted)
        if at is not None:
            request.connection.shortcut = Repeat(self, frame, at, request, message, wanted, replica)


def _offset_position(frame: memoryview, version: int, wanted: SessionPartition) -> int | None:
    """Return the position of the offset in the frame of a plain fetch of one partition; None if the frame has another
    form."""
    at = _AFTER_CORRELATION
    at += 2 + max(0, int.from_bytes(frame[at : at + 2], "big", signed=True))
    if version >= _FIRST_FLEXIBLE:
        if frame[at]:
            return None  # A non-zero byte: there are tagged fields.
        at += 1
    # (Replica id), maximum wait, minimum bytes, maximum bytes, isolation level
    at += 13 if version >= 15 else 17
    at += 8  # Session id and epoch
    at += 1 if version >= _FIRST_FLEXIBLE else 4
    if version >= FIRST_WITH_TOPIC_IDS:
        at += 16
    else:
        at += (1 if version >= _FIRST_FLEXIBLE else 2) + len(wanted.topic.encode())
    at += 1 if version >= _FIRST_FLEXIBLE else 4
    part = wanted.part
    # The lengths above assume a plain request. If the index and epoch are not found here, the request has another form.
    if at + 24 > len(frame) or _INDEX.unpack_from(frame, at)[0] != part.partition:
        return None
    at += 4
    if _INDEX.unpack_from(frame, at)[0] != part.current_leader_epoch:
        return None
    at += 4
    return at if _OFFSET.unpack_from(frame, at)[0] == part.fetch_offset else None


def _pattern(version: int, message: FetchRequest, wanted: SessionPartition) -> tuple[bytes, bytes, bytes]:
    """Return the constant bytes of an answer in three pieces: before the partition's three offsets, between the offsets
    and the size of the records, and at the end."""
    data = PartitionData(
        partition_index=wanted.part.partition,
        high_watermark=_MARKED_OFFSET,
        last_stable_offset=_MARKED_OFFSET,
        log_start_offset=_MARKED_OFFSET,
        aborted_transactions=[] if message.isolation_level == READ_COMMITTED else None,
        records=_Marked(),  # type: ignore[arg-type]  # the codec leaves it out, as it does file slices
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
