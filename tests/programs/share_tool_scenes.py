"""Calls of Kafka's command-line tools for share groups. In these calls `share` is a group that has taken all records of
the topic."""

from __future__ import annotations

from tests.programs.tool_scenes import Step, Tool

_TOOLS = "org.apache.kafka.tools"

SHARE_GROUPS = Tool(
    "kafka-share-groups",
    f"{_TOOLS}.consumer.group.ShareGroupCommand",
    (
        Step("{at} --list", "{share}"),
        Step("{at} --list --state", r"{share}\s+Empty"),
        Step(
            "{at} --describe --group {share} --offsets --verbose --timeout 20000 --command-config {config}",
            r"{share}\s+{topic}\s+0\s+\S+\s+10\s+0",
        ),
        Step("{at} --describe --group {share} --state", "Empty"),
        Step("{at} --describe --all-groups --members", "has no active members"),
        Step(
            "{at} --reset-offsets --group {share} --topic {topic} --to-earliest --dry-run",
            r"{topic}\s+0\s+0",
        ),
        Step("{at} --reset-offsets --group {share} --all-topics --to-latest --execute", r"{topic}\s+0\s+10"),
        Step(
            "{at} --reset-offsets --group {share} --topic {topic}:0 --to-datetime 2020-01-01T00:00:00.000 --execute",
            r"{topic}\s+0\s+0",
        ),
        Step("{at} --describe --group {share}", r"{share}\s+{topic}\s+0\s+0\s+10"),
        Step("{at} --delete-offsets --group {share} --topic {topic}", "{topic}"),
        Step("{at} --delete --group {share}", "successful"),
        Step("{at} --list", lacks="{share}"),
    ),
)
SHARE_TOOLS = (SHARE_GROUPS,)
