"""Elections of leaders: of preferred leaders, and unclean elections for partitions without a leader."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby

from ....client.connections.metadata import NO_LEADER, PartitionInfo
from ....client.records import TopicPartition
from ....protocol.errors import ErrorCode
from ...area import BadQuestion, Change, Difference, Done, Form, FormField, NotThere, Outdated, Visit
from ...commands import command, option, ranges
from ...formats import counted, numbers
from ...live.snapshots import ClusterSnapshot
from .moving import ADDRESS, numbers_of, raise_refusals
from .preview import LINES_MAX


@dataclass(frozen=True, slots=True)
class Candidate:
    """A partition for an election: its present state, the ids of its live replicas, and the reason, if it cannot have
    another leader."""

    partition: TopicPartition
    info: PartitionInfo
    live: tuple[int, ...]
    obstacle: str = ""

    @property
    def name(self) -> str:
        """The topic and the number of the partition."""
        return f"{self.partition.topic}-{self.partition.partition}"

    @property
    def as_shown(self) -> tuple[object, ...]:
        """The state that the preview shows: leader, replicas, live replicas, and without a leader the ISR."""
        isr = self.info.isr if self.info.leader == NO_LEADER else ()
        return (self.info.leader, self.info.replicas, self.live, isr)


def preferred_candidate(partition: TopicPartition, info: PartitionInfo, live: set[int]) -> Candidate | None:
    """Return a partition that another replica leads than the preferred one; None for other partitions."""
    if not info.replicas or info.leader in (NO_LEADER, info.replicas[0]):
        return None
    preferred, obstacle = info.replicas[0], ""
    if preferred not in live:
        obstacle = f"broker {preferred} is not active"
    elif preferred not in info.isr:
        obstacle = f"broker {preferred} is not in sync"
    return Candidate(partition, info, _live(info, live), obstacle)


def unclean_candidate(partition: TopicPartition, info: PartitionInfo, live: set[int]) -> Candidate | None:
    """Return a partition without a leader; None for a partition with one."""
    if info.leader != NO_LEADER:
        return None
    there = _live(info, live)
    return Candidate(partition, info, there, "" if there else "no replica is on an active broker")


def _live(info: PartitionInfo, live: set[int]) -> tuple[int, ...]:
    return tuple(broker for broker in info.replicas if broker in live)


# ------------------------------------------------------------ the scope of a form


def _scope_fields(visit: Visit, snapshot: ClusterSnapshot, *, hint: str) -> list[FormField]:
    return [
        FormField(
            name="topic",
            label="topic",
            value=visit.query.get("topic", ""),
            hint=hint,
            suggestions=snapshot.suggested_topics,
        ),
        FormField(
            name="partitions",
            label="partitions",
            value=visit.query.get("partitions", ""),
            hint="numbers and ranges such as 0,2-4; empty: all",
        ),
    ]


def _in_scope(visit: Visit, snapshot: ClusterSnapshot) -> dict[TopicPartition, PartitionInfo]:
    """Return the partitions that the form names. Raises BadQuestion and NotThere."""
    topic, text = visit.text("topic"), visit.text("partitions")
    if not topic:
        if text:
            raise BadQuestion("partitions need a topic")
        return dict(snapshot.partitions())
    found = {name: info for name, info in snapshot.partitions() if name.topic == topic}
    if not found:
        raise NotThere(f"there is no topic {topic!r}")
    if not text:
        return found
    named = [TopicPartition(topic, index) for index in numbers_of(text, "partitions")]
    for name in named:
        if name not in found:
            raise BadQuestion(f"{topic} has the partitions 0 to {len(found) - 1}, not {name.partition}")
    return {name: found[name] for name in named}


Choice = Callable[[TopicPartition, PartitionInfo, set[int]], Candidate | None]


async def _candidates(
    visit: Visit, choose: Choice, wanted: Iterable[TopicPartition] | None = None
) -> list[Candidate]:
    """Return the candidates among the partitions `wanted`, or among those that the form names, in order.

    Raises BadQuestion, NotThere and KafkaError.
    """
    snapshot = await visit.sampler.snapshot(age_max_s=0)
    if wanted is None:
        infos = _in_scope(visit, snapshot)
    else:
        there = dict(snapshot.partitions())
        infos = {name: there[name] for name in wanted if name in there}
    live = {broker.id for broker in snapshot.cluster.brokers}
    found = (choose(name, info, live) for name, info in sorted(infos.items()))
    return [candidate for candidate in found if candidate is not None]


def election_command(candidates: Sequence[Candidate], *, unclean: bool = False) -> str:
    """Return the `ottla cluster elect` command for these partitions; empty if it would be too long."""
    words = ["--unclean", "--yes"] if unclean else []
    for topic, some in groupby(candidates, key=lambda candidate: candidate.partition.topic):
        words += option("--topic", f"{topic}:{ranges(candidate.partition.partition for candidate in some)}")
    return command("cluster", "elect", options=words)


def _check_as_shown(shown: Sequence[Candidate], now: Sequence[Candidate]) -> None:
    """Raise Outdated if a partition is not as the preview showed it."""
    by_name = {candidate.partition: candidate for candidate in now}
    for candidate in shown:
        present = by_name.get(candidate.partition)
        if present is None:
            raise Outdated(f"{candidate.name} has another leader by now")
        if present.obstacle:
            raise Outdated(f"{candidate.name}: {present.obstacle}")
        if present.as_shown != candidate.as_shown:
            raise Outdated(f"{candidate.name} has another leader, ISR or replicas by now")


async def _elect(shown: Sequence[Candidate], choose: Choice, visit: Visit) -> Done:
    """Elect the leaders of a preview. Raises Outdated if it no longer holds, and KafkaError for refused partitions."""
    wanted = [candidate.partition for candidate in shown]
    _check_as_shown(shown, await _candidates(visit, choose, wanted))
    settled = await visit.admin.elect_leaders(wanted, unclean=choose is unclean_candidate)
    raise_refusals(
        {
            name: None if error is not None and error.code == ErrorCode.ELECTION_NOT_NEEDED else error
            for name, error in settled.items()
        }
    )
    return Done(f"a leader was elected for {counted(len(shown), 'partition')}", ADDRESS)


# ------------------------------------------------------------ preferred leaders


async def preferred_form(visit: Visit) -> Form:
    """Return the form that asks for which partitions preferred leaders shall be elected."""
    return Form(
        "Elect preferred leaders",
        _scope_fields(visit, await visit.sampler.snapshot(), hint="empty: all topics"),
        "The first replica of each partition becomes its leader, if it is in sync. Clients find the new leaders "
        "by themselves.",
    )


async def plan_preferred(visit: Visit) -> Change:
    """Plan elections of preferred leaders."""
    candidates = await _candidates(visit, preferred_candidate)
    electable = [candidate for candidate in candidates if not candidate.obstacle]
    if not candidates:
        raise BadQuestion("the preferred leaders lead already")
    if not electable:
        first = candidates[0]
        raise BadQuestion(f"no preferred leader can lead now: {first.name}: {first.obstacle}")
    return Change(
        title=f"Elect the preferred leaders of {counted(len(electable), 'partition')}",
        differences=preferred_lines(candidates),
        carry_out=partial(_elect, electable, preferred_candidate),
        command=election_command(electable),
    )


def preferred_lines(candidates: Sequence[Candidate]) -> list[Difference]:
    """Return the lines of a preview: leaders by partition, or by topic if there are many, and totals by broker."""
    lines = (
        [_preferred_line(candidate) for candidate in candidates]
        if len(candidates) <= LINES_MAX
        else [
            _topic_line(topic, list(some))
            for topic, some in groupby(candidates, key=lambda candidate: candidate.partition.topic)
        ]
    )
    before = Counter(candidate.info.leader for candidate in candidates if not candidate.obstacle)
    after = Counter(candidate.info.replicas[0] for candidate in candidates if not candidate.obstacle)
    return [
        *lines,
        *(
            Difference(
                f"broker {broker}: leads of these partitions", f"{before[broker]:,}", f"{after[broker]:,}"
            )
            for broker in sorted({*before, *after})
        ),
    ]


def _preferred_line(candidate: Candidate) -> Difference:
    now = f"leader {candidate.info.leader}"
    if candidate.obstacle:
        return Difference(candidate.name, now, f"still {now}: {candidate.obstacle}", is_changed=False)
    return Difference(candidate.name, now, f"leader {candidate.info.replicas[0]}")


def _topic_line(topic: str, candidates: Sequence[Candidate]) -> Difference:
    electable = [candidate for candidate in candidates if not candidate.obstacle]
    stay = len(candidates) - len(electable)
    now = numbers(sorted({candidate.info.leader for candidate in electable}))
    then = numbers(sorted({candidate.info.replicas[0] for candidate in electable}))
    return Difference(
        f"{topic}, {counted(len(electable), 'partition')}",
        f"leaders {now}",
        f"leaders {then}" + (f"; {counted(stay, 'partition')} more cannot change now" if stay else ""),
    )


# ------------------------------------------------------------ unclean


async def unclean_form(visit: Visit) -> Form:
    """Return the form that asks for which partitions without a leader any live replica shall lead."""
    topic, partitions = _scope_fields(visit, await visit.sampler.snapshot(), hint="")
    return Form(
        "Elect leaders uncleanly",
        (
            replace(topic, is_required=True),
            partitions,
            FormField(name="again", label="repeat the topic's name", is_required=True),
        ),
        "A replica outside the ISR becomes the leader of each partition without a leader. Committed records that it "
        "does not have are lost. First try to bring a broker with an in-sync replica back.",
    )


async def plan_unclean(visit: Visit) -> Change:
    """Plan unclean elections for the partitions of a topic that have no leader."""
    topic = visit.required("topic")
    visit.confirm(topic)
    candidates = await _candidates(visit, unclean_candidate)
    electable = [candidate for candidate in candidates if not candidate.obstacle]
    if not candidates:
        raise BadQuestion("each of these partitions has a leader")
    if not electable:
        raise BadQuestion(f"{candidates[0].name} has no leader, and no replica on an active broker")
    return Change(
        title=f"Elect leaders of {counted(len(electable), 'partition')} uncleanly",
        differences=[unclean_line(candidate) for candidate in candidates],
        carry_out=partial(_elect, electable, unclean_candidate),
        command=election_command(electable, unclean=True),
        warning="Committed records that only absent replicas have are lost. This cannot be undone.",
    )


def unclean_line(candidate: Candidate) -> Difference:
    """Return the line of a preview for a partition without a leader."""
    info = candidate.info
    absent = [broker for broker in info.replicas if broker not in candidate.live]
    now = f"no leader; in sync: {numbers(info.isr)}; not active: {numbers(absent)}"
    if candidate.obstacle:
        return Difference(candidate.name, now, f"still no leader: {candidate.obstacle}", is_changed=False)
    one_of = "" if len(candidate.live) == 1 else "one of "
    return Difference(candidate.name, now, f"leader {one_of}{numbers(candidate.live)}")
