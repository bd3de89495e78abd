"""Every process restarted in its turn, by SIGTERM as operators do it, and by SIGKILL: no send fails, groups go on."""

from __future__ import annotations

import pytest

from tests.cluster import RunningCluster
from tests.faults.faults import Faults
from tests.faults.workload import Workload, make_topic

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_all_are_restarted_one_after_the_other(cluster: RunningCluster, how: str) -> None:
    topic = f"rolled-{how}"
    make_topic(cluster.bootstrap, topic, 6)
    with (
        Faults(cluster, (topic,)) as faults,
        Workload(cluster.bootstrap, topic, 6, per_second=250) as workload,
    ):
        for node in faults.nodes:
            workload.wait_acknowledged(50)
            if how == "stop":
                faults.stop(node)
            else:
                faults.kill(node)
            workload.wait_acknowledged(50)
            workload.wait_read(50)
            faults.heal()
        workload.wait_acknowledged(50)
    workload.check(faults)
