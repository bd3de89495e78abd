"""Kills that a program has to survive, one turn after the other."""

from __future__ import annotations

from tests.cluster import RunningCluster
from tests.programs.process import Program
from tests.programs.topics import Output


def kill_and_start(
    cluster: RunningCluster,
    program: Program,
    turn: int,
    output: Output,
    more: int = 60,
    wait_s: float = 120.0,
) -> None:
    """Kill a program, each second time with a leader of its output.

    `more` results must come before all is whole again.
    """
    program.kill9()
    leader = cluster.leader(output.topic, turn % output.partitions)
    assert leader is not None
    node = cluster.broker(leader)
    if turn % 2:
        node.kill9()
    program.start()
    output.wait_for(output.read() + more, wait_s)
    if turn % 2:
        node.restart()
        cluster.wait_until_in_sync(output.topic, wait_s / 2)
