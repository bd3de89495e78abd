"""The overview: the health of the cluster, its traffic per second, and the newest events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from math import inf
from typing import Final

from ....client.connections.metadata import NO_LEADER, PartitionInfo
from ....client.records import TopicPartition
from ...area import Rendered, Visit
from ...bounds import ROWS_MAX
from ...charts import SPAN, SPANS, Chart, Series, draw
from ...formats import UNKNOWN, byte_rate, count, milliseconds, numbers, rate
from ...live.counters import Rates, TopicTraffic
from ...live.event_lines import EventLine, event_lines
from ...live.events import Event
from ...live.node_readings import CommitReading
from ...live.sampler import COMMIT_MS, LEADERLESS, UNDER_REPLICATED, Sampler
from ...live.snapshots import ClusterSnapshot

LINES_SHOWN: Final = 10
"""The most lines of events on the overview; another page has all lines."""


@dataclass(frozen=True, slots=True)
class BrokerRow:
    """A live broker."""

    id: int
    address: str
    rack: str
    is_controller: bool
    leads: int
    replicas: int
    in_sync: int


@dataclass(frozen=True, slots=True)
class VoterRow:
    """A node of the metadata quorum as a table row."""

    id: int
    address: str
    state: str
    term: int


@dataclass(frozen=True, slots=True)
class NeedyPartition:
    """A partition without a leader or with missing in-sync replicas, as a table row."""

    topic: str
    name: str
    state: str
    leader: str
    replicas: str
    isr: str


@dataclass(frozen=True, slots=True)
class ReassignedPartition:
    """A partition that is being reassigned to other brokers, as a table row."""

    topic: str
    name: str
    replicas: str
    adding: str
    removing: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """The data that the template of the overview shows."""

    brokers: Sequence[BrokerRow]
    fenced: Sequence[int]
    topics: int
    partitions: int
    under_replicated_total: int
    leaderless_total: int
    reassigning: int
    reassignments: Sequence[ReassignedPartition]
    needy: Sequence[NeedyPartition]
    voters: Sequence[VoterRow]
    quorum_trouble: str
    rates: Rates
    charts: Sequence[Chart]
    events: Sequence[EventLine]
    lines_total: int
    commits: CommitReading | None

    @property
    def commit_text(self) -> str:
        """The mean commit time of the quorum, as text in milliseconds."""
        return UNKNOWN if self.commits is None else milliseconds(self.commits.mean_ms)

    @property
    def commit_note(self) -> str:
        """The time within which 99 % of the quorum's commits ended, and their number, as text."""
        if self.commits is None or (bound := self.commits.bound_of(0.99)) is None:
            return "no commits yet"
        slow = f"99 % within {bound:g} ms" if bound < inf else "some took very long"
        return f"{slow}, of {self.commits.count:,.0f}"

    @property
    def fenced_text(self) -> str:
        """The number of fenced brokers as text, such as `2 fenced`; empty if there are none."""
        return f"{len(self.fenced)} fenced" if self.fenced else ""

    @property
    def needy_hidden(self) -> int:
        """The number of partitions without a leader or enough replicas that are not in the table.

        A partition without a leader is usually under-replicated, too.
        """
        return max(0, self.under_replicated_total - len(self.needy))

    @property
    def records_in(self) -> float | None:
        """The records per second that producers send to the cluster; None without a counter."""
        return self.rates.totals.get(TopicTraffic.RECORDS_IN)

    @property
    def bytes_in(self) -> str:
        """The bytes per second that producers send to the cluster, as text."""
        return byte_rate(self.rates.totals.get(TopicTraffic.BYTES_IN))

    @property
    def bytes_out(self) -> str:
        """The bytes per second that consumers read from the cluster, as text."""
        return byte_rate(self.rates.totals.get(TopicTraffic.BYTES_OUT))


