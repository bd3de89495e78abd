"""Calls of Kafka's command-line tools, and their expected output: with every option that has an effect on a cluster.

Names in braces are those of `test_kafka_tools.py`: a topic with records, a group with offsets, files.
"""

from __future__ import annotations

from dataclasses import dataclass

_TOOLS = "org.apache.kafka.tools"
_GROUPS = f"{_TOOLS}.consumer.group"


@dataclass(frozen=True)
class Step:
    """A call of a tool."""

    line: str
    says: str = ""
    """Regular expression that must be found."""
    status: int = 0
    lacks: str = ""
    """Regular expression that must not be found."""
    given: str = ""
    """Text on its standard input."""


@dataclass(frozen=True)
class Tool:
    """A tool with its calls in order."""

    name: str
    main_class: str
    steps: tuple[Step, ...]
    commands: tuple[str, ...] = ()
    """Words before options, each with separate options."""
    left_out: tuple[str, ...] = ()
    """Options missing in these calls, since a cluster has no use for them, or another test covers them."""
    alone: bool = False
    """True if it needs a separate JVM, since it reads standard input, or ends its JVM."""


NOT_A_CLUSTER = ("--help", "--version")
TO_QUORUM = "--bootstrap-controller"  # quorum nodes speak a protocol of their own

TOPICS = Tool(
    "kafka-topics",
    f"{_TOOLS}.TopicCommand",
    (
        Step(
            "{at} --command-config {config} --create --topic {new} --partitions 2 --replication-factor 3 "
            "--config retention.ms=100000",
            "Created topic {new}",
        ),
        Step("{at} --create --topic {new} --partitions 2", "already exists", status=1),
        Step("{at} --create --topic {new} --if-not-exists", lacks="already exists"),
        Step("{at} --create --topic {new}-placed --replica-assignment 1:2:3,3:2:1", "Created topic"),
        Step("{at} --describe --topic {new}-placed", r"Partition: 1\s+Leader: 3\s+Replicas: 3,2,1"),
        Step("{at} --list", "{topic}"),
        Step("{at} --list --exclude-internal", "{topic}", lacks="__consumer_offsets"),
        Step("{at} --describe --topic-id={topic_id}", "Topic: {topic}"),
        Step("{at} --describe --topic {topic} --partition-size-limit-per-response 1", r"Partition: 1\s"),
        Step("{at} --describe --topics-with-overrides", r"{new}\s.*retention.ms=100000"),
        Step("{at} --describe --topic {topic} --at-min-isr-partitions", lacks="Partition:"),
        Step("{at} --describe --topic {topic} --unavailable-partitions", lacks="Partition:"),
        Step("{at} --describe --topic {topic} --under-min-isr-partitions", lacks="Partition:"),
        Step("{at} --describe --topic {topic} --under-replicated-partitions", lacks="Partition:"),
        Step("{at} --alter --topic {new} --partitions 3"),
        Step("{at} --alter --topic {new} --partitions 1", "would not be an increase|already has 3", status=1),
        Step("{at} --delete --topic {new}"),
        Step("{at} --delete --topic {new}", "does not exist", status=1),
        Step("{at} --delete --topic {new} --if-exists"),
        Step("{at} --create --topic {new}.x --config retention.ms=soon", "soon", status=1),
        Step("{at} --create --topic {new}.y --replication-factor 4", "eplication factor", status=1),
    ),
    left_out=("--delete-config",),  # kafka-configs does it
)

