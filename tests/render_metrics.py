"""docs/METRICS.md, made from what nodes export: `python -m tests.render_metrics` writes it anew."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import ottla.cli.nodes.endpoint
import ottla.cli.nodes.host.page
import ottla.dataplane.metrics
import ottla.metadata_quorum.metrics
from ottla.protocol.exposition import Metric

PAGE = Path(__file__).resolve().parents[1] / "docs" / "METRICS.md"

HEAD = """\
# Metrics and health

This page lists what a node tells about itself, for people who watch a cluster. `metrics.listener` (`host:port`) gives
a node an HTTP endpoint. `ottla up` gives each node one on loopback and names it in `cluster.json`. With `--secure` it
asks for the token in `client/metrics.token`. Elsewhere than on loopback it should be secured:
[Who reads them](#who-reads-them).

| path | answer |
|---|---|
| `/metrics` | Prometheus' text format, made when asked, in slices between which clients are served |
| `/healthz` | 200 as long as the event loop turns: restart the process when no answer comes |
| `/readyz` | 200 when the node takes part in the cluster, else 503 and why |

`unix:/path` instead of `host:port` makes it a socket of that name, which whoever may open the file may read. With
`ottla broker --processes` there is [one page for all brokers of a host](OPERATIONS.md#several-brokers-on-one-host), in
which every metric has a label `broker` besides its own.

A quorum node takes part when it votes, and leads or hears a leader. A broker takes part when it follows the quorum,
is not fenced, and its replicas have been in sync since it started. A rolling update that waits for that takes no
second replica away.

Names are those that dashboards for Kafka query: of `kafka_exporter`, and of Kafka's JMX beans as the JMX exporter
writes them. Names that end in `persec` are counters all the same: ask for `rate(...)`. `deploy/grafana/ottla.json` is
a dashboard that uses them. Only the leader tells of a partition, only the coordinator of a group, and only the
quorum's leader of the cluster's counts. So sums over all nodes count everything once.

A coordinator tells the lag of a group where it has a replica of the partition. That is always so when every broker
has one. Elsewhere ask for `kafka_topic_partition_current_offset - on (topic, partition) group_right
kafka_consumergroup_current_offset`.

`python -m tests.render_metrics` makes this page, and a test compares them.

## Who reads them

Names of topics, groups and folders are among the metrics. Two settings say who reads them, and a node that listens
elsewhere than on loopback without them says so in its log.

```
metrics.listener=10.0.0.1:9494
metrics.bearer.token.file=/etc/ottla/metrics.token
metrics.ssl.keystore.location=/etc/ottla/tls/own.pem
```

- With `metrics.bearer.token.file` whoever reads `/metrics` shows a token of that file, one in a line
  (`openssl rand -hex 32`). Others get 401. `/healthz` and `/readyz` answer supervisors without a token, and `/readyz`
  keeps its reasons to itself then. A file that has changed counts at once.
- With a key `metrics.ssl...` the endpoint speaks TLS. The keys are those of a listener's TLS, with `metrics.` in front;
  keys without it do not count here. `metrics.ssl.client.auth=required` asks for a certificate of the authority in
  `metrics.ssl.truststore.location`. Certificates are renewed
  [as those of listeners](OPERATIONS.md#new-certificates-without-a-restart).

Prometheus asks with `scheme: https`, `tls_config: {ca_file: ca.pem}` and
`authorization: {credentials_file: metrics.token}`.
"""


def render() -> str:
    """The whole page."""
    return "\n".join(
        [
            HEAD,
            "## Brokers\n",
            *_table(ottla.dataplane.metrics.METRICS),
            "\n## Quorum nodes\n",
            *_table(ottla.metadata_quorum.metrics.METRICS),
            "\n## Every process\n",
            *_table(ottla.cli.nodes.endpoint.METRICS),
            "\n## The supervisor of a host's brokers\n",
            *_table(ottla.cli.nodes.host.page.METRICS),
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
