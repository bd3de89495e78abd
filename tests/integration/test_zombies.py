"""A leader that stops for longer than its session and comes back acknowledges none of its pending records."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.protocol.errors import ErrorCode
from tests.cluster import running_cluster, wait_for, wait_until
from tests.integration.history import (
    SMALL_CLUSTER,
    Load,
    make_topic,
    read_all,
    wait_identical_replicas,
)
from tests.integration.raw_producer import RawProducer

pytestmark = pytest.mark.cluster

TOPIC = "haunted"


@pytest.mark.parametrize("min_in_sync", [1, 2])
def test_a_leader_that_slept_past_its_session(tmp_path: Path, min_in_sync: int) -> None:
    settings = SMALL_CLUSTER | {"broker.session.timeout.ms": "1000"}
    with running_cluster(tmp_path, quorum=1, settings=settings) as cluster:
        make_topic(cluster.bootstrap, TOPIC, 1, min_insync_replicas=min_in_sync)
        zombie = cluster.broker(wait_for(lambda: cluster.leader(TOPIC, 0), "a leader"))
        strict, lax = RawProducer(zombie.port, TOPIC, -1), RawProducer(zombie.port, TOPIC, 1)
        with Load(cluster.bootstrap, TOPIC, settings={"socket.timeout.ms": 1_500}) as load:
            strict.send(b"zombie:0")
            assert strict.answer()[0] == ErrorCode.NONE
            load.wait_acknowledged(300)
            zombie.pause()
            # These lie in the socket of the process that sleeps, and are its to answer when it wakes up.
            strict.send(b"zombie:1")
            lax.send(b"zombie:2")
            wait_until(lambda: cluster.leader(TOPIC, 0) not in (None, zombie.id), "another leader")
            load.wait_acknowledged(300)
            zombie.resume()
            assert strict.answer()[0] != ErrorCode.NONE
            lax.answer()  # With acks=1 either is right; the record is gone.
            load.wait_acknowledged(300)
            cluster.wait_until_in_sync(TOPIC)
            strict.send(b"zombie:3")
            assert strict.answer()[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER
        strict.close()
        lax.close()
        assert load.failed == []
        read = read_all(cluster.bootstrap, TOPIC)
        own = [record for record in read if not record.value.startswith(b"zombie")]
        load.check(own)
        assert [record.value for record in read if record.value.startswith(b"zombie")] == [b"zombie:0"]
        wait_identical_replicas(cluster, TOPIC, 1)
