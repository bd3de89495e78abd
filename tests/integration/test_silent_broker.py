"""A broker that goes silent is fenced long before its session ends, since no other broker hears it."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.cluster import running_cluster, wait_until
from tests.integration.history import SMALL_CLUSTER, Load, make_topic

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]

SETTINGS = SMALL_CLUSTER | {"broker.session.timeout.ms": "600000"}
"""A session that outlives the test."""


def test_a_stopped_leader_is_replaced_by_the_reports_of_the_others(tmp_path: Path) -> None:
    with running_cluster(tmp_path, settings=SETTINGS) as cluster:
        make_topic(cluster.bootstrap, "silent", 1, min_insync_replicas=2)
        cluster.wait_until_in_sync("silent")
        with Load(cluster.bootstrap, "silent", settings={"socket.timeout.ms": 2000}) as load:
            load.wait_acknowledged(100)
            victim = cluster.broker(cluster.leader("silent", 0) or 0)
            os.kill(victim.pid, signal.SIGSTOP)
            try:
                wait_until(lambda: victim.id not in cluster.taking_part(), "the fencing of the silent broker")
                load.wait_acknowledged(100)
                assert cluster.leader("silent", 0) != victim.id
            finally:
                os.kill(victim.pid, signal.SIGCONT)
            wait_until(lambda: victim.id in cluster.taking_part(), "the return of the broker")
            load.wait_acknowledged(100)
        assert load.failed == []
