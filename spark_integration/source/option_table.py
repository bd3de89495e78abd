"""The options of the source, each with its type, default, unit and meaning."""

from __future__ import annotations

from ..options import OptionRow, Queries

_BY_PARTITION = '`{"orders": {"0": 1767225600000}}`'

OPTIONS = (
    OptionRow(
        "subscribe", "TOPIC,TOPIC", "", "Topics to read. Exactly one of the first three options is required."
    ),
    OptionRow(
        "subscribePattern",
        "regular expression",
        "",
        "Topics to read: those whose whole name matches (Python's `re`). Topics that are internal to the cluster are "
        "left out.",
    ),
    OptionRow("assign", "JSON", "", 'Partitions to read: `{"orders": [0, 1]}`.'),
    OptionRow(
        "startingOffsets",
        "earliest, latest or JSON",
        "",
        'Place to begin. JSON names every partition: `{"orders": {"0": 23, "1": -2}}`, where -2 is earliest and -1 '
        "latest. Default: latest for a stream, earliest for a batch query. It has effect for a new query alone; later "
        "partitions are read from their beginning.",
    ),
    OptionRow(
        "startingTimestamp",
        "whole number",
        "",
        "Time to begin at, since 1970: reading begins at the first record that is not older.",
        unit="ms",
    ),
    OptionRow(
        "startingOffsetsByTimestamp",
        "JSON",
        "",
        f"The same time for each partition: {_BY_PARTITION}.",
        unit="ms",
    ),
    OptionRow(
        "startingOffsetsByTimestampStrategy",
        "error or latest",
        "error",
        "Reaction if no record is as recent as the time to begin at: end the query, or begin at the end.",
    ),
    OptionRow(
        "endingOffsets",
        "latest or JSON",
        "latest",
        "Place to end, as in `startingOffsets`.",
        queries=Queries.BATCH,
    ),
    OptionRow(
        "endingTimestamp",
        "whole number",
        "",
        "Time to end at, as in `startingTimestamp`.",
        unit="ms",
        queries=Queries.BATCH,
    ),
    OptionRow(
        "endingOffsetsByTimestamp",
        "JSON",
        "",
        f"The same time for each partition: {_BY_PARTITION}.",
        unit="ms",
        queries=Queries.BATCH,
    ),
    OptionRow(
        "isolation",
        "atomic, read_committed or read_uncommitted",
        "",
        "With `atomic` no micro-batch has a part of a transaction. Default: `atomic` where the cluster has cuts, else "
        "`read_committed`. `kafka.isolation.level` sets the latter two as well.",
    ),
    OptionRow(
        "maxOffsetsPerTrigger",
        "whole number",
        "",
        "Largest micro-batch, shared by the partitions in proportion to their waiting records. A larger transaction is "
        "taken whole, and alone. Default: no limit.",
        unit="offsets",
        queries=Queries.STREAM,
    ),
    OptionRow(
        "minOffsetsPerTrigger",
        "whole number",
        "",
        "Smallest micro-batch, for which the query waits up to `maxTriggerDelay`. It has no effect with "
        "Trigger.AvailableNow. Default: no waiting.",
        unit="offsets",
        queries=Queries.STREAM,
    ),
    OptionRow(
        "maxTriggerDelay",
        "time such as 30s, 15m or 500ms",
        "15m",
        "Longest wait for `minOffsetsPerTrigger`.",
        queries=Queries.STREAM,
    ),
    OptionRow(
        "minPartitions",
        "whole number",
        "",
        "Smallest number of tasks; large partitions are split. Default: a task for each partition.",
        unit="tasks",
    ),
    OptionRow(
        "maxRecordsPerPartition",
        "whole number",
        "",
        "Largest range of a task; larger ranges are split. Default: no limit.",
        unit="offsets",
    ),
    OptionRow(
        "failOnDataLoss",
        "true or false",
        "true",
        "Whether lost data ends the query; otherwise the query warns and goes on. Data is lost if a topic or partition "
        "is deleted, a topic is made anew, offsets are gone, or a batch cannot be read.",
    ),
    OptionRow("includeHeaders", "true or false", "false", "Whether rows have the column `headers`."),
    OptionRow(
        "largeMessageStore",
        "URL",
        "",
        "Object store of large values, the `large_message_store` of the producers. Executors reach it with the "
        "credentials of their environment. Default: a row has the reference to such a value.",
    ),
    OptionRow(
        "largeMessageMaxBytes",
        "whole number",
        str(64 * 1024 * 1024),
        "Largest value that is fetched from the store. A larger value counts as lost data.",
        unit="bytes",
    ),
    OptionRow(
        "progressGroup",
        "name of a group",
        "",
        "Consumer group whose offsets follow the query, for tools that show lag. The group must have no members.",
        queries=Queries.STREAM,
    ),
)