CONFIGS = Tool(
    "kafka-configs",
    f"{_TOOLS}.ConfigCommand",
    (
        Step("{at} --command-config {config} --alter --topic {topic} --add-config retention.ms=5000000"),
        Step("{at} --describe --topic {topic}", "retention.ms=5000000"),
        Step("{at} --describe --entity-type topics --entity-name {topic} --all", "segment.bytes=1073741824"),
        Step("{at} --alter --topic {topic} --delete-config retention.ms"),
        Step("{at} --alter --topic {topic} --add-config-file {settings}"),
        Step("{at} --describe --topic {topic}", "cleanup.policy=compact,delete"),
        Step("{at} --alter --topic {topic} --add-config retention.ms=soon", "soon", status=1),
        Step("{at} --alter --broker 1 --add-config log.cleaner.backoff.ms=14000"),
        Step("{at} --describe --broker 1", "log.cleaner.backoff.ms=14000"),
        Step("{at} --alter --broker 1 --delete-config log.cleaner.backoff.ms"),
        Step("{at} --alter --broker-defaults --add-config log.cleaner.backoff.ms=14000"),
        Step("{at} --describe --entity-type brokers --entity-default", "log.cleaner.backoff.ms=14000"),
        Step("{at} --alter --broker-defaults --delete-config log.cleaner.backoff.ms"),
        Step("{at} --describe --broker-logger 1", "root=WARN"),
        Step("{at} --alter --client {new} --add-config producer_byte_rate=1000000"),
        Step("{at} --describe --client {new}", "producer_byte_rate=1000000"),
        Step("{at} --alter --client {new} --delete-config producer_byte_rate"),
        Step("{at} --alter --client-defaults --add-config consumer_byte_rate=1000000"),
        Step("{at} --describe --client-defaults", "consumer_byte_rate=1000000"),
        Step("{at} --alter --client-defaults --delete-config consumer_byte_rate"),
        Step("{at} --alter --user {new} --add-config request_percentage=200"),
        Step("{at} --describe --user {new}", "request_percentage=200"),
        Step("{at} --alter --user {new} --delete-config request_percentage"),
        Step("{at} --alter --user-defaults --add-config request_percentage=200"),
        Step("{at} --describe --user-defaults", "request_percentage=200"),
        Step("{at} --alter --user-defaults --delete-config request_percentage"),
        Step("{at} --alter --ip 10.1.2.3 --add-config connection_creation_rate=50"),
        Step("{at} --describe --ip 10.1.2.3", "connection_creation_rate=50"),
        Step("{at} --alter --ip 10.1.2.3 --delete-config connection_creation_rate"),
        Step("{at} --alter --ip-defaults --add-config connection_creation_rate=5000"),
        Step("{at} --describe --ip-defaults", "connection_creation_rate=5000"),
        Step("{at} --alter --ip-defaults --delete-config connection_creation_rate"),
        Step("{at} --alter --group {group} --add-config consumer.session.timeout.ms=50000"),
        Step("{at} --describe --group {group}", "consumer.session.timeout.ms=50000"),
        Step("{at} --alter --group {group} --delete-config consumer.session.timeout.ms"),
        Step("{at} --alter --client-metrics {new} --add-config interval.ms=60000"),
        Step("{at} --describe --client-metrics {new}", "interval.ms=60000"),
        Step("{at} --alter --client-metrics {new} --delete-config interval.ms"),
    ),
    left_out=(TO_QUORUM, "--force"),  # --force is of no use to a cluster
)

