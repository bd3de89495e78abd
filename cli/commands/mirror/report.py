"""Reports on mirrors: table rows and lines for people, and JSON. Pure functions."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, Final

from ....client.admin import (
    MirrorCut,
    MirrorDescription,
    MirrorPartitionDescription,
    MirrorTopicDescription,
)
from ....protocol.cluster.mirror_table import FaultKind, MirrorFault, MirrorPhase, is_offsets_copy
from ...terminal.output import bytes_text
from ...terminal.shades import faults, lag, state
from ...terminal.text import counted

UNKNOWN: Final = "?"
OLD_CUT_MS: Final = 10_000
"""Milliseconds of age beyond which a report on a cut says why no newer cut is reached."""
BEHIND_NAMED_MAX: Final = 5
KINDS: Final = {
    FaultKind.GAP: "gap",
    FaultKind.DIVERGED: "diverged",
    FaultKind.MADE_ANEW: "made anew",
    FaultKind.UNREADABLE: "unreadable",
}


@dataclass(frozen=True, slots=True)
class Stopped:
    """A partition whose copying by a mirror a fault has stopped."""

    topic: str
    partition: int
    fault: MirrorFault

    @property
    def records(self) -> int | None:
        """The number of offsets that the fault affects; None for all records of the copy."""
        return None if self.fault.kind is FaultKind.MADE_ANEW else self.fault.end - self.fault.first

    @property
    def loss(self) -> str:
        """A line for people about the records that are lost if copying continues."""
        place = f"{self.topic}-{self.partition}"
        if self.fault.kind is FaultKind.MADE_ANEW:
            return f"{place}: all records that were copied are deleted, and the new topic is copied from its start"
        if not self.records:
            return f"{place}: nothing"
        what = f"{counted(self.records, 'offset')} from {self.fault.first} to {self.fault.end - 1}"
        verb = "is" if self.records == 1 else "are"
        if self.fault.kind is FaultKind.DIVERGED:
            return f"{place}: {what} {verb} cut off here, and copied as the source has them now"
        return f"{place}: {what} {verb} left out"


def stopped(mirror: MirrorDescription, topics: Collection[str] = ()) -> list[Stopped]:
    """Return the partitions of a mirror that a fault has stopped, in these topics or in all topics.

    After the promotion only a fault in the copy of committed offsets still counts.
    """
    is_promoted = mirror.phase is MirrorPhase.PROMOTED
    return [
        Stopped(topic.name, index, fault)
        for topic in mirror.topics
        if not topics or topic.name in topics
        if not is_promoted or is_offsets_copy(topic.name)
        for index, fault in sorted(topic.faults.items())
    ]


def state_of(mirror: MirrorDescription, topic: MirrorTopicDescription) -> str:
    """Return the state of a mirror's copy of a topic in one or two words, such as `copying` or `no leader`."""
    if topic.faults and is_offsets_copy(topic.name):
        return "faulted"
    if mirror.phase is not MirrorPhase.ACTIVE:
        return mirror.phase.name.lower()
    if topic.faults:
        return "faulted"
    if any(partition.leader is None for partition in topic.partitions):
        return "no leader"
    if any(partition.trouble for partition in topic.partitions):
        return "in trouble"
    return "unknown" if topic.lag is None else "copying"


def troubles(mirror: MirrorDescription) -> Iterator[tuple[str, str]]:
    """Yield the brokers and partitions of a mirror for which nothing is copied at the moment, each with the reason."""
    for broker_id, why in sorted(mirror.troubles.items()):
        yield f"broker {broker_id}", why
    for broker_id, error in sorted(mirror.unanswered.items()):
        yield f"broker {broker_id}", f"it does not answer: {error.message}"
    for topic in mirror.topics:
        for partition in topic.partitions:
            if partition.trouble:
                yield f"{topic.name}-{partition.partition}", partition.trouble


def summary(mirror: MirrorDescription) -> str:
    """Return a line about a mirror: name, source cluster, phase, patterns of topics and groups, and bandwidth."""
    groups = f", groups {mirror.groups_pattern}" if mirror.groups_pattern else ""
    limit = f", at most {bytes_text(mirror.bandwidth)}/s for each broker" if mirror.bandwidth else ""
    acls = ", with their ACLs" if mirror.acls else ""
    return (
        f"mirror {mirror.name} of {mirror.bootstrap_servers} (cluster {mirror.source_cluster_id}) is "
        f"{mirror.phase.name.lower()}: topics {mirror.topics_pattern}{groups}{acls}{limit}"
    )


def cut_line(mirror: MirrorDescription) -> str:
    """Return a line about the cut at which a mirror was or can be promoted: its commit index and age.

    Empty for a mirror that was promoted without a cut.
    """
    if mirror.phase is MirrorPhase.PROMOTED:
        at = mirror.cut.commit_index if mirror.is_promoted_at_cut and mirror.cut else None
        left = "; groups are still to get their committed offsets" if mirror.takes_offsets else ""
        return "" if at is None else f"promoted at cut {at}{left}"
    if mirror.cut is None:
        return f"cut: none; {why_no_cut(mirror)}"
    held_up = f"; {why_no_cut(mirror)}" if mirror.cut.age_ms >= OLD_CUT_MS else ""
    return f"cut: {mirror.cut.commit_index}, {mirror.cut.age_ms:,} ms old{held_up}"


