"""The area "Mirrors": progress and faults of mirrors, which copy topics of another cluster, and their promotion.

A mirror's cut is a point of the source that all copies have reached, at which a promotion splits no transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from ...client.admin import Admin, MirrorDescription, MirrorPartitionDescription
from ...protocol.cluster.mirror_table import MirrorPhase
from ..area import (
    Action,
    Area,
    BadQuestion,
    Change,
    Difference,
    Done,
    Form,
    FormField,
    NotThere,
    Outdated,
    Paged,
    Rendered,
    View,
    Visit,
)
from ..commands import command
from ..formats import UNKNOWN, count, duration, link, size

AT_CUT, AS_IT_IS = "at the newest cut", "as the copies are"
HOW: Final = (AT_CUT, AS_IT_IS)


@dataclass(frozen=True, slots=True)
class MirrorRow:
    """A mirror as a table row.

    Lag is in records and bytes; `behind_s` is the seconds since the most delayed copy last had all records of its
    source. `cut_age_s` is the seconds since the source reported the newest cut. Unknown values are None.
    """

    name: str
    source: str
    phase: str
    kind: str
    topics: int
    faults: int
    lag: int | None
    lag_bytes: int | None
    behind_s: float | None
    cut_age_s: float | None


@dataclass(frozen=True, slots=True)
class CopyRow:
    """The copy of one source partition as a table row: end offsets here and at the source, and the lag in records.

    `behind_s` is the seconds since the copy last had all records.
    """

    topic: str
    partition: int
    leader: int | None
    end: int | None
    source_end: int | None
    lag: int | None
    behind_s: float | None
    fault: str


@dataclass(frozen=True, slots=True)
class MirrorPage:
    """The data that the template of one mirror's page shows."""

    row: MirrorRow
    topics_pattern: str
    groups_pattern: str
    cut: int | None
    cuts_trouble: str
    behind_cut: int
    troubles: Sequence[tuple[str, str]]
    skipped: Sequence[tuple[str, str]]
    paged: Paged[tuple[str, MirrorPartitionDescription]]
    copies: Sequence[CopyRow]
    is_active: bool


def mirror_row(mirror: MirrorDescription) -> MirrorRow:
    """Return the table row of a mirror."""
    faults = sum(len(topic.faults) for topic in mirror.topics)
    behind = [topic.behind_ms for topic in mirror.topics]
    known = [behind_ms for behind_ms in behind if behind_ms is not None]
    is_bad = faults > 0 or bool(mirror.troubles)
    return MirrorRow(
        mirror.name,
        mirror.bootstrap_servers,
        mirror.phase.name.lower(),
        "bad" if is_bad else "good" if mirror.phase is MirrorPhase.ACTIVE else "",
        len(mirror.topics),
        faults,
        mirror.lag,
        mirror.lag_bytes,
        max(known, default=0) / 1000 if len(known) == len(behind) else None,
        None if mirror.cut is None or mirror.is_promoted_at_cut else mirror.cut.age_ms / 1000,
    )


def copy_row(topic: str, copy: MirrorPartitionDescription) -> CopyRow:
    """Return the table row of the copy of a partition, with the fault that stops it, if any."""
    fault = copy.trouble
    if copy.fault is not None:
        fault = f"{copy.fault.kind.name}: offsets {copy.fault.first:,} to {copy.fault.end - 1:,}"
    return CopyRow(
        topic,
        copy.partition,
        copy.leader,
        copy.log_end_offset,
        copy.source_high_watermark,
        copy.lag,
        None if copy.behind_ms is None else copy.behind_ms / 1000,
        fault,
    )


async def show(visit: Visit) -> Rendered:
    """Return the page that lists all mirrors."""
    rows = [mirror_row(mirror) for mirror in await visit.admin.describe_mirrors()]
    return Rendered("Mirrors", "mirrors.html", visit.paged(rows))


async def mirror_named(admin: Admin, name: str) -> MirrorDescription:
    """Return the mirror of this name. Raises NotThere, KafkaError."""
    for mirror in await admin.describe_mirrors():
        if mirror.name == name:
            return mirror
    raise NotThere(f"there is no mirror {name!r}")