CONSUMER_GROUPS = Tool(
    "kafka-consumer-groups",
    f"{_GROUPS}.ConsumerGroupCommand",
    (
        Step("{at} --command-config {config} --list", "{group}"),
        Step("{at} --list --state", r"{member}\s.*Stable"),
        Step("{at} --list --state Empty", "{group}", lacks="{member}"),
        Step("{at} --list --type classic", "{group}"),
        Step("{at} --list --type consumer", lacks="{group}"),
        Step(
            "{at} --describe --group {group} --offsets --timeout 20000", r"{group}\s+{topic}\s+0\s+\d+\s+\d+"
        ),
        Step("{at} --describe --group {group} --offsets --verbose", r"{group}\s+{topic}\s+1\s"),
        Step("{at} --describe --all-groups", r"{group}\s+{topic}"),
        Step("{at} --describe --group {member} --members --verbose", r"{topic}"),
        Step("{at} --describe --group {member} --state", "Stable"),
        Step("--validate-regex [a-z]+", "valid"),
        Step(
            "{at} --reset-offsets --group {member} --topic {topic} --to-earliest --execute",
            "can only be reset",
        ),
        Step(
            "{at} --reset-offsets --group {group} --topic {topic} --to-earliest --dry-run", r"{topic}\s+0\s+0"
        ),
        Step(
            "{at} --reset-offsets --group {group} --topic {topic} --to-latest --execute", r"{topic}\s+0\s+10"
        ),
        Step(
            "{at} --reset-offsets --group {group} --topic {topic}:1 --to-offset 3 --execute",
            r"{topic}\s+1\s+3",
        ),
        Step(
            "{at} --reset-offsets --group {group} --topic {topic}:1 --shift-by -2 --execute",
            r"{topic}\s+1\s+1",
        ),
        Step(
            "{at} --reset-offsets --group {group} --topic {topic} --to-datetime 2020-01-01T00:00:00.000 --execute",
            r"{topic}\s+0\s+0",
        ),
        Step(
            "{at} --reset-offsets --group {group} --all-topics --by-duration P1D --execute",
            r"{topic}\s+1\s+0",
        ),
        Step("{at} --reset-offsets --group {group} --all-topics --to-current --export", "{topic},0,0"),
        Step("{at} --reset-offsets --group {group} --from-file {offsets} --execute", r"{topic}\s+0\s+4"),
        Step("{at} --delete-offsets --group {group} --topic {topic}:0", "Successful"),
        Step("{at} --delete --group {member}", "not empty"),
        Step("{at} --delete --group {group}", "was successful"),
        Step("{at} --delete --group {group}", "GroupIdNotFoundException"),
    ),
)

GROUPS = Tool(
    "kafka-groups",
    f"{_TOOLS}.GroupsCommand",
    (
        Step("{at} --command-config {config} --list", r"{group}\s+Classic"),
        Step("{at} --list --consumer", "{group}"),
        Step("{at} --list --group-type classic", "{group}"),
        Step("{at} --list --protocol consumer", "{member}"),
        Step("{at} --list --share", lacks="{group}"),
        Step("{at} --list --streams", lacks="{group}"),
    ),
)

TRANSACTIONS = Tool(
    "kafka-transactions",
    f"{_TOOLS}.TransactionsCommand",
    (
        Step("--command-config {config} {at} list", r"{transaction}\s.*Ongoing"),
        Step("{at} list --duration-filter 0 --transactional-id-pattern {transaction}.*", "{transaction}"),
        Step("{at} list --transactional-id-pattern no", lacks="{transaction}"),
        Step("{at} describe --transactional-id {transaction}", r"Ongoing\s.*{topic}-1"),
        Step("{at} describe --transactional-id {new}", "could not be found", status=1),
        Step("{at} describe-producers --topic {topic} --partition 1", r"\n\d+\s+0\s"),
        Step("{at} describe-producers --topic {topic} --partition 1 --broker-id 1", r"\n\d+\s+0\s"),
        Step("{at} find-hanging --topic {topic} --partition 1 --max-transaction-timeout 0", lacks="{topic}"),
        Step("{at} find-hanging --broker-id 1", lacks="{topic}"),
        # Markers are written on connections with the cluster secret only: `ottla txn abort-hanging`.
        Step(
            "{at} abort --topic {topic} --partition 1 --start-offset {begun}",
            "CLUSTER_AUTHOR|uthoriz",
            status=1,
        ),
        Step(
            "{at} abort --topic {topic} --partition 1 --producer-id 0 --producer-epoch 0 --coordinator-epoch 0",
            "uthoriz",
            status=1,
        ),
        Step("{at} forceTerminateTransaction --transactionalId {transaction}"),
        Step("{at} describe --transactional-id {transaction}", "Empty|CompleteAbort", lacks="Ongoing"),
    ),
    commands=("list", "describe", "describe-producers", "find-hanging", "abort", "forceTerminateTransaction"),
)

