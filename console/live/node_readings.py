"""Values from the metrics pages of nodes: validity of TLS certificates, the quorum's commit times, and records that
members of share groups hold. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Final

from ...client.records import TopicPartition

CERTIFICATES: Final = re.compile(
    r"^ottla_(?P<of>quorum_)?tls_certificate_expiry_seconds\{(?P<labels>[^\n]*)\} (?P<value>\S+)$",
    re.MULTILINE,
)
COMMITS: Final = re.compile(
    r"^ottla_quorum_commit_milliseconds_(?P<part>bucket|sum)(?:\{(?P<labels>[^\n]*)\})? (?P<value>\S+)$",
    re.MULTILINE,
)
HELD: Final = re.compile(
    r"^ottla_share_partition_acquired_records\{(?P<labels>[^\n]*)\} (?P<value>\d{1,18})$", re.MULTILINE
)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_INDEX = re.compile(r"[0-9]{1,10}")
_ESCAPED = re.compile(r"\\(.)")


@dataclass(frozen=True, slots=True)
class CertificateReading:
    """The TLS certificate of a listener, and the seconds until it expires; below 0 if it has expired."""

    listener: str
    left_s: float


@dataclass(frozen=True, slots=True)
class CommitReading:
    """A histogram of the quorum's commit times, from an entry's append to the leader's log until the leader applied it.

    `total_ms` is the sum of the times; `within` maps a bound in milliseconds to the number of commits that took at most
    as long.
    """

    total_ms: float = 0.0
    within: Mapping[float, float] = field(default_factory=dict)

    @property
    def count(self) -> float:
        """The number of commits in the histogram."""
        return self.within.get(inf, 0.0)

    @property
    def mean_ms(self) -> float | None:
        """The mean commit time in milliseconds; None without commits."""
        return self.total_ms / self.count if self.count > 0 else None

    def bound_of(self, part: float) -> float | None:
        """Return the least bound of the histogram, in milliseconds, within which the share `part` (0 to 1) of the
        commits lies. None without commits."""
        if self.count <= 0:
            return None
        return min(bound for bound, number in self.within.items() if number >= part * self.count)

    def __add__(self, other: CommitReading) -> CommitReading:
        return self._joined(other, 1)

    def since(self, before: CommitReading) -> CommitReading:
        """Return the histogram of the commits after the earlier reading `before`.

        A node that restarted counts from 0.
        """
        return self if before.count > self.count else self._joined(before, -1)

    def _joined(self, other: CommitReading, sign: int) -> CommitReading:
        bounds = self.within.keys() | other.within.keys()
        return CommitReading(
            self.total_ms + sign * other.total_ms,
            {bound: self.within.get(bound, 0.0) + sign * other.within.get(bound, 0.0) for bound in bounds},
        )


@dataclass(frozen=True, slots=True)
class NodeReading:
    """The certificates and commit times on one metrics page.

    `commits` is None unless the page belongs to a quorum node.
    """

    certificates: tuple[CertificateReading, ...] = ()
    commits: CommitReading | None = None


def node_reading(exposition: str) -> NodeReading:
    """Parse the certificates and commit times in `exposition`, a metrics page in Prometheus' text format."""
    certificates = []
    for found in CERTIFICATES.finditer(exposition):
        labels = _labels(found["labels"])
        name = labels.pop("listener", "")
        # Other labels occur where one page covers several nodes.
        others = ", ".join(f"{label} {value}" for label, value in labels.items())
        listener = ("the quorum's " if found["of"] else "") + name + (f" ({others})" if others else "")
        if (left_s := _number(found["value"])) is not None:
            certificates.append(CertificateReading(listener, left_s))
    return NodeReading(tuple(certificates), _commits(exposition))


def held_records(group_id: str, exposition: str) -> dict[TopicPartition, int]:
    """Return the number of records that members of a share group hold under a lock in each partition that `exposition`
    reports, a metrics page in Prometheus' text format.

    A leader reports a partition as long as a member uses the partition, or a lock lasts.
    """
    held: dict[TopicPartition, int] = {}
    for found in HELD.finditer(exposition):
        labels = _labels(found["labels"])
        if labels.get("group") == group_id and _INDEX.fullmatch(labels.get("partition", "")):
            held[TopicPartition(labels.get("topic", ""), int(labels["partition"]))] = int(found["value"])
    return held


def commits_between(
    before: Mapping[str, NodeReading], after: Mapping[str, NodeReading]
) -> CommitReading | None:
    """Return the histogram of the quorum's commits between two readings of all metrics endpoints.

    Nodes that are in only one reading do not count. None if no endpoint belongs to a quorum node.
    """
    found: CommitReading | None = None
    for source, node in after.items():
        if node.commits is None:
            continue
        old = before[source].commits if source in before else None
        new = CommitReading() if old is None else node.commits.since(old)
        found = new if found is None else found + new
    return found


def all_commits(readings: Iterable[CommitReading]) -> CommitReading:
    """Return one histogram with the commits of all these histograms."""
    return sum(readings, CommitReading())


def _commits(exposition: str) -> CommitReading | None:
    total_ms, within = 0.0, dict[float, float]()
    for found in COMMITS.finditer(exposition):
        value = _number(found["value"])
        if value is None:
            continue
        if found["part"] == "sum":
            total_ms += value
        elif (bound := _number(_labels(found["labels"] or "").get("le", ""))) is not None:
            within[bound] = within.get(bound, 0.0) + value
    return CommitReading(total_ms, within) if within else None


def _labels(text: str) -> dict[str, str]:
    return {name: _ESCAPED.sub(_unescaped, value) for name, value in _LABEL.findall(text)}


def _unescaped(found: re.Match[str]) -> str:
    return "\n" if found[1] == "n" else found[1]


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
