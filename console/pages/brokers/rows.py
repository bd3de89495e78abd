"""Brokers as rows of a table: absent brokers first, and the replicas of each broker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Final

from ...formats import duration, moment
from ...live.broker_absences import fence_times
from ...live.snapshots import ClusterSnapshot
from ...sorting import Column

ACTIVE: Final = "active"


@dataclass(frozen=True, slots=True)
class BrokerRow:
    """A broker as a table row.

    `state` is ACTIVE, or a state of `ClusterSnapshot.absent`. `since` is the time of an absence, as text. The address
    of a broker that is down is empty.
    """

    id: int
    state: str
    since: str
    address: str
    rack: str
    is_controller: bool
    leads: int
    replicas: int
    in_sync: int

    @property
    def is_active(self) -> bool:
        """True if the broker is neither fenced nor down."""
        return self.state == ACTIVE

    @property
    def missing(self) -> int:
        """The number of the broker's replicas that are outside the ISR."""
        return self.replicas - self.in_sync


COLUMNS: Final = (
    Column[BrokerRow]("broker", "broker", lambda row: row.id),
    Column[BrokerRow]("state", "state", lambda row: (row.is_active, row.state)),
    Column[BrokerRow]("address", "address", lambda row: row.address),
    Column[BrokerRow]("rack", "rack", lambda row: row.rack),
    Column[BrokerRow]("leads", "leads", lambda row: row.leads, is_number=True, descending_first=True),
    Column[BrokerRow](
        "replicas", "replicas", lambda row: row.replicas, is_number=True, descending_first=True
    ),
    Column[BrokerRow]("insync", "in sync", lambda row: row.in_sync, is_number=True, descending_first=True),
)
"""The columns of the table of brokers. In order of their states, absent brokers come first."""


def broker_rows(snapshot: ClusterSnapshot, absent_since: Mapping[int, float]) -> list[BrokerRow]:
    """Return the table rows of all brokers, the absent brokers first.

    `absent_since` has the seconds since 1970 at which the console saw brokers leave. Clusters of Ottla report the times
    themselves.
    """
    in_sync = Counter(chain.from_iterable(partition.isr for _, partition in snapshot.partitions()))
    fenced = snapshot.cluster.fenced_brokers
    active = [broker.id for broker in snapshot.cluster.brokers]
    addresses = {broker.id: broker for broker in snapshot.cluster.brokers}
    addresses |= {broker.address.id: broker.address for broker in fenced}
    since = {**absent_since, **fence_times(snapshot)}
    rows = []
    for id_ in [*sorted(snapshot.absent), *sorted(active)]:
        address = addresses.get(id_)
        since_s = since.get(id_)
        rows.append(
            BrokerRow(
                id_,
                snapshot.absent.get(id_, ACTIVE),
                since_text(since_s, snapshot.at_s) if id_ in snapshot.absent else "",
                f"{address.host}:{address.port}" if address else "",
                address.rack or "" if address else "",
                id_ == snapshot.cluster.controller_id,
                snapshot.leads[id_],
                snapshot.held[id_],
                in_sync[id_],
            )
        )
    return rows


def since_text(since_s: float | None, now_s: float) -> str:
    """Return the time since which a broker is absent, as text; both times are in seconds since 1970."""
    if since_s is None:
        return "since before the console started"
    return f"since {moment(since_s)} UTC ({duration(now_s - since_s)})"