ELECTION = Tool(
    "kafka-leader-election",
    f"{_TOOLS}.LeaderElectionCommand",
    (
        Step(
            "{at} --command-config {config} --election-type preferred --topic {topic} --partition 0",
            "already elected|Successfully completed",
        ),
        Step("{at} --election-type preferred --path-to-json-file {partitions}", "{topic}-1"),
        Step("{at} --admin.config {config} --election-type preferred --all-topic-partitions", lacks="Error"),
        Step("{at} --election-type unclean --topic {topic} --partition 1", "already elected|Valid replica"),
        Step(
            "{at} --election-type preferred --topic {new} --partition 0",
            "nknownTopic|does not exist",
            status=1,
        ),
    ),
)

REASSIGNMENT = Tool(
    "kafka-reassign-partitions",
    f"{_TOOLS}.reassign.ReassignPartitionsCommand",
    (
        Step(
            "{at} --command-config {config} --generate --topics-to-move-json-file {topics} --broker-list 1,2,3 "
            "--disable-rack-aware",
            "Proposed partition reassignment",
        ),
        Step(
            "{at} --execute --reassignment-json-file {moves} --throttle 100000000 --timeout 20000 "
            "--replica-alter-log-dirs-throttle 100000000",
            "Successfully started",
        ),
        Step("{at} --list", "reassignment|Current"),
        Step(
            "{at} --execute --reassignment-json-file {moves} --additional --disallow-replication-factor-change",
            "Successfully started",
        ),
        Step("{at} --verify --reassignment-json-file {moves} --preserve-throttles", "Status of partition"),
        Step("{at} --verify --reassignment-json-file {moves}", "is completed|in progress"),
        Step("{at} --cancel --reassignment-json-file {moves}"),
    ),
    left_out=(TO_QUORUM,),
)

LOG_DIRS = Tool(
    "kafka-log-dirs",
    f"{_TOOLS}.LogDirsCommand",
    (
        Step("{at} --command-config {config} --describe", '"partition":"{topic}-0"'),
        Step("{at} --describe --broker-list 1 --topic-list {topic}", '"broker":1,', lacks='"broker":2'),
    ),
)

DELETE_RECORDS = Tool(
    "kafka-delete-records",
    f"{_TOOLS}.DeleteRecordsCommand",
    (
        Step(
            "{at} --command-config {config} --offset-json-file {cut}",
            r"partition: {topic}-0\s+low_watermark: 5",
        ),
    ),
)

FEATURES = Tool(
    "kafka-features",
    f"{_TOOLS}.FeatureCommand",
    (
        Step(
            "{at} --command-config {config} describe", r"Feature: group.version\s.*FinalizedVersionLevel: 1"
        ),
        Step("{at} describe --node-id 1", "Feature: metadata.version"),
        Step("{at} downgrade --feature group.version=0 --dry-run", "can be|would be"),
        Step("{at} downgrade --feature group.version=0 --unsafe", "was downgraded to 0"),
        Step("{at} upgrade --feature group.version=1 --dry-run", "can be upgraded to 1"),
        Step("{at} upgrade --feature group.version=1", "was upgraded to 1"),
        Step("{at} upgrade --feature group.version=99", "99", status=1),
        Step("{at} upgrade --release-version 9.9", "9.9", status=1),
        Step("{at} upgrade --metadata 3.3-IV0", status=1),
        Step("{at} downgrade --metadata 3.3-IV3 --dry-run", status=1),
        Step("{at} downgrade --release-version 3.3-IV3 --dry-run", status=1),
        Step("{at} disable --feature group.version --dry-run --unsafe", "can be disabled"),
        Step("{at} version-mapping --release-version 4.0-IV3", "metadata.version=25"),
        Step("{at} feature-dependencies --feature group.version=1", "no dependencies"),
    ),
    commands=("describe", "upgrade", "downgrade", "disable", "version-mapping", "feature-dependencies"),
    left_out=(TO_QUORUM,),
)

