"""Broker sessions against real quorum nodes: feed, liveness, fencing, commands across leader changes."""

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any

import pytest
import uvloop

from ottla.dataplane.quorum import SessionLost
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.broker_commands import AllocateProducerIds
from ottla.protocol.session.handshake import Role

from .cluster import QuorumAndSessions, until


def run(scenario: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(100):
            await scenario

    uvloop.run(bounded())


async def allocate(session: Any) -> int:
    result = await session.submit(
        AllocateProducerIds(broker_id=session._config.broker_id, broker_epoch=session.broker_epoch), 30_000
    )
    first: int = result.first
    return first


def test_a_broker_registers_and_is_unfenced(tmp_path: Any) -> None:
    async def scenario() -> None:
        async with QuorumAndSessions(tmp_path) as cluster:
            session = await cluster.broker(1, ready=False)
            await session.registered()
            assert session.fenced
            assert session.broker_epoch > 0
            session.ask_to_unfence()
            async with asyncio.timeout(60):
                await session.unfenced()
            assert not session.fenced
            assert session.image.cluster_id == "test-cluster"

    run(scenario())


def test_brokers_may_start_before_the_quorum_and_nodes_in_any_order(tmp_path: Any) -> None:
    async def scenario() -> None:
        cluster = QuorumAndSessions(tmp_path, nodes=3)
        try:
            session = await cluster.broker(1)
            for node_id in (103, 101, 102):
                await cluster.start_node(node_id)
            async with asyncio.timeout(100):
                await session.unfenced()
        finally:
            await cluster.__aexit__()

    run(scenario())


def test_a_reply_comes_when_the_image_has_the_effects(tmp_path: Any) -> None:
    async def scenario() -> None:
        async with QuorumAndSessions(tmp_path) as cluster:
            session = await cluster.broker(1)
            await session.registered()
            for _ in range(20):
                first = await allocate(session)
                assert session.image.next_producer_id > first

    run(scenario())


def test_a_session_that_comes_back_resumes_without_a_snapshot(tmp_path: Any) -> None:
    async def scenario() -> None:
        async with QuorumAndSessions(tmp_path) as cluster:
            session, writer = await cluster.broker(1), await cluster.broker(2)
            await session.unfenced()
            await writer.registered()
            snapshots = session._follower.snapshots
            for node in cluster.nodes.values():
                for open_session in list(node.sessions._sessions):
                    if open_session.broker_id == 1:
                        open_session.link.close("the network says no", abort=True)
            first = await allocate(writer)
            await until(lambda: session.image.next_producer_id > first)
            assert session._follower.snapshots == snapshots

    run(scenario())


def test_a_broker_beyond_the_ring_gets_a_snapshot(tmp_path: Any) -> None:
    async def scenario() -> None:
        async with QuorumAndSessions(tmp_path, feed_records_max=10) as cluster:
            writer = await cluster.broker(1)
            await writer.registered()
            for _ in range(30):
                await allocate(writer)
            late = await cluster.broker(2)
            await late.registered()
            await until(lambda: late.image.offset == writer.image.offset)
            assert late.image.next_producer_id == writer.image.next_producer_id
            assert late.image.brokers == writer.image.brokers
            node = await cluster.leading()
            assert node.feed.start_offset > 10
            assert late._follower.snapshots == 1

    run(scenario())


def test_commands_in_flight_survive_leader_changes_exactly_once(tmp_path: Any) -> None:
    async def scenario() -> None:
        async with QuorumAndSessions(tmp_path, nodes=3) as cluster:
            session = await cluster.broker(1)
            await session.registered()
            blocks = []
            for _ in range(3):
                pending = [asyncio.ensure_future(allocate(session)) for _ in range(150)]
                await asyncio.gather(*pending[:10])
                leader = (await cluster.leading()).config.node_id
                await cluster.stop_node(leader)
                blocks += await asyncio.gather(*pending)
                await cluster.start_node(leader)
            size = blocks[1] - blocks[0]
            assert blocks == [size * i for i in range(450)]
            assert session.image.next_producer_id == size * 450

    run(scenario())


def test_a_killed_broker_is_fenced_in_milliseconds(tmp_path: Any) -> None:
    async def scenario() -> None:
        async with QuorumAndSessions(tmp_path, nodes=3, session_timeout_ms=120_000) as cluster:
            process = await cluster.broker_process(1)
            assert not cluster.fenced(1)
            process.send_signal(signal.SIGKILL)
            took = await until(lambda: cluster.fenced(1), 60)  # long before its session would have ended
            print(f"fenced after {took * 1000:.1f} ms")

    run(scenario())


def test_a_broker_that_dies_together_with_the_leader_is_fenced_by_the_next(tmp_path: Any) -> None:
    async def scenario() -> None:
        async with QuorumAndSessions(tmp_path, nodes=3, session_timeout_ms=30_000) as cluster:
            process = await cluster.broker_process(1)
            leader = await cluster.leading()
            leader.server._on_heartbeat = lambda datagram: None
            leader.probes.session_ended = lambda session: None  # type: ignore[method-assign]
            process.kill()
            await process.wait()
            await until(lambda: all(not node.sessions._sessions for node in cluster.nodes.values()))
            assert not cluster.fenced(1)
            await cluster.stop_node(leader.config.node_id)
            assert await until(lambda: cluster.fenced(1)) < 5.0

    run(scenario())


def test_a_stopped_process_is_fenced_by_the_timeout_alone(tmp_path: Any) -> None:
    async def scenario() -> None:
        async with QuorumAndSessions(tmp_path, session_timeout_ms=1500) as cluster:
            process = await cluster.broker_process(1)
            process.send_signal(signal.SIGSTOP)
            assert 1.0 < await until(lambda: cluster.fenced(1)) < 5.0
            process.send_signal(signal.SIGCONT)
            await until(lambda: not cluster.fenced(1))

    run(scenario())


def test_a_lost_connection_of_a_living_process_fences_nobody(tmp_path: Any) -> None:
    async def scenario() -> None:
        async with QuorumAndSessions(tmp_path) as cluster:
            session = await cluster.broker(1)
            await session.unfenced()
            node = await cluster.leading()
            for _ in range(5):
                for link in session._links.values():
                    link.cut("the broker drops its connection")
                await until(lambda: len(node.sessions._sessions) == 0)
                await until(lambda: len(node.sessions._sessions) == 1 and session.leader_id is not None)
                assert not cluster.fenced(1)
            await until(lambda: not node.probes.under_way)
            assert not cluster.fenced(1)

    run(scenario())


def test_heartbeats_by_udp_alone_keep_a_session_while_there_is_a_link(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with QuorumAndSessions(tmp_path, session_timeout_ms=600) as cluster:
            session = await cluster.broker(1)
            await session.unfenced()
            node = await cluster.leading()
            monkeypatch.setattr(session, "_heartbeat_to", lambda *arguments, **options: None)
            with pytest.raises(AssertionError, match="not within"):
                await until(lambda: cluster.fenced(1), timeout_s=1.5)
            node.server._handlers[Role.BROKER] = lambda link: None
            for open_session in list(node.sessions._sessions):
                open_session.link.close("no more TCP", abort=True)
            await until(lambda: cluster.fenced(1))

    run(scenario())


def test_a_new_incarnation_replaces_the_old_one(tmp_path: Any) -> None:
    async def scenario() -> None:
        async with QuorumAndSessions(tmp_path) as cluster:
            old = await cluster.broker(1)
            await old.unfenced()
            new = await cluster.broker(1)
            await new.unfenced()
            assert new.broker_epoch > old.broker_epoch
            await until(lambda: old._registration.lost is not None)
            with pytest.raises(SessionLost, match="broker id 1 was taken over"):
                await old.unfenced()
            with pytest.raises(KafkaError) as refused:
                await allocate(old)
            assert refused.value.code == ErrorCode.STALE_BROKER_EPOCH
            assert not new.fenced

    run(scenario())


def test_a_controlled_shutdown_ends_when_the_others_know(tmp_path: Any) -> None:
    async def scenario() -> None:
        async with QuorumAndSessions(tmp_path) as cluster:
            leaving, staying = await cluster.broker(1), await cluster.broker(2)
            await leaving.unfenced()
            await staying.unfenced()
            assert await leaving.shut_down_controlled(10)
            assert staying.image.brokers[1].shutting_down
            await leaving.stop()
            cluster.sessions.remove(leaving)
            assert await until(lambda: cluster.fenced(1)) < 2.0

    run(scenario())


def test_a_broker_does_not_wait_for_a_quorum_that_was_stopped(tmp_path: Any) -> None:
    async def scenario() -> None:
        async with QuorumAndSessions(tmp_path) as cluster:
            session = await cluster.broker(1)
            await session.unfenced()
            for node_id in cluster.voters:
                await cluster.stop_node(node_id)
            async with asyncio.timeout(60):
                assert not await session.shut_down_controlled(600)

    run(scenario())


def test_a_command_without_a_quorum_times_out(tmp_path: Any) -> None:
    async def scenario() -> None:
        cluster = QuorumAndSessions(tmp_path)
        try:
            session = await cluster.broker(1)
            with pytest.raises(KafkaError) as refused:
                await session.submit(AllocateProducerIds(broker_id=1), 200)
            assert refused.value.code == ErrorCode.REQUEST_TIMED_OUT
            assert not await session.shut_down_controlled(0.2)
        finally:
            await cluster.__aexit__()

    run(scenario())
