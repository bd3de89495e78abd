"""Differing clocks of brokers: the quorum's leader logs this once, and again when they agree."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.metadata_quorum.clock_watch import SKEW_MS_MAX, ClockRemark, ClockWatch
from ottla.metadata_quorum.heartbeats import Heartbeats
from ottla.metadata_quorum.metrics import CLOCK_SKEW, quorum_families
from ottla.protocol.cluster.cluster_image import ClusterImage
from ottla.protocol.messages.quorum_session import SessionHeartbeat

from .test_server_leader_duties import World

DAY_MS = 86_400_000
LEADER = 101
NOON_MS = 1_700_000_000_000


class Cluster:
    """A leader and three brokers; `ahead_ms` of each clock, and of the leader's own."""

    def __init__(self) -> None:
        self.world = World()
        self.world.duties.lead(0.0)
        self.ahead_ms = {1: 0, 2: 0, 3: 0, LEADER: 0}
        self.delay_ms = 0
        self.signs = Heartbeats(
            LEADER, self.world.duties, lambda: 0.05, lambda: NOON_MS + self.ahead_ms[LEADER] + self.delay_ms
        )

    def beat(self, rounds: int = 1, *, tells: bool = True) -> None:
        """Let every broker send `rounds` heartbeats."""
        for _ in range(rounds):
            for broker_id in (1, 2, 3):
                session = SimpleNamespace(broker_id=broker_id, incarnation=bytes([broker_id]) * 16)
                heartbeat = SessionHeartbeat(
                    broker_epoch=broker_id,
                    metadata_offset=self.world.image.offset,
                    wall_ms=NOON_MS + self.ahead_ms[broker_id] if tells else -1,
                )
                self.signs.heartbeat(cast(Any, session), heartbeat)


@pytest.mark.parametrize(
    ("node_id", "ahead_ms", "words"),
    [
        (2, -DAY_MS, "the clock of broker 2 is 86400 s behind the others"),
        (3, 60_000, "the clock of broker 3 is 60 s ahead of the others"),
        (LEADER, DAY_MS, "the clock of this quorum node is 86400 s ahead of the others"),
    ],
)
def test_a_wrong_clock_is_named_once_and_again_when_it_is_right(
    caplog: pytest.LogCaptureFixture, node_id: int, ahead_ms: int, words: str
) -> None:
    caplog.set_level(logging.INFO, "ottla.metadata_quorum.heartbeats")
    cluster = Cluster()
    cluster.beat(10)
    assert not caplog.messages
    cluster.ahead_ms[node_id] = ahead_ms
    cluster.beat(20)
    (warning,) = caplog.messages
    assert words in warning
    assert cluster.signs.clocks.skews_ms()[node_id] == ahead_ms
    caplog.clear()
    cluster.ahead_ms[node_id] = 100
    cluster.beat(20)
    (relief,) = caplog.messages
    assert "agrees with the others again" in relief


def test_heartbeats_that_come_late_make_no_clock_wrong(caplog: pytest.LogCaptureFixture) -> None:
    cluster = Cluster()
    for number in range(30):
        cluster.delay_ms = 0 if number % 5 == 0 else 3 * SKEW_MS_MAX
        cluster.beat()
    assert not caplog.messages


def test_brokers_of_before_are_not_compared(caplog: pytest.LogCaptureFixture) -> None:
    cluster = Cluster()
    cluster.beat(20, tells=False)
    assert not caplog.messages
    assert cluster.signs.clocks.skews_ms() == {LEADER: 0}


def test_a_node_that_does_not_lead_says_nothing_and_a_new_leader_begins_anew(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = Cluster()
    cluster.ahead_ms[2] = DAY_MS
    cluster.world.duties.follow()
    cluster.beat(20)
    assert not caplog.messages
    cluster.world.duties.lead(1.0)
    cluster.beat(20)
    assert len(caplog.messages) == 1


def test_a_broker_that_is_fenced_is_in_nobodys_middle() -> None:
    cluster = Cluster()
    cluster.beat(10)
    cluster.world.broker(3, fenced=True)
    cluster.ahead_ms[3] = DAY_MS
    cluster.beat(10)
    assert cluster.signs.clocks.skews_ms().keys() <= {1, 2, LEADER}


def test_one_broker_beside_the_leader_is_measured_by_the_leaders_clock() -> None:
    watch = ClockWatch(LEADER)
    remarks = [remark for _ in range(10) for remark in watch.heard(1, DAY_MS, 0)]
    assert remarks == [ClockRemark(1, DAY_MS, is_wrong=True)]


def test_the_difference_is_a_metric_of_the_leader() -> None:
    raft = cast(
        Any,
        SimpleNamespace(
            is_leader=True,
            term=1,
            leader_id=LEADER,
            applied_index=1,
            commit_times=None,
            formed=True,
            catching_up=False,
        ),
    )
    families = quorum_families(raft, ClusterImage(), None, {2: -DAY_MS, LEADER: 0})
    (skew,) = [family for family in families if family is not None and family.metric is CLOCK_SKEW]
    assert list(skew.rows) == [(("2",), -86_400.0), ((str(LEADER),), 0.0)]
