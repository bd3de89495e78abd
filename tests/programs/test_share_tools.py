"""Kafka's command-line tools for share groups, each with every option that has an effect on a cluster."""

from __future__ import annotations

import time
from collections.abc import Mapping

import pytest
from confluent_kafka import ShareConsumer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from tests import java
from tests.cluster import RunningCluster
from tests.programs.share_tool_scenes import SHARE_TOOLS
from tests.programs.test_kafka_tools import NOT_A_CLUSTER, RECORDS, cluster, found_wrong, names, options
from tests.programs.tool_scenes import Tool

__all__ = ["cluster", "names"]
pytestmark = [pytest.mark.java, java.needs_java, pytest.mark.timeout(600)]
TAKEN_S = 60.0


@pytest.fixture
def groups(cluster: RunningCluster, names: dict[str, str]) -> dict[str, str]:
    """Return names, with the name of a share group that has taken all records."""
    found = names | {"share": f"taken-{names['group']}"}
    _begin_at_first(cluster, found["share"])
    consumer = ShareConsumer({"bootstrap.servers": cluster.bootstrap, "group.id": found["share"]})
    consumer.subscribe([found["topic"]])
    taken, deadline = 0, time.monotonic() + TAKEN_S
    while taken < 2 * RECORDS:
        assert time.monotonic() < deadline, f"{taken} records were taken"
        taken += len(consumer.poll(0.5) or ())
    consumer.commit_sync()
    consumer.close()
    return found


def _begin_at_first(cluster: RunningCluster, group: str) -> None:
    entry = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=[entry])
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(30)


@pytest.mark.parametrize("tool", SHARE_TOOLS, ids=lambda tool: tool.name)
def test_every_option(tool: Tool, tools: java.Tools, groups: Mapping[str, str]) -> None:
    found = [found_wrong(tool, step, tools, groups) for step in tool.steps]
    problems = [problem for problem in found if problem]
    assert problems == [], "\n\n".join(problems)
    words = " ".join(step.line for step in tool.steps).replace("{at}", "--bootstrap-server").split()
    used = {word.partition("=")[0] for word in words}
    assert options(tool) - used - set(tool.left_out) - set(NOT_A_CLUSTER) == set()
