"""Kafka's command-line tools for share groups, each with every option that has an effect on a cluster."""

from __future__ import annotations

import time
from collections.abc import Mapping

import pytest
from confluent_kafka import ShareConsumer

from tests import java
from tests.cluster import RunningCluster
from tests.integration.share_groups import from_the_beginning
from tests.programs.share_tool_scenes import SHARE_TOOLS
from tests.programs.test_kafka_tools import NOT_A_CLUSTER, RECORDS, cluster, found_wrong, names, options
from tests.programs.tool_scenes import Tool

__all__ = ["cluster", "names"]
pytestmark = [pytest.mark.java, java.needs_java, pytest.mark.timeout(600)]
TAKEN_S = 60.0


@pytest.fixture
def groups(cluster: RunningCluster, names: dict[str, str]) -> dict[str, str]:
    """Return names, with share groups that begin with the first record. One of them has taken all records."""
    found = names | {
        name: from_the_beginning(cluster.bootstrap, f"{name}-of-{names['group']}")
        for name in ("share", "queue", "other")
    }
    consumer = ShareConsumer({"bootstrap.servers": cluster.bootstrap, "group.id": found["share"]})
    consumer.subscribe([found["topic"]])
    taken, deadline = 0, time.monotonic() + TAKEN_S
    while taken < 2 * RECORDS:
        assert time.monotonic() < deadline, f"{taken} records were taken"
        taken += len(consumer.poll(0.5) or ())
    consumer.commit_sync()
    consumer.close()
    return found


@pytest.mark.parametrize("tool", SHARE_TOOLS, ids=lambda tool: tool.name)
def test_every_option(tool: Tool, tools: java.Tools, groups: Mapping[str, str]) -> None:
    found = [found_wrong(tool, step, tools, groups) for step in tool.steps]
    problems = [problem for problem in found if problem]
    assert problems == [], "\n\n".join(problems)
    words = " ".join(step.line for step in tool.steps).replace("{at}", "--bootstrap-server").split()
    used = {word.partition("=")[0] for word in words}
    assert options(tool) - used - set(tool.left_out) - set(NOT_A_CLUSTER) == set()
