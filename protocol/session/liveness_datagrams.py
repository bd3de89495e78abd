"""UDP datagrams between brokers and quorum nodes: heartbeats and their answers, and probes whether a broker is alive.

They belong to the TCP link of the same two nodes: their keys derive from the keys of that connection, and end with it.
So no unauthenticated peer, no other cluster and no recording of an earlier link can keep a broker alive or have it
fenced.

Every datagram is `magic | key id | number | kind and fields | 16-byte tag`, of one fixed size per kind. Kind and fields
are AES-256-GCM ciphertext. The key id names the link whose key it is. The number rises with every datagram of one
direction, and is the nonce; a number that is not above all earlier ones is refused. No answer is longer than its
question.
"""

import struct
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_ID_SIZE: Final = 8
NONCE_SIZE: Final = 16

_MAGIC = b"OtL2"
_TAG_SIZE = 16
_HEAD = struct.Struct(f">4s{KEY_ID_SIZE}sQ")
_HEARTBEAT = struct.Struct(">Biq16sQIqQ")
_PROBE = struct.Struct(">B16s")
_HEARTBEAT_ANSWER = struct.Struct(">Bi16sQ")
_HEARTBEAT_KIND, _PROBE_KIND, _ANSWER_KIND, _HEARTBEAT_ANSWER_KIND = 1, 2, 3, 4
_LAYOUTS = {
    _HEARTBEAT_KIND: _HEARTBEAT,
    _PROBE_KIND: _PROBE,
    _ANSWER_KIND: _PROBE,
    _HEARTBEAT_ANSWER_KIND: _HEARTBEAT_ANSWER,
}
_MAX_U32 = 0xFFFF_FFFF


class InvalidDatagram(Exception):
    """A datagram that is malformed, or does not come from this cluster."""


@dataclass(frozen=True, slots=True)
class DatagramHeartbeat:
    """Heartbeat of a broker over UDP: its registration, its metadata offset, and the age of its event loop's last
    turn."""

    broker_id: int
    #: -1 while the broker has not registered
    broker_epoch: int
    incarnation: bytes
    #: number that rises with every heartbeat of this incarnation
    counter: int
    #: time since the broker's event loop last ran, in ms
    loop_age_ms: int
    #: metadata offset of the broker's image
    metadata_offset: int
    #: highest counter of which the broker received this quorum node's answer; 0 for none
    answered: int


@dataclass(frozen=True, slots=True)
class HeartbeatAnswer:
    """Confirmation of the active leader that it received this heartbeat of a registered broker."""

    node_id: int
    #: incarnation of the broker
    incarnation: bytes
    #: counter of the heartbeat
    counter: int


@dataclass(frozen=True, slots=True)
class Probe:
    """Question of a quorum node to a broker's heartbeat port, which only the broker's live process can answer."""

    nonce: bytes


@dataclass(frozen=True, slots=True)
class ProbeAnswer:
    """Answer of the broker to a probe. The keys prove which broker and which of its incarnations answers."""

    nonce: bytes


Datagram = DatagramHeartbeat | HeartbeatAnswer | Probe | ProbeAnswer


class DatagramSeal:
    """An encoder and decoder of encrypted datagrams that belong to one TCP link, for one of its ends.

    An end has one seal for a link, and uses it from one thread, since its numbers must not repeat.
    """

    def __init__(self, link_key: bytes, *, is_broker: bool) -> None:
        """Derive the keys. `link_key`: key that both ends derive from the link's channel for its datagrams."""
        self.key_id = _derived(link_key, b"key id", KEY_ID_SIZE)
        """Id by which this link's datagrams are distinguished from those of other links."""
        to_quorum, to_broker = (
            AESGCM(_derived(link_key, label, 32)) for label in (b"to the quorum", b"to the broker")
        )
        self._sending, self._receiving = (to_quorum, to_broker) if is_broker else (to_broker, to_quorum)
        self._sent = 0
        self._received = 0

    def encode(self, datagram: Datagram) -> bytes:
        """Return the encrypted bytes of a datagram under the next number."""
        match datagram:
            case DatagramHeartbeat():
                body = _HEARTBEAT.pack(
                    _HEARTBEAT_KIND,
                    datagram.broker_id,
                    datagram.broker_epoch,
                    datagram.incarnation,
                    datagram.counter,
                    min(datagram.loop_age_ms, _MAX_U32),
                    datagram.metadata_offset,
                    datagram.answered,
                )
            case HeartbeatAnswer():
                body = _HEARTBEAT_ANSWER.pack(
                    _HEARTBEAT_ANSWER_KIND, datagram.node_id, datagram.incarnation, datagram.counter
                )
            case Probe():
                body = _PROBE.pack(_PROBE_KIND, datagram.nonce)
            case ProbeAnswer():
                body = _PROBE.pack(_ANSWER_KIND, datagram.nonce)
        self._sent += 1
        head = _HEAD.pack(_MAGIC, self.key_id, self._sent)
        return head + self._sending.encrypt(_nonce(self._sent), body, head)

    def decode(self, data: bytes) -> Datagram:
        """Decode a datagram. Raises InvalidDatagram if the other end of this link did not seal it, or if it was
        received before."""
        if key_id_of(data) != self.key_id:
            raise InvalidDatagram("not a liveness datagram of this link")
        head = data[: _HEAD.size]
        _, _, number = _HEAD.unpack(head)
        if number <= self._received:
            raise InvalidDatagram("a later one was there before it")
        try:
            body = self._receiving.decrypt(_nonce(number), data[_HEAD.size :], head)
        except InvalidTag:
            raise InvalidDatagram("the tag does not match: a forgery") from None
        layout = _LAYOUTS.get(body[0]) if body else None
        if layout is None or layout.size != len(body):
            raise InvalidDatagram("the other end of this link has sent what this version does not know")
        self._received = number
        kind, *fields = layout.unpack(body)
        if kind == _HEARTBEAT_KIND:
            return DatagramHeartbeat(*fields)
        if kind == _HEARTBEAT_ANSWER_KIND:
            return HeartbeatAnswer(*fields)
        if kind == _PROBE_KIND:
            return Probe(*fields)
        return ProbeAnswer(*fields)


def key_id_of(data: bytes) -> bytes | None:
    """Return the id of the key that a datagram needs; None if it is no liveness datagram."""
    if len(data) < _HEAD.size + _TAG_SIZE or data[: len(_MAGIC)] != _MAGIC:
        return None
    return data[len(_MAGIC) : len(_MAGIC) + KEY_ID_SIZE]


def _derived(link_key: bytes, label: bytes, size: int) -> bytes:
    return blake2b(label, digest_size=size, key=link_key).digest()


def _nonce(number: int) -> bytes:
    return number.to_bytes(12, "big")
