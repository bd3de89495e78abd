"""The text of docs/METRICS.md, made from the metrics that nodes export; `python -m tests.render_metrics` writes the
page.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from ottla.protocol.exposition import Metric
from tests.declared_metrics import declared_metrics

PAGE = Path(__file__).resolve().parents[1] / "docs" / "METRICS.md"

HEAD = """\
# Metrics and health

This page lists the metrics of each node, for people who watch a cluster. `metrics.listener` (`host:port`) gives a node
an HTTP endpoint. `ottla up` gives each node an endpoint on loopback, and names it in `cluster.json`. With `--secure`
the endpoint asks for the token in `client/metrics.token`. An endpoint outside of loopback should be secured: [Who reads
them](#who-reads-them).

| path | answer |
|---|---|
| `/metrics` | Prometheus' text format, made on request, in slices between which the node serves clients |
| `/healthz` | 200 as long as the event loop turns: restart the process when no answer comes |
| `/readyz` | 200 when the node takes part in the cluster, else 503 and the reason |

`unix:/path` instead of `host:port` makes the endpoint a Unix socket of that path, for every user who may open the file.
With `ottla broker --processes` there is [one page for all brokers of a
host](OPERATIONS.md#several-brokers-on-one-host). Every metric on it has an additional label `broker`.

A quorum node takes part when it votes, and leads or hears a leader. A broker takes part when it follows the quorum,
is not fenced, and all its replicas have been in sync since it started. A rolling update that waits for this never takes
away a second replica.

Names are the names that dashboards for Kafka query: those of `kafka_exporter`, and those of Kafka's JMX beans as the
JMX exporter writes them. Names that end in `persec` are counters nevertheless: query `rate(...)`.
`deploy/grafana/ottla.json` is a dashboard that uses them. Only the leader of a partition reports the partition, only
the coordinator of a group reports the group, and only the quorum's leader reports the cluster's counts. So sums over
all nodes count each thing once.

A coordinator reports the lag of a group where it has a replica of the partition. It always has one if every broker has
a replica. Otherwise query `kafka_topic_partition_current_offset - on (topic, partition) group_right
kafka_consumergroup_current_offset`.

The leader of a partition reports the share groups on it, as long as a member uses the partition or holds records of it.
Until the first ShareFetch a broker reports nothing about share partitions and share sessions.
`ottla_share_partition_lag` is the number of unfinished records, as `ottla group describe` shows it. For a group without
members only the command knows it.

`python -m tests.render_metrics` makes this page, and a test compares the page with the code.

## Who reads them

The metrics contain names of topics, groups and folders. Two settings decide who reads them. A node that listens outside
of loopback without these settings says so in its log.

```
metrics.listener=10.0.0.1:9494
metrics.bearer.token.file=/etc/ottla/metrics.token
metrics.ssl.keystore.location=/etc/ottla/tls/own.pem
```

- With `metrics.bearer.token.file` a reader of `/metrics` must send a token of that file, which has one token in each
  line (`openssl rand -hex 32`). A request without a token gets 401. `/healthz` and `/readyz` answer supervisors without
  a token, and `/readyz` then leaves out its reasons. A changed file takes effect at once.
- With a key `metrics.ssl...` the endpoint speaks TLS. The keys are those of a listener's TLS, with `metrics.` in front;
  keys without this prefix have no effect on the endpoint. `metrics.ssl.client.auth=required` asks for a certificate of
  the authority in `metrics.ssl.truststore.location`. Certificates are renewed
  [like the certificates of listeners](OPERATIONS.md#new-certificates-without-a-restart).

Prometheus scrapes it with `scheme: https`, `tls_config: {ca_file: ca.pem}` and
`authorization: {credentials_file: metrics.token}`.
"""

WORKERS = """
## Workers

`Worker.metrics_text()` returns these metrics of [a worker](WORKER.md#metrics), for a program that serves them. No node
has them. `group` is the worker's group. The label `lane` has the names of keys: whoever reads the page sees them.
"""

LAKE = """
## The lake's worker

`ottla lake run --metrics-listener HOST:PORT` serves these metrics beside those of every process, and `/healthz` and
`/readyz`. [LAKE.md](LAKE.md#operation) describes the worker. `--metrics-token-file` is its
`metrics.bearer.token.file`. Files for each commit are `rate(ottla_lake_files_total[1h]) /
rate(ottla_lake_commits_total[1h])`.
"""


def render() -> str:
    """Return the text of the whole page."""
    return "\n".join(
        [
            HEAD,
            "## Brokers\n",
            *_table(declared_metrics("ottla.dataplane")),
            "\n## Quorum nodes\n",
            *_table(declared_metrics("ottla.metadata_quorum")),
            "\n## Every process\n",
            *_table(declared_metrics("ottla.cli.nodes.endpoint")),
            "\n## The supervisor of a host's brokers\n",
            *_table(declared_metrics("ottla.cli.nodes.host")),
            WORKERS,
            *_table(declared_metrics("ottla.client.worker")),
            LAKE,
            *_table(declared_metrics("ottla.lake")),
            "",
        ]
    )


def _table(metrics: Iterable[Metric]) -> Iterator[str]:
    yield "| name | kind | labels | meaning |"
    yield "|---|---|---|---|"
    for metric in metrics:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        yield f"| `{metric.name}` | {metric.kind} | {labels} | {metric.about} |"


if __name__ == "__main__":
    PAGE.write_text(render())
