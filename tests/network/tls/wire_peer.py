"""The other end of a `TlsStream`, on a socket that tests fill and empty; it can request new keys (RFC 8446)."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path

from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA384
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from ottla.network.tls.stream import TlsStream

_HANDSHAKE, _APPLICATION_DATA = 22, 23
_KEY_UPDATE, _UPDATE_REQUESTED = 24, 1


class WirePeer:
    """A client that uses TLS 1.3 with AES-256."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext, secrets: Path) -> None:
        """Start with `secrets`, the file to which the context writes its keys."""
        self.sock = sock
        sock.setblocking(False)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname="localhost")
        self._secrets = secrets

    def encrypted(self, data: bytes, record: int = 16384) -> bytes:
        """Return the records of the data, with `record` bytes in each."""
        for at in range(0, len(data), record):
            self.tls.write(data[at : at + record])
        return self._outgoing.read()

    def said(self) -> bytes:
        """Return OpenSSL's outgoing data."""
        return self._outgoing.read()

    def hear(self) -> int:
        """Pass received data to OpenSSL, and return its length."""
        heard = 0
        try:
            while data := self.sock.recv(1 << 20):
                self._incoming.write(data)
                heard += len(data)
        except BlockingIOError:
            return heard
        self._incoming.write_eof()
        return heard

    def read(self) -> bytes:
        """Return the received, decrypted data."""
        self.hear()
        found = bytearray()
        try:
            while data := self.tls.read(1 << 16):
                found += data
        except ssl.SSLWantReadError:
            pass
        return bytes(found)

    def requests_for_new_keys(self, count: int) -> bytes:
        """Return `count` key update requests in a row. No data was sent before."""
        assert self.tls.cipher() == ("TLS_AES_256_GCM_SHA384", "TLSv1.3", 256)
        lines = dict(line.split()[::2] for line in self._secrets.read_text().splitlines() if line[0] != "#")
        secret, sent = bytes.fromhex(lines["CLIENT_TRAFFIC_SECRET_0"]), b""
        asked = bytes([_KEY_UPDATE, 0, 0, 1, _UPDATE_REQUESTED, _HANDSHAKE])
        for _ in range(count):
            # Each is the first record under keys that follow from those before.
            key, nonce = _expanded(secret, b"key", 32), _expanded(secret, b"iv", 12)
            head = bytes([_APPLICATION_DATA, 3, 3, 0, len(asked) + 16])
            sent += head + AESGCM(key).encrypt(nonce, asked, head)
            secret = _expanded(secret, b"traffic upd", 48)
        return sent


def _expanded(secret: bytes, label: bytes, size: int) -> bytes:
    """Compute HKDF-Expand-Label without a context."""
    info = size.to_bytes(2, "big") + bytes([6 + len(label)]) + b"tls13 " + label + b"\0"
    return HKDFExpand(SHA384(), size, info).derive(secret)


def shake_hands(stream: TlsStream, peer: WirePeer) -> None:
    """Do the handshake of both ends, in turns."""
    is_done = [False, False]
    while not all(is_done):
        peer.hear()
        try:
            peer.tls.do_handshake()
            is_done[0] = True
        except ssl.SSLWantReadError:
            pass
        peer.sock.send(peer.said())
        is_done[1] = is_done[1] or stream.step()
        assert stream.flush()