OFFSETS = Tool(
    "kafka-get-offsets",
    f"{_TOOLS}.GetOffsetShell",
    (
        Step("{at} --command-config {config} --topic {topic} --partitions 0,1", "{topic}:0:10"),
        Step("{at} --topic-partitions {topic}:1", "{topic}:1:10", lacks="{topic}:0"),
        Step("{at} --topic {topic} --time earliest", "{topic}:0:0"),
        Step("{at} --topic {topic} --time max-timestamp", r"{topic}:0:\d"),
        Step("{at} --topic {topic} --time 1000", "{topic}:0:0"),
        Step("{at} --topic {topic} --time earliest-local", "{topic}:0:0"),
        Step("{at} --topic {topic} --time latest-tiered", lacks="Exception"),
        Step("{at} --exclude-internal-topics", "{topic}:0:10", lacks="__consumer_offsets"),
    ),
)

VERIFIABLE_PRODUCER = Tool(
    "kafka-verifiable-producer",
    f"{_TOOLS}.VerifiableProducer",
    (
        Step(
            "{at} --command-config {config} --topic {topic} --max-messages 20 --throughput 1000 --acks -1 "
            "--message-create-time 1700000000000 --value-prefix 7 --repeating-keys 3",
            '"sent":20,"acked":20',
        ),
    ),
    left_out=("--producer.config",),  # the former name of --command-config
    alone=True,
)

VERIFIABLE_CONSUMER = Tool(
    "kafka-verifiable-consumer",
    f"{_TOOLS}.VerifiableConsumer",
    (
        Step(
            "{at} --command-config {config} --topic {topic} --group-id {new} --max-messages 20 --verbose "
            "--reset-policy earliest --session-timeout 10000 --group-instance-id one --enable-autocommit "
            "--close-timeout 5000 "
            "--assignment-strategy org.apache.kafka.clients.consumer.RangeAssignor",
            '"name":"record_data".*"value":"value 19"',
        ),
        Step(
            "{at} --topic {topic} --group-id {new}-next --group-protocol consumer --group-remote-assignor uniform "
            "--max-messages 20 --reset-policy earliest",
            '"name":"records_consumed"',
        ),
    ),
    left_out=("--consumer.config",),
    alone=True,
)

PRODUCER_PERF = Tool(
    "kafka-producer-perf-test",
    f"{_TOOLS}.ProducerPerformance",
    (
        Step(
            "{at} --command-config {config} --topic {topic} --num-records 500 --record-size 100 --throughput -1 "
            "--print-metrics --warmup-records 100 --reporting-interval 1000 --command-property linger.ms=1 acks=all",
            "500 records sent",
        ),
        Step(
            "{at} --topic {topic} --num-records 50 --record-size 10 --throughput -1 --key-distribution random "
            "--record-key-range 7 --random-seed 3",
            "50 records sent",
        ),
        Step(
            "{at} --topic {topic} --num-records 50 --payload-file {lines} --payload-delimiter | --throughput -1",
            "50 records sent",
        ),
        Step(
            "{at} --topic {topic} --num-records 50 --payload-monotonic --throughput 1000 --transactional-id {new} "
            "--transaction-duration-ms 10",
            "50 records sent",
        ),
    ),
    left_out=("--producer.config", "--producer-props"),
)

CONSUMER_PERF = Tool(
    "kafka-consumer-perf-test",
    f"{_TOOLS}.ConsumerPerformance",
    (
        Step(
            "{at} --command-config {config} --topic {topic} --num-records 20 --group {new} --timeout 20000 "
            "--print-metrics --reporting-interval 1000 --show-detailed-stats --fetch-size 1000 "
            "--socket-buffer-size 100000 --date-format HH:mm --command-property client.id=perf",
            "fetch-manager-metrics",
        ),
        Step("{at} --include {topic}.* --num-records 20 --group {new}-2 --hide-header", r", 20, "),
        Step("{at} --topic {topic} --from-latest --num-records 1 --timeout 500 --group {new}-3"),
    ),
    left_out=("--consumer.config", "--messages"),
)

