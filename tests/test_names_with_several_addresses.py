"""A client soon tries the next address of a host if one address swallows packets (RFC 8305)."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
import uvloop

from ottla.client.connections.metadata import BrokerAddress
from ottla.client.connections.opening import connect
from ottla.client.failures import ConnectionLost, RequestTimedOut
from ottla.network import dialing
from ottla.network.dialing import connected_socket
from tests.client.fake_cluster import fake_cluster

NAME = "several.test"
loops = pytest.mark.parametrize(
    "loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"]
)


@contextmanager
def black_hole(address: str, port: int) -> Iterator[None]:
    """Open a listener with a full backlog that accepts no connection, so further packets are
    dropped as by a firewall.
    """
    waiting: list[socket.socket] = []
    with closing(socket.socket()) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        listener.listen(0)
        try:
            while True:
                connection = socket.socket()
                waiting.append(connection)
                connection.settimeout(0.2)
                try:
                    connection.connect((address, port))
                except TimeoutError:
                    break
            yield
        finally:
            for client in waiting:
                client.close()


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with closing(socket.socket()) as made:
        made.bind(("127.0.0.1", 0))
        made.listen(16)
        yield made


@pytest.fixture
def resolves(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let NAME resolve to these addresses."""
    real = socket.getaddrinfo

    def to(*addresses: str) -> None:
        def getaddrinfo(host: Any, port: Any, *args: Any, flags: int = 0, **more: Any) -> list[Any]:
            if host not in (NAME, NAME.encode()) or flags & socket.AI_NUMERICHOST:
                return real(host, port, *args, flags=flags, **more)
            return [found for address in addresses for found in real(address, port, *args, **more)]

        monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)

    return to


def run(loop: Callable[[], asyncio.AbstractEventLoop], main: Coroutine[Any, Any, Any]) -> float:
    """Run a coroutine and return the seconds that it took."""
    began = time.monotonic()
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(main)
    return time.monotonic() - began


@loops
def test_the_next_address_is_tried_soon(
    loop: Callable[[], asyncio.AbstractEventLoop],
    listener: socket.socket,
    resolves: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    port = listener.getsockname()[1]

    async def reach() -> None:
        async with asyncio.timeout(5):
            with await connected_socket(NAME, port) as sock:
                assert sock.getpeername() == ("127.0.0.1", port)
                assert not sock.getblocking()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.wait(others, timeout=5) if others else None
        assert len(asyncio.all_tasks()) == 1  # no other task is running

    resolves("127.0.0.2", "127.0.0.1")
    with black_hole("127.0.0.2", port):
        assert 0.2 < run(loop, reach()) < 2
    # Neither a refusal is waited for nor the first address that answers: waiting would take longer than `reach` may.
    monkeypatch.setattr(dialing, "NEXT_AFTER_S", 60)
    run(loop, reach())
    resolves("127.0.0.1", "127.0.0.2")
    run(loop, reach())


def test_what_the_last_address_failed_with_is_raised(resolves: Callable[..., None]) -> None:
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    resolves("127.0.0.2", "127.0.0.1")
    for name, error in ((NAME, ConnectionRefusedError), ("no such host.invalid", socket.gaierror)):
        with pytest.raises(error):
            run(asyncio.new_event_loop, connected_socket(name, port))


async def test_families_alternate(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []

    def refuses(family: int, *_: object) -> socket.socket:
        tried.append(socket.AddressFamily(family).name)
        raise OSError("refused")

    six, four = ((family, socket.SOCK_STREAM, 6, "", ()) for family in (socket.AF_INET6, socket.AF_INET))
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [six, six, six, four])
    monkeypatch.setattr(socket, "socket", refuses)
    with pytest.raises(OSError, match="refused"):
        await connected_socket(NAME, 1)
    assert tried == ["AF_INET6", "AF_INET", "AF_INET6", "AF_INET6"]


async def test_a_client_reaches_its_broker(resolves: Callable[..., None]) -> None:
    async with fake_cluster() as cluster:
        port = cluster.ports[0]
        resolves("127.0.0.2", "127.0.0.1")
        with black_hole("127.0.0.2", port):
            connection = await connect(BrokerAddress(-1, NAME, port), timeout_ms=3_000)
            connection.close()
        with pytest.raises(ConnectionLost, match=r"cannot connect to nobody\.invalid"):
            await connect(BrokerAddress(-1, "nobody.invalid", port), timeout_ms=3_000)


async def test_the_timeout_bounds_all_attempts_together(resolves: Callable[..., None]) -> None:
    resolves("127.0.0.2", "127.0.0.3")
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with black_hole("127.0.0.2", port), black_hole("127.0.0.3", port):
        began = time.monotonic()
        with pytest.raises(RequestTimedOut, match="did not accept a connection in time"):
            await connect(BrokerAddress(-1, NAME, port), timeout_ms=3_000)
        assert 2.9 < time.monotonic() - began < 6, "each of the two would have taken as long"


@pytest.mark.parametrize("name", ["x" * 64, "a..b"])
async def test_what_can_be_no_name_is_told_as_an_address_that_fails(name: str) -> None:
    with pytest.raises(OSError, match="can be the name of no host"):
        await connected_socket(name, 1)
