"""Scenes of the mutants in `mutants_of_offsets`."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import cast

from ottla.dataplane.groups.coordinator import GroupCoordinator
from ottla.dataplane.handlers.group_offsets import GroupOffsetHandlers
from ottla.dataplane.security.authorization.access import EVERYTHING
from ottla.dataplane.server.handler import ClientRequest
from ottla.protocol.errors import KafkaError
from ottla.protocol.messages.offsets import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from tests.dataplane.groups.test_consumer_group import Topics
from tests.dataplane.groups.test_shard import LIMITS, Clock, commit
from tests.dataplane.groups.test_transactional_offsets import commit_in
from tests.dataplane.groups.transactional_log import TransactionalLog
from tests.histories.invariants import InvariantBroken
from tests.simulation.cluster.group_members import FETCH_VERSION
from tests.simulation.cluster.hasty_consumer import RESET, begins_at
from tests.simulation.cluster.scenes import shows
from tests.simulation.cluster.scenes_of_duplicates import SCENES as SCENES


async def begun(*, elected: bool) -> dict[int, int]:
    """Ask for an offset that a transaction may still move. Return by partition where librdkafka begins."""
    log, topics = TransactionalLog(), Topics(t=1)
    coordinator = GroupCoordinator(LIMITS, Clock(), lambda: 1, lambda: topics.image.topics)
    if elected:
        coordinator.elected(0, log)
        async with asyncio.timeout(60):
            while coordinator.loading:
                await asyncio.sleep(0)
        shard = coordinator.shard_for("g")
        commit(shard, 4)
        commit_in(shard, 5)
        log.advance()
    asked = OffsetFetchRequestTopics(name="t", partition_indexes=[0])
    request = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id="g", topics=[asked])], require_stable=True
    )
    handlers = GroupOffsetHandlers(coordinator, lambda: topics.image, Clock(), 4096)
    client = cast(ClientRequest, SimpleNamespace(access=EVERYTHING, api_version=FETCH_VERSION))
    try:
        answer = await handlers.offset_fetch(client, request)
    finally:
        coordinator.close()
    return begins_at(answer.groups[0], changed=True)


@shows("unstable-offset-is-none")
def an_assignment_changes_while_a_transaction_is_open(_folder: Path) -> bool:
    return asyncio.run(begun(elected=True)) == {0: RESET}


@shows("moved-group-without-partitions")
def a_former_coordinator_is_asked(_folder: Path) -> bool:
    try:
        asyncio.run(begun(elected=False))
    except InvariantBroken:
        return True
    except KafkaError:
        pass
    return False
