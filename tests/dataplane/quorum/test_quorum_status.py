"""A broker requests the progress of all nodes from real quorum nodes."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from ottla.dataplane.quorum.questions import PendingQuestions
from ottla.protocol.messages.quorum_session import QuorumStatus

from .cluster import QuorumAndSessions, until
from .test_quorum_session import allocate, run

TIMEOUT_S = 5.0


def test_the_leader_tells_of_voters_and_brokers_and_the_next_leader_too(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with QuorumAndSessions(tmp_path, nodes=3) as cluster:
            session = await cluster.broker(1)
            await session.registered()
            await allocate(session)

            async def settled() -> QuorumStatus:
                async with asyncio.timeout(60):
                    while True:
                        status = await session.quorum_status(TIMEOUT_S)
                        assert status is not None
                        ends = [standing.log_end_offset for standing in (*status.voters, *status.observers)]
                        if len(set(ends)) == 1 and len(status.observers) == 1:
                            return status
                        await asyncio.sleep(0.01)

            first = await settled()
            assert [voter.node_id for voter in first.voters] == [101, 102, 103]
            assert [broker.node_id for broker in first.observers] == [1]
            assert first.leader_id == session.leader_id
            leader = cluster.nodes[first.leader_id]
            assert first.high_watermark == first.voters[0].log_end_offset == leader.raft.applied_index + 1
            for standing in (*first.voters, *first.observers):
                assert abs(standing.heard_at - time.time() * 1000) < 5000
                assert abs(standing.caught_up_at - time.time() * 1000) < 5000

            # Without one follower: its last known state is reported, while the others go on.
            gone = next(voter.node_id for voter in first.voters if voter.node_id != first.leader_id)
            await cluster.stop_node(gone)
            await asyncio.gather(*(allocate(session) for _ in range(3)))
            behind = await session.quorum_status(TIMEOUT_S)
            assert behind is not None
            ends = {voter.node_id: voter.log_end_offset for voter in behind.voters}
            assert 0 < ends[gone] < ends[behind.leader_id]

            await cluster.start_node(gone)
            await settled()
            await cluster.stop_node(first.leader_id)
            second = await session.quorum_status(TIMEOUT_S)
            assert second is not None
            assert second.leader_id != first.leader_id
            assert second.term > first.term
            (lost,) = (voter for voter in second.voters if voter.node_id == first.leader_id)
            assert (lost.log_end_offset, lost.heard_at, lost.caught_up_at) == (-1, -1, -1)

    run(scenario())


def test_without_a_quorum_there_is_no_answer(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with QuorumAndSessions(tmp_path) as cluster:
            session = await cluster.broker(1)
            await cluster.stop_node(101)
            await until(lambda: session.leader_id is None)
            assert await session.quorum_status(0.05) is None

    run(scenario())


def test_a_new_leader_is_asked_whatever_waits_and_each_gets_its_own_answer() -> None:
    async def scenario() -> None:
        sent: list[int] = []
        questions = PendingQuestions()
        asking = [asyncio.create_task(questions.ask(sent.append, TIMEOUT_S)) for _ in range(2)]
        await until(lambda: sent == [1, 2])
        questions.new_leader()
        assert sent == [1, 2, 1, 2]
        questions.answered(QuorumStatus(question=2, leader_id=102))
        questions.answered(QuorumStatus(question=1, leader_id=101))
        questions.answered(QuorumStatus(question=1, leader_id=103))
        answers = await asyncio.gather(*asking)
        assert [getattr(answer, "leader_id", None) for answer in answers] == [101, 102]
        questions.new_leader()
        assert len(sent) == 4

    run(scenario())