async def show_one(visit: Visit) -> Rendered:
    """Return the page of the mirror that the query names; copies with a fault come first."""
    mirror = await mirror_named(visit.admin, visit.required("name"))
    copies = [(topic.name, copy) for topic in mirror.topics for copy in topic.partitions]
    copies.sort(key=lambda copy: (copy[1].fault is None, not copy[1].trouble, copy[0], copy[1].partition))
    paged = visit.paged(copies)
    troubles = [(f"broker {broker}", why) for broker, why in sorted(mirror.troubles.items())]
    troubles += [(f"broker {broker}", why.message) for broker, why in sorted(mirror.unanswered.items())]
    model = MirrorPage(
        mirror_row(mirror),
        mirror.topics_pattern,
        mirror.groups_pattern,
        None if mirror.cut is None else mirror.cut.commit_index,
        mirror.cuts_trouble,
        len(mirror.behind_cut),
        troubles,
        sorted((mirror.skipped or {}).items()),
        paged,
        [copy_row(*copy) for copy in paged.rows],
        mirror.phase is not MirrorPhase.PROMOTED,
    )
    return Rendered(f"Mirror {mirror.name}", "mirror.html", model)


# ------------------------------------------------------------ promotion


async def promotion_form(visit: Visit) -> Form:
    """Return the form that asks how to promote a mirror: at its newest cut or as the copies are.

    The user must repeat its name.
    """
    mirror = await mirror_named(visit.admin, visit.required("name"))
    return Form(
        f"Promote mirror {mirror.name}",
        (
            FormField(name="how", label="promote", kind="choice", choices=HOW, value=AT_CUT),
            FormField(name="again", label="repeat the mirror's name", is_required=True),
        ),
        "Its topics accept records here from then on, and copying stops. At a cut no transaction is split.",
    )


async def plan_promotion(visit: Visit) -> Change:
    """Plan the promotion of a mirror, after which its topics accept records.

    The preview gives the number of records that are not copied yet.
    """
    mirror, how = await mirror_named(visit.admin, visit.required("name")), visit.text("how", AT_CUT)
    if how not in HOW:
        raise BadQuestion(f"'how' is one of {', '.join(HOW)}, not {how[:40]!r}")
    if visit.required("again") != mirror.name:
        raise BadQuestion(f"the name is {mirror.name}, not {visit.text('again')!r}")
    if mirror.phase is MirrorPhase.PROMOTED:
        raise BadQuestion(f"mirror {mirror.name} is promoted already")
    if how == AT_CUT and mirror.cut is None:
        raise BadQuestion(f"there is no cut: {mirror.cuts_trouble or 'not all copies have reached one'}")
    row = mirror_row(mirror)
    differences = [
        Difference("phase", row.phase, "promoted"),
        Difference("topics that accept records", "0", count(row.topics)),
        Difference("not copied yet", f"{count(row.lag)} records, {size(row.lag_bytes)}", UNKNOWN),
    ]
    if how == AT_CUT and mirror.cut is not None:
        cut = f"{mirror.cut.commit_index:,}, {duration(row.cut_age_s)} old, or a newer one"
        differences.append(Difference("cut", None, cut))
    at_cut = ["--at-cut"] if how == AT_CUT else []
    return Change(
        title=f"Promote mirror {mirror.name}",
        differences=differences,
        carry_out=partial(_promote, mirror, how),
        command=command("mirror", "promote", names=[mirror.name], options=at_cut),
        warning="Records that are not copied yet stay at the source. Only a failback reverses a promotion.",
    )


async def _promote(shown: MirrorDescription, how: str, visit: Visit) -> Done:
    """Promote the mirror. Raises Outdated if it differs from the mirror that the preview showed, and KafkaError."""
    name = shown.name
    now = await mirror_named(visit.admin, name)
    if _identity(now) != _identity(shown):
        raise Outdated(f"mirror {name} was replaced, or has other topics")
    if now.phase is not shown.phase:
        raise Outdated(f"mirror {name} was {shown.phase.name.lower()}, and is {now.phase.name.lower()}")
    if how == AT_CUT and shown.cut is not None:
        least = shown.cut.commit_index
        if now.cut is None or now.cut.commit_index < least:
            raise Outdated(f"mirror {name} has no cut at {least:,} or later any more")
    await visit.admin.promote_mirror(name, at_cut=how == AT_CUT)
    return Done(f"mirror {name} was promoted", link("/mirrors/mirror", name=name))


def _identity(mirror: MirrorDescription) -> tuple[str, str, str, int, frozenset[str]]:
    """Return the fields by which a mirror is recognized: source cluster, patterns of topics and groups, start, and
    topics."""
    topics = frozenset(topic.name for topic in mirror.topics)
    return mirror.source_cluster_id, mirror.topics_pattern, mirror.groups_pattern, mirror.start, topics


AREA = Area(
    name="mirrors",
    title="Mirrors",
    place=60,
    parts=(
        View(path="/mirrors", show=show, refresh_s=2.0),
        View(path="/mirrors/mirror", show=show_one, refresh_s=2.0),
        Action(path="/mirrors/promote", form=promotion_form, plan=plan_promotion),
    ),
    probe=lambda admin: admin.describe_mirrors(),
)
