"""The overview: the health of the cluster, its traffic per second, and the newest events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Final

from ....client.admin.partition_states import REASSIGNING, TopicStates
from ...area import Rendered, Visit
from ...charts import DECIMAL, KIB, Chart, Series, draw
from ...formats import UNKNOWN, byte_rate, count, milliseconds, rate
from ...live.counters import Rates, TopicTraffic
from ...live.event_lines import EventLine, event_lines
from ...live.events import Event
from ...live.node_readings import CommitReading
from ...live.sampler import COMMIT_MS, OFFLINE, UNDER_REPLICATED, Sampler
from ...live.snapshots import ClusterSnapshot
from ..brokers.rows import BrokerRow, broker_rows
from .partitions import ProblemRow, partition_row, partitions_in

ROWS_SHOWN: Final = 10
"""The most topics, partitions and events in a list of the overview; other pages have all."""


@dataclass(frozen=True, slots=True)
class VoterRow:
    """A node of the metadata quorum as a table row."""

    id: int
    address: str
    state: str
    term: int

    @property
    def kind(self) -> str:
        """The colour class of the state: "good" for the leader, "bad" for a silent node."""
        return {"leader": "good", "silent": "bad"}.get(self.state, "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """The data that the template of the overview shows."""

    brokers: Sequence[BrokerRow]
    topics: int
    partitions: int
    under_replicated_total: int
    offline_total: int
    reassigning: int
    reassignments: Sequence[ProblemRow]
    problems: Sequence[TopicStates]
    problems_total: int
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
    def commit_sentence(self) -> str:
        """The mean time of the quorum's commits, the time within which 99 % ended, and their number, as a sentence."""
        if self.commits is None or (bound := self.commits.bound_of(0.99)) is None:
            return "There are no commits yet."
        slow = f"99 % take up to {bound:g} ms" if bound < inf else "some take very long"
        return f"{self.commits.count:,.0f} commits take {self.commit_text} on average, and {slow}."

    @property
    def brokers_text(self) -> str:
        """The number of active brokers, and of all brokers if others are absent: `3`, or `2 of 3`."""
        active = sum(broker.is_active for broker in self.brokers)
        return f"{active}" if active == len(self.brokers) else f"{active} of {len(self.brokers)}"

    @property
    def absent_text(self) -> str:
        """The numbers of absent brokers by state, such as `1 fenced, 1 down`; empty if there are none."""
        states = Counter(broker.state for broker in self.brokers if not broker.is_active)
        return ", ".join(f"{number} {state}" for state, number in states.items())

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

    @property
    def bytes_note(self) -> str:
        """The option that the console needs to know bytes per second; empty if it knows them, or no rates at all."""
        knows_records, knows_bytes = (
            what in self.rates.totals for what in (TopicTraffic.RECORDS_IN, TopicTraffic.BYTES_IN)
        )
        return "needs --metrics" if knows_records and not knows_bytes else ""


def overview(
    snapshot: ClusterSnapshot,
    rates: Rates,
    charts: Sequence[Chart],
    events: Iterable[Event],
    commits: CommitReading | None = None,
    absent_since: Mapping[int, float] | None = None,
) -> Overview:
    """Return the data of the overview page.

    `events` are in order of time; `commits` are the quorum's commits during the time that charts
    show. `absent_since` has the seconds since 1970 at which absent brokers left, where known.
    """
    lines = event_lines(events)
    return Overview(
        brokers=broker_rows(snapshot, absent_since or {}),
        topics=len(snapshot.topics),
        partitions=sum(len(topic.partitions) for topic in snapshot.topics),
        under_replicated_total=snapshot.under_replicated_total,
        offline_total=snapshot.offline_total,
        reassigning=len(snapshot.reassigning),
        reassignments=[
            partition_row(snapshot, name, partition)
            for name, partition in partitions_in(snapshot, REASSIGNING)[:ROWS_SHOWN]
        ],
        problems=snapshot.problems[:ROWS_SHOWN],
        problems_total=len(snapshot.problems),
        voters=voter_rows(snapshot),
        quorum_trouble=snapshot.quorum_trouble,
        rates=rates,
        charts=charts,
        events=lines[:ROWS_SHOWN],
        lines_total=len(lines),
        commits=commits,
    )


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


def charts_of(series: Callable[[str, float], Series], now_s: float, span_s: float) -> list[Chart]:
    """Return the charts of the overview: records and bytes per second, commit times, and partitions with
    problems.

    `series` returns a recorded series of the last `span_s` seconds by its name. Series without values have no chart.
    """
    found = []
    for title, names, say, unit in (
        ("records per second", (TopicTraffic.RECORDS_IN,), rate, DECIMAL),
        ("bytes per second", (TopicTraffic.BYTES_IN, TopicTraffic.BYTES_OUT), byte_rate, KIB),
        ("milliseconds until the quorum has committed", (COMMIT_MS,), milliseconds, DECIMAL),
        ("partitions with problems", (UNDER_REPLICATED, OFFLINE), count, DECIMAL),
    ):
        lines = [series(name, span_s) for name in names]
        chart = draw(title, lines, now_s=now_s, span_s=span_s, say=say, unit=unit)
        if chart is not None:
            found.append(chart)
    return found


async def show(visit: Visit) -> Rendered:
    """Return the page."""
    sampler: Sampler = visit.sampler
    snapshot = await sampler.snapshot()
    span = visit.span()
    charts = charts_of(sampler.series, sampler.now_s, span.seconds)
    commits = sampler.commits(span.seconds)
    model = overview(snapshot, sampler.rates, charts, sampler.events, commits, sampler.absent_since)
    return Rendered("Overview", "overview.html", model)
