"""A probe proves death by refusal alone."""

import contextlib
import os
import resource
import socket
from types import SimpleNamespace
from typing import Any

import pytest
import uvloop

from ottla.dataplane.quorum.heartbeats import HeartbeatThread
from ottla.metadata_quorum.broker_probes import BrokerProbes
from ottla.metadata_quorum.probe import ProbeResult, is_own_address, is_refused, probe
from ottla.protocol.session.liveness_datagrams import DatagramHeartbeat, DatagramSeal

A = b"a" * 16


def seals(key: bytes = b"s" * 32) -> tuple[DatagramSeal, DatagramSeal]:
    """Return the broker's end of a link, and the quorum node's."""
    return DatagramSeal(key, is_broker=True), DatagramSeal(key, is_broker=False)


def heartbeats(seal: DatagramSeal, address: tuple[str, int] = ("127.0.0.1", 9)) -> HeartbeatThread:
    thread = HeartbeatThread(1, A, "127.0.0.1", {101: address}, interval_ms=20)
    thread.link_opened(101, seal)
    return thread


def test_a_living_broker_answers() -> None:
    uvloop.run(_a_living_broker_answers())


async def _a_living_broker_answers() -> None:
    own, asking = seals()
    thread = heartbeats(own)
    thread.start()
    try:
        assert await probe(asking, "127.0.0.1", thread.port) is ProbeResult.ALIVE
        thread.link_lost(101)
        assert await probe(asking, "127.0.0.1", thread.port) is ProbeResult.ALIVE, "that is when it is asked"
    finally:
        thread.stop()


def test_a_broker_with_a_thousand_open_logs_answers() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2048:
        pytest.skip("the system allows too few descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2048), hard))
    with contextlib.ExitStack() as logs:
        for _ in range(1100):
            logs.callback(os.close, os.open(os.devnull, os.O_RDONLY))
        uvloop.run(_a_living_broker_answers())
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_closed_port_is_proof() -> None:
    uvloop.run(_a_closed_port_is_proof())


async def _a_closed_port_is_proof() -> None:
    own, asking = seals()
    thread = heartbeats(own)
    thread.start()
    thread.stop()
    assert await probe(asking, "127.0.0.1", thread.port) is ProbeResult.GONE


def test_silence_and_strangers_prove_nothing() -> None:
    uvloop.run(_silence_and_strangers_prove_nothing())


async def _silence_and_strangers_prove_nothing() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        assert await probe(seals()[1], *silent.getsockname()) is ProbeResult.UNKNOWN
    stranger = heartbeats(seals(b"t" * 32)[0])
    stranger.start()
    try:
        assert await probe(seals()[1], "127.0.0.1", stranger.port) is ProbeResult.UNKNOWN
    finally:
        stranger.stop()


def test_heartbeats_tell_the_age_of_the_loop_and_rise() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as node:
        node.bind(("127.0.0.1", 0))
        node.settimeout(5)
        own, hearing = seals()
        thread = heartbeats(own, node.getsockname())
        thread.broker_epoch, thread.metadata_offset = 4, 9
        thread.loop_turned_at -= 1.0
        thread.start()
        try:
            first = hearing.decode(node.recv(512))
            second = hearing.decode(node.recv(512))
        finally:
            thread.stop()
    assert isinstance(first, DatagramHeartbeat)
    assert isinstance(second, DatagramHeartbeat)
    assert (first.broker_id, first.broker_epoch, first.incarnation, first.metadata_offset) == (1, 4, A, 9)
    assert second.counter > first.counter
    assert second.loop_age_ms >= first.loop_age_ms >= 1000


def test_a_closed_port_of_this_machine_is_refused_without_waiting() -> None:
    own, asking = seals()
    thread = heartbeats(own)
    thread.start()
    assert not is_refused(asking, "127.0.0.1", thread.port)
    thread.stop()
    assert is_refused(asking, "127.0.0.1", thread.port)
    assert not is_refused(asking, "no address", thread.port)


def test_this_machine_knows_its_own_addresses() -> None:
    assert is_own_address("127.0.0.1")
    assert is_own_address("127.84.21.7")
    for other in ("192.0.2.1", "2001:db8::1", "no address"):
        assert not is_own_address(other)


@pytest.mark.parametrize(
    ("on_this_machine", "believes_any_refusal", "fenced"),
    [(True, False, [(1, 7)]), (False, False, []), (False, True, [(1, 7)])],
)
def test_a_refusal_is_believed_from_this_machine_or_if_the_operator_says_so(
    monkeypatch: pytest.MonkeyPatch,
    on_this_machine: bool,
    believes_any_refusal: bool,
    fenced: list[tuple[int, int]],
) -> None:
    """A refusal from another machine comes by ICMP, which an attacker who has also cut the session can forge."""
    monkeypatch.setattr("ottla.metadata_quorum.broker_probes.is_own_address", lambda host: on_this_machine)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as gone:
        gone.bind(("127.0.0.1", 0))
        port = gone.getsockname()[1]
    registrations: list[tuple[int, int]] = []
    duties: Any = SimpleNamespace(active=True, fence=lambda *registration: registrations.append(registration))
    broker = SimpleNamespace(fenced=False, incarnation=A, broker_epoch=7)
    image: Any = SimpleNamespace(brokers={1: broker})
    session: Any = SimpleNamespace(
        broker_id=1,
        incarnation=A,
        host="127.0.0.1",
        heartbeat_port=port,
        link=SimpleNamespace(datagrams=seals()[1]),
    )
    probes = BrokerProbes(duties, lambda: image, lambda _: None, believes_any_refusal=believes_any_refusal)
    probes.session_ended(session)
    assert registrations == fenced
    assert probes.under_way == 0