LATENCY = Tool(
    "kafka-e2e-latency",
    f"{_TOOLS}.EndToEndLatency",
    (
        Step(
            "{at} --topic {topic} --num-records 20 --producer-acks all --record-size 50 --command-config {config} "
            "--num-headers 2 --record-header-key-size 5 --record-header-size 6 --record-key-size 7",
            "Percentiles: 50th",
        ),
    ),
)

VERSIONS = Tool(
    "kafka-broker-api-versions",
    f"{_TOOLS}.BrokerApiVersionsCommand",
    (Step("{at} --command-config {config}", r"ConsumerGroupHeartbeat\(68\): 0 to 1 \[usable: 1\]"),),
)

CLIENT_METRICS = Tool(
    "kafka-client-metrics",
    f"{_TOOLS}.ClientMetricsCommand",
    (
        Step(
            "{at} --command-config {config} --alter --name {new} --metrics org.apache.kafka. --interval 60000 "
            "--match client_id=one",
            "Altered client metrics config for {new}",
        ),
        Step("{at} --describe --name {new}", r"match=client_id=one|match=\[client_id=one\]"),
        Step("{at} --describe", "{new}"),
        Step("{at} --alter --generate-name --interval 60000", "Altered client metrics config for"),
        Step("{at} --list", "{new}"),
        Step("{at} --delete --name {new}"),
        Step("{at} --list", lacks="{new}"),
    ),
)

QUORUM = Tool(
    "kafka-metadata-quorum",
    f"{_TOOLS}.MetadataQuorumCommand",
    (
        Step("{at} --command-config {config} describe --status", r"LeaderId:\s+101"),
        Step("{at} describe --replication", r"101\s.*Leader"),
        Step("{at} describe --replication --human-readable", r"ms ago"),
        # The voters are fixed by controller.quorum.voters.
        Step(
            "{at} remove-controller --controller-id 101 --controller-directory-id={topic_id}",
            "does not support REMOVE_RAFT_VOTER",
            status=1,
        ),
        Step(
            "{at} remove-controller --controller-id 101 --controller-directory-id={topic_id} --dry-run",
            "DRY RUN",
        ),
        Step(
            "{at} remove-controller --controller-id 101 --controller-directory-id={topic_id} --unregister --dry-run",
            "DRY RUN of unregistering",
        ),
        Step("{at} --command-config {node} add-controller --dry-run", "process.roles", status=1),
    ),
    commands=("describe", "add-controller", "remove-controller"),
    left_out=(TO_QUORUM,),
)

CLUSTER = Tool(
    "kafka-cluster",
    f"{_TOOLS}.ClusterTool",
    (
        Step("cluster-id {at} --command-config {config}", "Cluster ID: "),
        Step("list-endpoints {at} --config {config}", r"127.0.0.1"),
        Step("list-endpoints {at} --include-fenced-brokers", r"unfenced"),
        Step("unregister {at} --id 77", "77", status=1),
        Step("unregister-controller {at} --id 101", "does not support the controller unregistration API"),
        Step("api-versions {at}", r"ShareFetch\(78\): 1 to 2 \[usable: 2\]"),
    ),
    commands=("cluster-id", "list-endpoints", "unregister", "unregister-controller", "api-versions"),
    left_out=(TO_QUORUM,),
)

