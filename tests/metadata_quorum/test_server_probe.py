"""A probe proves death by refusal or by another incarnation, and by nothing else."""

import contextlib
import os
import resource
import socket

import pytest
import uvloop

from ottla.dataplane.quorum.heartbeats import HeartbeatThread
from ottla.metadata_quorum.probe import ProbeResult, is_refused, probe
from ottla.protocol.liveness_datagrams import DatagramHeartbeat, DatagramSeal

SEAL = DatagramSeal(b"s" * 32, "cluster")
A, B = b"a" * 16, b"b" * 16


def heartbeats(addresses: list[tuple[str, int]] | None = None) -> HeartbeatThread:
    return HeartbeatThread(SEAL, 1, A, "127.0.0.1", dict(enumerate(addresses or [], 101)), interval_ms=20)


def test_a_living_broker_answers() -> None:
    uvloop.run(_a_living_broker_answers())


async def _a_living_broker_answers() -> None:
    thread = heartbeats()
    thread.start()
    try:
        assert await probe(SEAL, "127.0.0.1", thread.port, A) is ProbeResult.ALIVE
        assert await probe(SEAL, "127.0.0.1", thread.port, B) is ProbeResult.GONE
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
    thread = heartbeats()
    thread.start()
    thread.stop()
    assert await probe(SEAL, "127.0.0.1", thread.port, A) is ProbeResult.GONE


def test_silence_and_strangers_prove_nothing() -> None:
    uvloop.run(_silence_and_strangers_prove_nothing())


async def _silence_and_strangers_prove_nothing() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        assert await probe(SEAL, *silent.getsockname(), A) is ProbeResult.UNKNOWN
    stranger = HeartbeatThread(DatagramSeal(b"t" * 32, "cluster"), 1, B, "127.0.0.1", {}, interval_ms=20)
    stranger.start()
    try:
        assert await probe(SEAL, "127.0.0.1", stranger.port, A) is ProbeResult.UNKNOWN
    finally:
        stranger.stop()


def test_heartbeats_tell_the_age_of_the_loop_and_rise() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as node:
        node.bind(("127.0.0.1", 0))
        node.settimeout(5)
        thread = heartbeats([node.getsockname()])
        thread.broker_epoch, thread.metadata_offset = 4, 9
        thread.loop_turned_at -= 1.0
        thread.start()
        try:
            first = SEAL.decode(node.recv(512))
            second = SEAL.decode(node.recv(512))
        finally:
            thread.stop()
    assert isinstance(first, DatagramHeartbeat)
    assert isinstance(second, DatagramHeartbeat)
    assert (first.broker_id, first.broker_epoch, first.incarnation, first.metadata_offset) == (1, 4, A, 9)
    assert second.counter > first.counter
    assert second.loop_age_ms >= first.loop_age_ms >= 1000


def test_a_closed_port_of_this_machine_is_refused_without_waiting() -> None:
    thread = heartbeats()
    thread.start()
    assert not is_refused(SEAL, "127.0.0.1", thread.port)
    thread.stop()
    assert is_refused(SEAL, "127.0.0.1", thread.port)
    assert not is_refused(SEAL, "no address", thread.port)
