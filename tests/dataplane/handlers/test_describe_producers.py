"""DescribeProducers: what a replica remembers of producers, however many there are."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import cast

from ottla.dataplane.handlers.describe_producers import DescribeProducersHandlers
from ottla.dataplane.log import LogConfig, PartitionLog
from ottla.dataplane.replication.replicas.replicas import Replicas
from ottla.dataplane.security.authorization.access import EVERYTHING
from ottla.dataplane.server import ClientRequest
from ottla.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from tests.dataplane.log.batches import make_batch

NOW = 1_700_000_000_000
PRODUCERS = 9_000


async def test_others_have_turns_while_many_producers_of_a_partition_are_told(tmp_path: Path) -> None:
    log = PartitionLog.open(tmp_path / "t-0", LogConfig(), clean_shutdown=True, recovery_point=0, now_ms=NOW)
    for number in range(PRODUCERS):
        batch = make_batch(1, b"v", timestamp=NOW, producer=(number, 3, 0))
        log.produced.append(memoryview(batch), 0, NOW)
    replicas = SimpleNamespace(get=lambda topic, index: SimpleNamespace(log=log))
    handlers = DescribeProducersHandlers(cast(Replicas, replicas))
    request = cast(ClientRequest, SimpleNamespace(access=EVERYTHING))
    message = DescribeProducersRequest(topics=[TopicRequest(name="t", partition_indexes=[0])])
    asked = asyncio.create_task(handlers.describe(request, message))
    turns = 0
    while not asked.done():
        await asyncio.sleep(0)
        turns += 1
    (partition,) = asked.result().topics[0].partitions
    assert [(producer.producer_id, producer.producer_epoch) for producer in partition.active_producers] == [
        (number, 3) for number in range(PRODUCERS)
    ]
    assert turns > 4
    log.close(clean=False)