RESETTER = Tool(
    "kafka-streams-application-reset",
    f"{_TOOLS}.StreamsResetter",
    (
        Step(
            "{at} --command-config {config} --application-id {group} --input-topics {topic} --to-earliest --dry-run",
            r"{topic}, Partition: 0, Offset: 0|{topic}",
        ),
        Step("{at} --application-id {group} --input-topics {topic} --to-latest", "{topic}"),
        Step("{at} --application-id {group} --input-topics {topic} --to-offset 3 --force", "{topic}"),
        Step("{at} --application-id {group} --input-topics {topic} --shift-by -1", "{topic}"),
        Step("{at} --application-id {group} --input-topics {topic} --by-duration P1D", "{topic}"),
        Step(
            "{at} --application-id {group} --input-topics {topic} --to-datetime 2020-01-01T00:00:00.000",
            "{topic}",
        ),
        Step("{at} --application-id {group} --input-topics {topic} --from-file {offsets}", "{topic}"),
        Step("{at} --application-id {group} --intermediate-topics {topic}", "{topic}"),
    ),
    left_out=("--config-file", "--internal-topics"),  # topics of a real application
)

CONSOLE_PRODUCER = Tool(
    "kafka-console-producer",
    f"{_TOOLS}.ConsoleProducer",
    (
        Step(
            "{at} --command-config {config} --topic {topic} --reader-property parse.key=true "
            "--reader-property key.separator=: --compression-codec zstd --batch-size 1000 --command-property acks=all "
            "--max-block-ms 30000 --max-memory-bytes 1000000 --max-partition-memory-bytes 10000 "
            "--message-send-max-retries 3 --metadata-expiry-ms 30000 --request-required-acks all "
            "--request-timeout-ms 20000 --retry-backoff-ms 100 --socket-buffer-size 100000 --timeout 500",
            lacks="ERROR",
            given="one:1\ntwo:2\n",
        ),
        Step("{at} --topic {topic} --sync --reader-config {reader}", lacks="ERROR", given="three\n"),
    ),
    left_out=("--line-reader", "--producer-property", "--producer.config", "--property"),
    alone=True,
)

CONSOLE_CONSUMER = Tool(
    "kafka-console-consumer",
    f"{_TOOLS}.consumer.ConsoleConsumer",
    (
        Step(
            "{at} --command-config {config} --topic {topic} --from-beginning --max-messages 20 --group {new} "
            "--formatter-property print.key=true --formatter-property print.partition=true --timeout-ms 30000",
            r"Partition:1\s+key 19\s+value 19",
        ),
        Step(
            "{at} --topic {topic} --partition 1 --offset 8 --max-messages 2 --isolation-level read_committed "
            "--key-deserializer org.apache.kafka.common.serialization.StringDeserializer "
            "--value-deserializer org.apache.kafka.common.serialization.StringDeserializer "
            "--formatter-config {formatter} --skip-message-on-error",
            r"Offset:9\s+value 19",
        ),
        Step(
            "{at} --include {topic}.* --from-beginning --max-messages 20 --enable-systest-events "
            "--command-property client.id=console",
            "Processed a total of 20 messages",
        ),
        Step(
            "{at} --topic __consumer_offsets --from-beginning --timeout-ms 5000 "
            f"--formatter {_TOOLS}.consumer.OffsetsMessageFormatter",
            '"group":"',
        ),
    ),
    left_out=("--consumer-property", "--consumer.config", "--property"),
)

NOT_SUPPORTED = (
    Tool(
        "kafka-streams-groups",
        f"{_TOOLS}.streams.StreamsGroupCommand",
        (Step("{at} --describe --group {new}", "does not support STREAMS_GROUP_DESCRIBE", status=1),),
    ),
)
"""Tools of missing features, which report this."""

SUPPORTED = (
    TOPICS,
    CONFIGS,
    CONSUMER_GROUPS,
    GROUPS,
    TRANSACTIONS,
    ELECTION,
    REASSIGNMENT,
    LOG_DIRS,
    DELETE_RECORDS,
    FEATURES,
    OFFSETS,
    VERIFIABLE_PRODUCER,
    VERIFIABLE_CONSUMER,
    PRODUCER_PERF,
    CONSUMER_PERF,
    LATENCY,
    VERSIONS,
    CLIENT_METRICS,
    QUORUM,
    CLUSTER,
    RESETTER,
    CONSOLE_PRODUCER,
    CONSOLE_CONSUMER,
)
