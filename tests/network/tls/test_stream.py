"""A TLS stream reads much at a time, holds little, alternates with OpenSSL's own messages, and reports every kind of
end.
"""

from __future__ import annotations

import asyncio
import random
import socket
import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import pytest

from ottla.network.tls.contexts import client_context, server_context
from ottla.network.tls.handshake import begin_tls, dial_tls, reason_of
from ottla.network.tls.settings import ClientAuth, TlsRules
from ottla.network.tls.stores import KeyStore, TrustStore
from ottla.network.tls.stream import RECORD_BYTES, TlsStream

from .certificates import Authority, keys_of, trusting
from .wire_peer import WirePeer, shake_hands

AUTHORITY = Authority()
OWN, CA = keys_of(AUTHORITY.issue("localhost")), trusting(AUTHORITY.pem)


class Pipe:
    """A socket that counts reads from it, and can be full."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        sock.setblocking(False)
        self.reads = 0
        self.read_bytes = 0
        self.takes_bytes = 1 << 40

    def fileno(self) -> int:
        return self._socket.fileno()

    def recv(self, size: int) -> bytes:
        self.reads += 1
        data = self._socket.recv(size)
        self.read_bytes += len(data)
        return data

    def send(self, data: memoryview) -> int:
        data = data[: self.takes_bytes]
        if not data:
            raise BlockingIOError
        self.takes_bytes -= len(data)
        return self._socket.send(data)

    def close(self) -> None:
        self._socket.close()


class Ends:
    """A serving stream, and its client."""

    def __init__(self, folder: Path, auth: ClientAuth = ClientAuth.NONE) -> None:
        self._sockets = socket.socketpair()
        for end in self._sockets:
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 22)
        secrets = folder / "secrets"
        own, other = self._sockets
        self.pipe = Pipe(own)
        serving = server_context(TlsRules(("TLSv1.3",), client_auth=auth), OWN, CA)
        self.stream = TlsStream(cast(socket.socket, self.pipe), serving)
        self.peer = WirePeer(other, client_context(TlsRules(key_log=secrets), None, CA), secrets)

    def shaken(self) -> Ends:
        shake_hands(self.stream, self.peer)
        self.pipe.reads = self.pipe.read_bytes = 0
        return self

    def read(self, size: int = 1 << 20) -> bytes:
        """Read at once, with room for `size` bytes. Raises BlockingIOError, and the error that ends the stream."""
        space = memoryview(bytearray(size))
        return bytes(space[: self.stream.recv_into(space)])

    def close(self) -> None:
        for end in self._sockets:
            end.close()


@pytest.fixture
def ends(tmp_path: Path) -> Iterator[Ends]:
    made = Ends(tmp_path)
    yield made.shaken()
    made.close()


def test_one_read_of_the_socket_brings_many_records(ends: Ends) -> None:
    data = random.Random(1).randbytes(10_000)
    ends.peer.sock.send(ends.peer.encrypted(data, record=10))
    assert ends.read() == data
    assert ends.pipe.reads <= 2


@pytest.mark.parametrize("seed", range(5))
def test_every_byte_comes_once_whatever_the_room_and_the_records(ends: Ends, seed: int) -> None:
    chance = random.Random(seed)
    data, received, at = chance.randbytes(400_000), bytearray(), 0
    while len(received) < len(data):
        size = chance.choice([0, 1, 10, 1000, 40_000])
        ends.peer.sock.send(ends.peer.encrypted(data[at : at + size], chance.choice([10, 1024, 16384])))
        at += size
        room = chance.choice([1, 100, 16384, 70_000])
        try:
            received += (taken := ends.read(room))
        except BlockingIOError:
            continue
        assert len(taken) == room or not ends.stream.holds_some(), "a short read means that no more is there"
    assert received == data


def test_who_reads_little_leaves_the_rest_in_the_socket(ends: Ends) -> None:
    ends.peer.sock.send(ends.peer.encrypted(bytes(200_000), record=1000))
    for _ in range(100):
        ends.read(100)
        assert ends.stream.pending() <= RECORD_BYTES
    assert ends.pipe.read_bytes <= 2 * RECORD_BYTES
    assert ends.stream.holds_some(), "the kernel does not tell of what is held here"


def test_what_comes_with_the_handshake_is_not_waited_for(tmp_path: Path) -> None:
    ends = Ends(tmp_path)
    ends.peer.hear()
    with pytest.raises(ssl.SSLWantReadError):
        ends.peer.tls.do_handshake()
    ends.peer.sock.send(ends.peer.said())
    assert not ends.stream.step()
    assert ends.stream.flush()
    ends.peer.hear()
    ends.peer.tls.do_handshake()
    ends.peer.sock.send(ends.peer.said() + ends.peer.encrypted(b"early"))
    assert ends.stream.step()
    assert ends.stream.holds_some()
    assert ends.read() == b"early"
    ends.close()


# OpenSSL's memory is one for all


def test_streams_leave_nothing_to_each_other(tmp_path: Path) -> None:
    """This holds for every state: within a record, with a full socket, broken, in a handshake."""
    chance, made = random.Random(4), []
    for number in range(6):
        folder = tmp_path / str(number)
        folder.mkdir()
        made.append(Ends(folder))
    begun, broken, *whole = made
    for ends_of_stream in (broken, *whole):
        ends_of_stream.shaken()
    data = [chance.randbytes(100_000) for _ in whole]
    cut = [
        ends_of_stream.peer.encrypted(each, chance.choice([100, 5000, 16384]))
        for ends_of_stream, each in zip(whole, data, strict=True)
    ]
    received, at = [b"" for _ in whole], [0 for _ in whole]
    begun.peer.sock.send(b"\x16\x03\x01\x02\x00\x01")
    while any(len(each) < 100_000 for each in received):
        number = chance.randrange(len(whole))
        size = chance.choice([3, 2000, 20_000])
        whole[number].peer.sock.send(cut[number][at[number] : at[number] + size])
        at[number] += size
        with suppress(BlockingIOError):
            received[number] += whole[number].read(chance.choice([10, 9000, 50_000]))
        with suppress(OSError):
            broken.peer.sock.send(bytes(2000))
            broken.read()
        assert not begun.stream.step()
        whole[number].pipe.takes_bytes = 100
        with suppress(BlockingIOError):
            whole[number].stream.send(bytes(1000))
    assert received == data
    for ends_of_stream in made:
        ends_of_stream.close()


def test_a_stream_that_ends_in_between_takes_nothing_from_another(
    ends: Ends, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Garbage collection closes forgotten streams while others read."""
    folder = tmp_path / "forgotten"
    folder.mkdir()
    forgotten, read = Ends(folder).shaken(), ssl.SSLObject.read

    def interrupted(end: ssl.SSLObject, *arguments: object) -> object:
        forgotten.stream.say_end()
        return read(end, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(ssl.SSLObject, "read", interrupted)
    other = Ends(folder)
    shake_hands(other.stream, other.peer)
    data = random.Random(6).randbytes(100_000)
    other.peer.sock.send(other.peer.encrypted(data, record=5000))
    assert other.read() == data
    for ends_of_stream in (forgotten, other):
        ends_of_stream.close()


def test_a_stream_that_ends_in_another_thread_says_nothing(ends: Ends) -> None:
    """The stream's memory is in use in its own thread, maybe at this moment."""
    ends.peer.hear()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(ends.stream.say_end).result()
    with pytest.raises(BlockingIOError):
        ends.peer.sock.recv(1)
    ends.stream.say_end()
    assert ends.peer.sock.recv(100)


def test_each_thread_has_its_own(tmp_path: Path) -> None:
    """OpenSSL works without Python's lock."""
    data = random.Random(5).randbytes(3_000_000)

    def carried(number: int) -> bool:
        folder = tmp_path / str(number)
        folder.mkdir()
        ends, received = Ends(folder).shaken(), bytearray()
        for at in range(0, len(data), 30_000):
            ends.peer.sock.send(ends.peer.encrypted(data[at : at + 30_000]))
            received += ends.read()
        ends.close()
        return received == data

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(carried, range(4)))


