"""Calls of Kafka's command-line tools for share groups. In these calls `share` is a group that has taken all records of
the topic. The groups `queue` and `other` begin with the first record, and have taken none."""

from __future__ import annotations

from tests.programs.tool_scenes import Step, Tool

_TOOLS = "org.apache.kafka.tools"
_STRINGS = "org.apache.kafka.common.serialization.StringDeserializer"

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
        Step(
            "{at} --reset-offsets --group {share} --topic {topic} --to-offset 3 --dry-run", r"{topic}\s+0\s+3"
        ),
        Step(
            "{at} --reset-offsets --group {share} --all-topics --to-current --dry-run --export",
            "{topic},1,10",
        ),
        Step("{at} --reset-offsets --group {share} --from-file {offsets} --execute", r"{topic}\s+1\s+4"),
        Step("{at} --describe --group {share}", r"{share}\s+{topic}\s+1\s+4\s+6"),
        Step("{at} --delete-offsets --group {share} --topic {topic}", "{topic}"),
        Step("{at} --delete --group {share}", "successful"),
        Step("{at} --list", lacks="{share}"),
    ),
)

CONSOLE_SHARE_CONSUMER = Tool(
    "kafka-console-share-consumer",
    f"{_TOOLS}.consumer.ConsoleShareConsumer",
    (
        Step(
            "{at} --command-config {config} --topic {topic} --group {queue} --max-messages 20 --timeout-ms 30000 "
            "--formatter-property print.key=true --formatter-property print.delivery=true",
            r"Delivery:1\s+key 19\s+value 19",
        ),
        Step(
            "{at} --topic {topic} --group {other} --release --max-messages 20 --timeout-ms 30000 "
            f"--key-deserializer {_STRINGS} --value-deserializer {_STRINGS} --formatter-config {{formatter}}",
            "Processed a total of 20 messages",
        ),
        Step(
            "{at} --topic {topic} --group {other} --reject --reject-message-on-error --max-messages 20 "
            "--timeout-ms 30000 --enable-systest-events --command-property client.id=console "
            f"--formatter {_TOOLS}.consumer.DefaultMessageFormatter --formatter-property print.delivery=true",
            r"Delivery:2\s+value 19",
        ),
        Step("{at} --topic {topic} --group {other} --timeout-ms 2000", "Processed a total of 0 messages"),
    ),
    left_out=("--consumer-property", "--consumer-config", "--property"),
)

SHARE_CONSUMER_PERF = Tool(
    "kafka-share-consumer-perf-test",
    f"{_TOOLS}.ShareConsumerPerformance",
    (
        Step(
            "{at} --command-config {config} --topic {topic} --num-records 20 --group {queue} --timeout 20000 "
            "--print-metrics --reporting-interval 1000 --show-detailed-stats --fetch-size 1000 "
            "--socket-buffer-size 100000 --date-format HH:mm --command-property client.id=perf",
            "consumer-share-fetch-manager-metrics",
        ),
        Step(
            "{at} --topic {topic} --num-records 20 --group {other} --threads 2 --show-consumer-stats --hide-header",
            r", 20, ",
        ),
    ),
    left_out=("--consumer.config", "--messages"),
)

VERIFIABLE_SHARE_CONSUMER = Tool(
    "kafka-verifiable-share-consumer",
    f"{_TOOLS}.VerifiableShareConsumer",
    (
        Step(
            "{at} --command-config {config} --topic {topic} --group-id {new} --max-messages 20 --verbose "
            "--offset-reset-strategy earliest",
            '"name":"record_data".*"value":"value 19"',
        ),
        *(
            Step(
                f"{{at}} --topic {{topic}} --group-id {{new}}-{mode} --max-messages 20 "
                f"--acknowledgement-mode {mode} --offset-reset-strategy earliest",
                '"name":"offsets_acknowledged".*"success":true',
                lacks='"success":false',
            )
            for mode in ("sync", "async")
        ),
    ),
    left_out=("--ack-pattern",),  # test_verifiable_share_consumers.py
    alone=True,
)
SHARE_TOOLS = (SHARE_GROUPS, CONSOLE_SHARE_CONSUMER, SHARE_CONSUMER_PERF, VERIFIABLE_SHARE_CONSUMER)