def overview(
    snapshot: ClusterSnapshot,
    rates: Rates,
    charts: Sequence[Chart],
    events: Iterable[Event],
    commits: CommitReading | None = None,
) -> Overview:
    """Return the data of the overview page.

    `events` are in order of time; `commits` are the quorum's commits during the time that charts show.
    """
    lines = event_lines(events)
    needy = dict(snapshot.leaderless) | dict(snapshot.under_replicated)
    return Overview(
        brokers=broker_rows(snapshot),
        fenced=sorted(snapshot.cluster.fenced),
        topics=len(snapshot.topics),
        partitions=sum(len(topic.partitions) for topic in snapshot.topics),
        under_replicated_total=len(snapshot.under_replicated),
        leaderless_total=len(snapshot.leaderless),
        reassigning=len(snapshot.reassigning),
        reassignments=[
            ReassignedPartition(
                name.topic,
                f"{name.topic}-{name.partition}",
                numbers(reassignment.replicas),
                numbers(reassignment.adding),
                numbers(reassignment.removing),
            )
            for name, reassignment in islice(sorted(snapshot.reassigning.items()), ROWS_MAX)
        ],
        needy=[
            _needy(*entry) for entry in islice(sorted(needy.items(), key=lambda entry: entry[0]), ROWS_MAX)
        ],
        voters=voter_rows(snapshot),
        quorum_trouble=snapshot.quorum_trouble,
        rates=rates,
        charts=charts,
        events=lines[:LINES_SHOWN],
        lines_total=len(lines),
        commits=commits,
    )


def broker_rows(snapshot: ClusterSnapshot) -> list[BrokerRow]:
    """Return the table rows of the live brokers, with their numbers of replicas, in-sync replicas and led
    partitions."""
    partitions = [partition for topic in snapshot.topics for partition in topic.partitions.values()]
    leads = Counter(partition.leader for partition in partitions)
    held = Counter(chain.from_iterable(partition.replicas for partition in partitions))
    in_sync = Counter(chain.from_iterable(partition.isr for partition in partitions))
    return [
        BrokerRow(
            broker.id,
            f"{broker.host}:{broker.port}",
            broker.rack or "",
            broker.id == snapshot.cluster.controller_id,
            leads[broker.id],
            held[broker.id],
            in_sync[broker.id],
        )
        for broker in sorted(snapshot.cluster.brokers, key=lambda broker: broker.id)
    ]


def voter_rows(snapshot: ClusterSnapshot) -> list[VoterRow]:
    """Return the table rows of the metadata quorum's nodes; none if the cluster does not describe its quorum."""
    quorum = snapshot.quorum
    if quorum is None:
        return []
    return [
        VoterRow(
            node,
            "" if place is None else f"{place[0]}:{place[1]}",
            quorum.state_of(node),
            quorum.term,
        )
        for node, place in sorted(quorum.voters.items())
    ]


def charts_of(series: Callable[[str], Series], now_s: float) -> list[Chart]:
    """Return the charts of the overview: records and bytes per second, commit times, and partitions in need.

    `series` returns a recorded series by its name. Series without values have no chart.
    """
    found = []
    for title, names, say in (
        ("records per second", (TopicTraffic.RECORDS_IN,), rate),
        ("bytes per second", (TopicTraffic.BYTES_IN, TopicTraffic.BYTES_OUT), byte_rate),
        ("milliseconds until the quorum has committed", (COMMIT_MS,), milliseconds),
        ("partitions in need", (UNDER_REPLICATED, LEADERLESS), count),
    ):
        chart = draw(title, [series(name) for name in names], now_s=now_s, span_s=SPANS[SPAN], say=say)
        if chart is not None:
            found.append(chart)
    return found


def _needy(name: TopicPartition, partition: PartitionInfo) -> NeedyPartition:
    has_leader = partition.leader != NO_LEADER
    return NeedyPartition(
        name.topic,
        f"{name.topic}-{name.partition}",
        "under-replicated" if has_leader else "without a leader",
        str(partition.leader) if has_leader else UNKNOWN,
        numbers(partition.replicas),
        numbers(partition.isr),
    )


async def show(visit: Visit) -> Rendered:
    """Return the page."""
    sampler: Sampler = visit.sampler
    snapshot = await sampler.snapshot()
    charts = charts_of(sampler.series, snapshot.at_s)
    model = overview(snapshot, sampler.rates, charts, sampler.events, sampler.commits(SPANS[SPAN]))
    return Rendered("Overview", "overview.html", model)