# Sending


def test_what_the_socket_does_not_take_comes_again_and_goes_once(ends: Ends) -> None:
    data = random.Random(2).randbytes(300_000)
    chance, at, found = random.Random(3), 0, bytearray()
    while at < len(data):
        ends.pipe.takes_bytes = chance.choice([0, 1, 5000, 20_000, 200_000])
        try:
            at += ends.stream.send(memoryview(data)[at:])
        except BlockingIOError:
            assert not ends.stream.owes, "a sender knows itself that it waits"
        found += ends.peer.read()
    assert found == data


def test_a_full_socket_stops_no_reads(ends: Ends) -> None:
    ends.pipe.takes_bytes = 100
    with pytest.raises(BlockingIOError):
        ends.stream.send(bytes(1000))
    ends.peer.sock.send(ends.peer.encrypted(b"more"))
    assert ends.read() == b"more"


# New keys


def test_new_keys_that_the_peer_asks_for_come_before_what_is_sent_next(ends: Ends) -> None:
    ends.peer.hear()
    ends.peer.sock.send(ends.peer.requests_for_new_keys(3))
    with pytest.raises(BlockingIOError):
        ends.read()
    assert not ends.stream.owes
    assert ends.peer.hear() > 0, "OpenSSL keeps the last of them until it has more to say"
    assert ends.stream.send(b"under new keys") == 14
    assert ends.peer.read() == b"under new keys"


