"""The UDP datagrams between brokers and quorum nodes: heartbeats and their answers, and probes that ask "which
incarnation are you?".

Every datagram is `magic | kind | fields | 16-byte tag`, of one fixed size per kind. The tag is keyed BLAKE2
over all that precedes it, with a key derived from the cluster secret and the cluster id, so neither a
stranger nor another cluster can keep a broker alive or have it fenced. A heartbeat replayed later is
recognised by its counter, as is its answer, a probe answer by the nonce it repeats. No answer is longer than what
it answers.

A heartbeat has two layouts: one that tells which answers arrive, for quorum nodes that are known to answer, and
one without, which every node understands.
"""

import struct
from dataclasses import dataclass
from hashlib import blake2b
from hmac import compare_digest

_MAGIC = b"OtL1"
_TAG_SIZE = 16
_HEAD = struct.Struct(">4sB")
_HEARTBEAT = struct.Struct(">4sBiq16sQIq")
_PROBE = struct.Struct(">4sB16s")
_ANSWER = struct.Struct(">4sB16si16s")
_TELLING_HEARTBEAT = struct.Struct(">4sBiq16sQIqQ")
_HEARTBEAT_ANSWER = struct.Struct(">4sBi16sQ")
_HEARTBEAT_KIND, _PROBE_KIND, _ANSWER_KIND, _TELLING_HEARTBEAT_KIND, _HEARTBEAT_ANSWER_KIND = 1, 2, 3, 4, 5
_MAX_U32 = 0xFFFF_FFFF

NONCE_SIZE = 16


class InvalidDatagram(Exception):
    """The datagram is not one of ours, or not from this cluster."""


@dataclass(frozen=True, slots=True)
class DatagramHeartbeat:
    """A broker's sign of life."""

    broker_id: int
    #: -1 while the broker has not registered
    broker_epoch: int
    incarnation: bytes
    #: rises with every heartbeat of this incarnation
    counter: int
    #: how long ago the broker's event loop last turned, in ms
    loop_age_ms: int
    #: where the broker's image stands
    metadata_offset: int
    #: the highest counter that the broker has heard this quorum node answer, 0 for none; None: it does not tell
    answered: int | None = None


@dataclass(frozen=True, slots=True)
class HeartbeatAnswer:
    """The active leader has heard this heartbeat of a registered broker."""

    node_id: int
    #: the broker's
    incarnation: bytes
    #: the heartbeat's
    counter: int


@dataclass(frozen=True, slots=True)
class Probe:
    """A quorum node asks whoever holds this port who it is."""

    nonce: bytes


@dataclass(frozen=True, slots=True)
class ProbeAnswer:
    """The broker's answer to a probe."""

    nonce: bytes
    broker_id: int
    incarnation: bytes


Datagram = DatagramHeartbeat | HeartbeatAnswer | Probe | ProbeAnswer


class DatagramSeal:
    """Encodes and authenticates datagrams under one cluster's key."""

    def __init__(self, secret: bytes, cluster_id: str) -> None:
        material = b"ottla liveness datagrams\0" + cluster_id.encode() + b"\0" + secret
        self._key = blake2b(material, digest_size=32).digest()

    def encode(self, datagram: Datagram) -> bytes:
        """The bytes to send."""
        match datagram:
            case DatagramHeartbeat():
                fields = (
                    datagram.broker_id,
                    datagram.broker_epoch,
                    datagram.incarnation,
                    datagram.counter,
                    min(datagram.loop_age_ms, _MAX_U32),
                    datagram.metadata_offset,
                )
                if datagram.answered is None:
                    body = _HEARTBEAT.pack(_MAGIC, _HEARTBEAT_KIND, *fields)
                else:
                    body = _TELLING_HEARTBEAT.pack(
                        _MAGIC, _TELLING_HEARTBEAT_KIND, *fields, datagram.answered
                    )
            case HeartbeatAnswer():
                body = _HEARTBEAT_ANSWER.pack(
                    _MAGIC, _HEARTBEAT_ANSWER_KIND, datagram.node_id, datagram.incarnation, datagram.counter
                )
            case Probe():
                body = _PROBE.pack(_MAGIC, _PROBE_KIND, datagram.nonce)
            case ProbeAnswer():
                body = _ANSWER.pack(
                    _MAGIC, _ANSWER_KIND, datagram.nonce, datagram.broker_id, datagram.incarnation
                )
        return body + self._tag(body)

    def decode(self, data: bytes) -> Datagram:
        """Raises InvalidDatagram for whatever was not sealed with this cluster's key."""
        body, tag = data[:-_TAG_SIZE], data[-_TAG_SIZE:]
        layout = _LAYOUTS.get(body[4]) if len(body) >= _HEAD.size and body[:4] == _MAGIC else None
        if layout is None or layout.size != len(body):
            raise InvalidDatagram("not a liveness datagram")
        if not compare_digest(tag, self._tag(body)):
            raise InvalidDatagram("the tag does not match: another cluster secret, or a forgery")
        _, kind, *fields = layout.unpack(body)
        if kind in (_HEARTBEAT_KIND, _TELLING_HEARTBEAT_KIND):
            return DatagramHeartbeat(*fields)
        if kind == _HEARTBEAT_ANSWER_KIND:
            return HeartbeatAnswer(*fields)
        if kind == _PROBE_KIND:
            return Probe(*fields)
        return ProbeAnswer(*fields)

    def _tag(self, body: bytes) -> bytes:
        return blake2b(body, digest_size=_TAG_SIZE, key=self._key).digest()


_LAYOUTS = {
    _HEARTBEAT_KIND: _HEARTBEAT,
    _PROBE_KIND: _PROBE,
    _ANSWER_KIND: _ANSWER,
    _TELLING_HEARTBEAT_KIND: _TELLING_HEARTBEAT,
    _HEARTBEAT_ANSWER_KIND: _HEARTBEAT_ANSWER,
}
