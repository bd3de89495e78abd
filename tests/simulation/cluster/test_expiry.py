"""Unused state expires after the configured time: minutes, which are short in the simulation."""

from __future__ import annotations

import json

from tests.simulation.cluster.test_determinism import printed_by

PLAY = """
import json
from unittest.mock import patch
from ottla import Admin, Consumer, NewTopic, Producer
from ottla.dataplane.server import server
from tests.simulation.cluster.cluster import SimulatedCluster
from tests.simulation.cluster.playing import warm_up
from tests.simulation.cluster.scenario import prepared_already
from tests.simulation.machine.installed import installed
from tests.simulation.machine.machine import Machine
from tests.simulation.machine.network import Network
from tests.simulation.machine.trace import Trace

SETTINGS = {
    "offsets.retention.minutes": "1",
    "offsets.retention.check.interval.ms": "10000",
    "producer.id.expiration.ms": "60000",
    "producer.id.expiration.check.interval.ms": "10000",
}

warm_up()
machine = Machine(1, Trace(None))
machine.network = Network(machine)
with installed(machine), patch.object(server, "warm_up_codecs", prepared_already):
    cluster = SimulatedCluster(machine, settings=SETTINGS)
    cluster.start()
    used = []

    async def use():
        async with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            await admin.create_topics([NewTopic("t", 1, 3)])
        async with Producer(bootstrap_servers=cluster.bootstrap) as producer:
            await producer.send_and_wait("t", b"x")
        async with Consumer("t", bootstrap_servers=cluster.bootstrap, group_id="g") as consumer:
            await consumer.getmany(timeout_ms=500)
            await consumer.commit()
        used.append(machine.now)

    def known():
        parts = [node.parts for node in cluster.brokers.values()]
        groups = sum("g" in shard.groups for broker in parts for shard in broker.groups.shards())
        producers = sum(len(log.log.producers) for broker in parts for log in broker.replicas if log.topic == "t")
        return groups, producers

    cluster.client("user", use)
    assert machine.run(machine.now + 30, lambda: bool(used))
    counts = [known()]
    for seconds in (55, 20):
        machine.run(machine.now + seconds)
        counts.append(known())
print(json.dumps(counts))
"""


def test_groups_and_producers_expire_when_they_are_set_to() -> None:
    """Groups and producers used to expire after ten minutes, whatever the setting."""
    used, before, after = json.loads(printed_by("-c", PLAY, hash_seed="0").splitlines()[-1])
    assert used[0] == before[0] >= 1
    assert used[1] == before[1] == 3
    assert after == [0, 0]