def why_no_cut(mirror: MirrorDescription) -> str:
    """Return the known reason why a mirror's copies have reached no newer cut."""
    if mirror.cuts_trouble:
        return mirror.cuts_trouble
    if not mirror.behind_cut:
        return "the source has reported none yet"
    named = ", ".join(
        f"{partition.topic}-{partition.partition}" for partition in mirror.behind_cut[:BEHIND_NAMED_MAX]
    )
    more = len(mirror.behind_cut) - BEHIND_NAMED_MAX
    return f"{named}{f' and {more} more' if more > 0 else ''} have not reached the next one: compaction of copies waits"


def cut_as_json(cut: MirrorCut | None) -> dict[str, int] | None:
    """Return a mirror's cut for JSON, with the keys `commit_index` and `age_ms`; None if there is none."""
    return None if cut is None else {"commit_index": cut.commit_index, "age_ms": cut.age_ms}


def progress(mirror: MirrorDescription) -> str:
    """Return a line about the progress of a mirror: its number of topics, and the records and bytes still to copy."""
    left = f"{UNKNOWN} records" if mirror.lag is None else counted(mirror.lag, "record")
    size = "" if mirror.lag_bytes is None else f" ({bytes_text(mirror.lag_bytes)})"
    return f"{mirror.name}: {counted(len(mirror.topics), 'topic')}, {left} to copy{size}"


def shown(number: int | None) -> object:
    """Return a number for a table cell; `?` for an unknown number."""
    return UNKNOWN if number is None else number


def topic_row(mirror: MirrorDescription, topic: MirrorTopicDescription) -> tuple[object, ...]:
    """Return the row of a topic in the table of `ottla mirror status`: partitions, state, lag, delay in ms and
    faults."""
    size = UNKNOWN if topic.lag_bytes is None else bytes_text(topic.lag_bytes)
    return (
        topic.name,
        len(topic.partitions),
        state(state_of(mirror, topic)),
        lag(shown(topic.lag)),
        size,
        shown(topic.behind_ms),
        faults(len(topic.faults)),
    )


def as_json(mirror: MirrorDescription) -> dict[str, Any]:
    """Return a mirror's description for JSON: settings, lag, topics with partitions, cut and troubles; unknown numbers
    are null."""
    return {
        "name": mirror.name,
        "phase": mirror.phase.name.lower(),
        "source_cluster_id": mirror.source_cluster_id,
        "bootstrap_servers": mirror.bootstrap_servers,
        "topics_pattern": mirror.topics_pattern,
        "groups_pattern": mirror.groups_pattern,
        "start": {-2: "earliest", -1: "latest"}.get(mirror.start, mirror.start),
        "options": dict(mirror.options),
        "bandwidth": mirror.bandwidth or None,
        "acls": mirror.acls,
        "takes_offsets": mirror.takes_offsets,
        "lag": mirror.lag,
        "lag_bytes": mirror.lag_bytes,
        "topics": [_topic_as_json(mirror, topic) for topic in mirror.topics],
        "cut": cut_as_json(mirror.cut),
        "cuts_trouble": mirror.cuts_trouble or None,
        "behind_cut": [
            {"topic": partition.topic, "partition": partition.partition} for partition in mirror.behind_cut
        ],
        "promoted_at_cut": mirror.is_promoted_at_cut,
        "skipped": None if mirror.skipped is None else dict(mirror.skipped),
        "troubles": [{"where": where, "why": why} for where, why in troubles(mirror)],
    }


def _topic_as_json(mirror: MirrorDescription, topic: MirrorTopicDescription) -> dict[str, Any]:
    return {
        "name": topic.name,
        "state": state_of(mirror, topic),
        "topic_id": topic.topic_id.hex(),
        "source_topic_id": topic.source_topic_id.hex(),
        "lag": topic.lag,
        "lag_bytes": topic.lag_bytes,
        "behind_ms": topic.behind_ms,
        "partitions": [_partition_as_json(partition) for partition in topic.partitions],
    }


def _partition_as_json(partition: MirrorPartitionDescription) -> dict[str, Any]:
    return {
        "partition": partition.partition,
        "leader": partition.leader,
        "lag": partition.lag,
        "lag_bytes": partition.lag_bytes,
        "behind_ms": partition.behind_ms,
        "log_end_offset": partition.log_end_offset,
        "high_watermark": partition.high_watermark,
        "source_high_watermark": partition.source_high_watermark,
        "promoted_epoch": partition.promoted_epoch,
        "fault": None if partition.fault is None else fault_as_json(partition.fault),
        "trouble": partition.trouble or None,
    }


def fault_as_json(fault: MirrorFault) -> dict[str, Any]:
    """Return the fault of a mirror's partition for JSON: `kind`, `reason`, and offsets from `first` (inclusive) to
    `end` (exclusive)."""
    is_anew = fault.kind is FaultKind.MADE_ANEW
    return {
        "kind": KINDS[fault.kind],
        "first": None if is_anew else fault.first,
        "end": None if is_anew else fault.end,
        "reason": fault.reason,
    }