def test_nothing_is_received_while_an_answer_of_openssl_waits(ends: Ends) -> None:
    ends.pipe.takes_bytes = 3
    requests = ends.peer.requests_for_new_keys(4)
    ends.peer.sock.send(requests[: len(requests) // 2])
    with pytest.raises(BlockingIOError):
        ends.read()
    assert ends.stream.owes
    ends.peer.sock.send(requests[len(requests) // 2 :])
    reads = ends.pipe.reads
    with pytest.raises(BlockingIOError):
        ends.read()
    with pytest.raises(BlockingIOError):
        ends.stream.send(b"later")
    assert ends.pipe.reads == reads
    ends.pipe.takes_bytes = 1 << 20
    assert ends.stream.flush()
    assert not ends.stream.owes
    with pytest.raises(BlockingIOError):
        ends.read()
    assert ends.pipe.reads > reads
    assert ends.stream.send(b"later") == 5
    assert ends.peer.read() == b"later"


def test_who_asks_for_keys_and_takes_nothing_is_not_read_any_more(ends: Ends) -> None:
    ends.pipe.takes_bytes = 0
    ends.peer.sock.send(ends.peer.requests_for_new_keys(5000))
    for _ in range(20):
        with pytest.raises(BlockingIOError):
            ends.read()
    assert ends.pipe.read_bytes <= 4 * RECORD_BYTES


# Ends


def test_what_came_before_the_end_is_told_first(ends: Ends) -> None:
    last = ends.peer.encrypted(b"the last")
    with pytest.raises(ssl.SSLWantReadError):
        ends.peer.tls.unwrap()
    ends.peer.sock.send(last + ends.peer.said())
    assert ends.read() == b"the last"
    assert ends.stream.holds_some()
    assert [ends.read(), ends.read()] == [b"", b""]
    assert ends.stream.send(b"an answer all the same") == 22
    assert ends.peer.sock.recv(100)


def test_an_end_that_tls_did_not_tell_is_an_error(ends: Ends) -> None:
    ends.peer.sock.send(ends.peer.encrypted(b"cut off"))
    ends.peer.sock.shutdown(socket.SHUT_WR)
    assert ends.read() == b"cut off"
    for _ in range(2):
        with pytest.raises(ssl.SSLEOFError) as caught:
            ends.read()
        assert reason_of(caught.value) == "unexpected eof while reading"


def test_who_hangs_up_during_the_handshake_is_told_of(tmp_path: Path) -> None:
    ends = Ends(tmp_path)
    ends.peer.sock.shutdown(socket.SHUT_WR)
    with pytest.raises(ssl.SSLEOFError) as caught:
        ends.stream.step()
    assert reason_of(caught.value) == "unexpected eof while reading"
    ends.close()


def test_the_peer_hears_why_its_bytes_are_refused(ends: Ends) -> None:
    damaged = bytearray(ends.peer.encrypted(b"x" * 100))
    damaged[50] ^= 1
    ends.peer.sock.send(damaged)
    with pytest.raises(ssl.SSLError, match="BAD_RECORD_MAC"):
        ends.read()
    with pytest.raises(ssl.SSLError, match="BAD_RECORD_MAC"):
        ends.peer.read()


def test_the_peer_hears_why_its_handshake_fails(tmp_path: Path) -> None:
    ends = Ends(tmp_path, ClientAuth.REQUIRED)
    with pytest.raises(ssl.SSLError, match="PEER_DID_NOT_RETURN_A_CERTIFICATE"):
        ends.shaken()
    with pytest.raises(ssl.SSLError, match="CERTIFICATE_REQUIRED"):
        ends.peer.read()
    ends.close()


async def refused(served: KeyStore, trusted: TrustStore) -> str:
    """Return the error of a client that connects to an untrusted server."""
    own, other = socket.socketpair()
    for end in (own, other):
        end.setblocking(False)
    dialling, accepting = client_context(TlsRules(), None, trusted), server_context(TlsRules(), served, None)
    ends = await asyncio.gather(
        dial_tls(own, dialling, "localhost"), begin_tls(TlsStream(other, accepting)), return_exceptions=True
    )
    assert isinstance(ends[0], ssl.SSLCertVerificationError)
    assert own.fileno() == other.fileno() == -1
    return reason_of(ends[0])


async def test_whose_certificate_is_refused_is_told() -> None:
    expired = AUTHORITY.issue(
        "localhost", common_name="old\nname", not_after=datetime(2020, 1, 1, tzinfo=UTC)
    )
    refusal = await refused(keys_of(expired), CA)
    assert refusal.startswith("the certificate is refused: certificate has expired (it says that it is of '")
    assert "CN=old" in refusal
    assert "\n" not in refusal
    long = Authority().issue(
        "localhost", common_name="x" * 64, organization="y" * 64, organization_unit="z" * 64
    )
    refusal = await refused(keys_of(long), CA)
    start = "the certificate is refused: unable to get local issuer certificate (it says that it is of "
    assert refusal.startswith(start)
    assert len(refusal) == len(start) + 200 + len(")")


def test_the_peer_hears_of_the_end(ends: Ends) -> None:
    assert ends.stream.send(b"and good-bye") == 12
    ends.stream.say_end()
    ends.stream.close()
    assert ends.peer.read() == b"and good-bye"
    assert ends.peer.tls.read(10) == b""


def test_an_end_that_the_socket_does_not_take_is_not_waited_for(ends: Ends) -> None:
    ends.pipe.takes_bytes = 0
    ends.stream.say_end()
    assert not ends.stream.owes
