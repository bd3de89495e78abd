"""Mirrors: topics of another cluster, copied offset by offset. An extension of Ottla; see docs/MIRRORS.md."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal

from ...protocol.cluster.mirror_table import NO_EPOCH, FaultKind, MirrorFault, MirrorPhase, is_offsets_copy
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.list_offsets import EARLIEST, LATEST
from ...protocol.messages.mirror_records import MirrorOption
from ...protocol.messages.mirrors import (
    AlterMirrorRequest,
    CreateMirrorRequest,
    DescribedMirror,
    DescribedMirrorPartition,
    DescribedMirrorTopic,
    DescribeMirrorsRequest,
    MirrorAction,
)
from ...protocol.nearest import nearest
from ..backoff import Backoff
from ..bounds import Name, NumberOfBytes
from ..connections.metadata import NO_LEADER
from ..failures import RequestTimedOut
from ..foreign_names import JAVA, LIBRDKAFKA
from ..records import TopicPartition
from ..security.foreign_options import of_java, of_librdkafka
from .admin_base import AdminBase
from .session import check

_NOT_ABOUT_SECURITY: Final = ("bootstrap_servers", "client_id")
Start = Literal["earliest", "latest"] | datetime | int
Progress = Callable[["MirrorDescription"], None]
_Answers = dict[int, list[DescribedMirror] | KafkaError]


@dataclass(frozen=True, slots=True)
class MirrorPartitionDescription:
    """The state of a mirror's copy of one partition: its leader, fault, promotion and progress. A number is None if it
    is unknown: the leader did not answer, or has not asked the source yet."""

    partition: int
    leader: int | None
    """Id of the broker of this cluster that leads the copy."""
    fault: MirrorFault | None
    """The fault that stops the copy, with the affected offsets."""
    promoted_epoch: int | None
    """First leader epoch of this cluster in which the partition accepts records; None before the promotion."""
    lineage: tuple[tuple[int, int], ...]
    """Pairs of a leader epoch of the source and its first offset, as far as copied."""
    log_end_offset: int | None
    high_watermark: int | None
    source_high_watermark: int | None
    """High watermark that the source last reported."""
    lag_bytes: int | None
    """Estimated number of bytes that remain to be copied."""
    behind_ms: int | None
    """Time in ms since the copy last had all records of the source."""
    trouble: str
    """The reason why nothing can be fetched now; empty if fetching works."""

    @property
    def lag(self) -> int | None:
        """The number of the partition's offsets that the source has and the copy does not have yet."""
        if self.source_high_watermark is None or self.log_end_offset is None:
            return None
        return max(0, self.source_high_watermark - self.log_end_offset)


@dataclass(frozen=True, slots=True)
class MirrorTopicDescription:
    """A mirror's copy of a topic: its id here and in the source, and its partitions."""

    name: str
    topic_id: bytes
    source_topic_id: bytes
    partitions: tuple[MirrorPartitionDescription, ...]

    @property
    def lag(self) -> int | None:
        """The topic's lag: the number of offsets that the copies of all partitions still miss; None if the lag of a
        partition is unknown."""
        return _total(partition.lag for partition in self.partitions)

    @property
    def lag_bytes(self) -> int | None:
        """The number of bytes that the copies of all partitions still miss; None if the lag of a partition is
        unknown."""
        return _total(partition.lag_bytes for partition in self.partitions)

    @property
    def behind_ms(self) -> int | None:
        """The delay in ms of the copy of the most delayed partition; None if the delay of a partition is unknown."""
        known = [partition.behind_ms for partition in self.partitions if partition.behind_ms is not None]
        return max(known, default=0) if len(known) == len(self.partitions) else None

    @property
    def faults(self) -> Mapping[int, MirrorFault]:
        """The faults that stop the copying of the topic's partitions, by partition number."""
        return {
            partition.partition: partition.fault
            for partition in self.partitions
            if partition.fault is not None
        }


@dataclass(frozen=True, slots=True)
class MirrorCut:
    """A consistent cut of the source that all copies of a mirror have reached: a promotion at this cut tears no
    transaction."""

    commit_index: int
    """Commit index of the source: each transaction decided up to this index is below the cut. -1 before its first
    transaction."""
    age_ms: int
    """Time in ms since the source reported the cut."""


@dataclass(frozen=True, slots=True)
class MirrorDescription:
    """A mirror (topics copied from another cluster): its settings, its phase, its copies and their progress."""

    name: str
    source_cluster_id: str
    bootstrap_servers: str
    """Bootstrap addresses of the source cluster."""
    topics_pattern: str
    groups_pattern: str
    """Pattern of the groups whose offsets are copied; empty: no offsets are copied."""
    start: int
    """The start of copies: -2 at the beginning, -1 at the end, else a time in ms since 1970."""
    phase: MirrorPhase
    options: Mapping[str, str]
    """Options of the connections to the source, without secrets."""
    topics: tuple[MirrorTopicDescription, ...]
    skipped: Mapping[str, str] | None
    """Topics of the source that are not copied, and the reasons; None if no broker reported them."""
    troubles: Mapping[int, str]
    """The brokers that do not reach the source, and the reasons."""
    unanswered: Mapping[int, KafkaError]
    """The brokers that did not answer, and their errors."""
    cut: MirrorCut | None = None
    """Newest cut that all copies have reached. After a promotion at a cut, that cut."""
    cuts_trouble: str = ""
    """The reason why the source reports no cuts now; empty if it reports them."""
    behind_cut: tuple[TopicPartition, ...] = ()
    """Copies that have not reached the next cut yet. Such copies always exist for a moment."""
    is_promoted_at_cut: bool = False
    bandwidth: int = 0
    """Bytes/s that each broker may fetch from the source; 0 means no limit."""
    acls: bool = False
    """True if the ACLs of the mirrored topics and groups are copied."""
    takes_offsets: bool = False
    """True if groups are yet to get the offsets that they had committed at the cut."""

    @property
    def lag(self) -> int | None:
        """The mirror's lag: the number of offsets that the copies of all topics still miss; None if the lag of a
        partition is unknown."""
        return _total(topic.lag for topic in self.topics)

    @property
    def lag_bytes(self) -> int | None:
        """The number of bytes that the copies of all topics still miss; None if the lag of a partition is unknown."""
        return _total(topic.lag_bytes for topic in self.topics)


class MirrorAdmin(AdminBase):
    """The methods that create, describe, pause, promote and delete mirrors. They require ALTER on the cluster;
    descriptions require DESCRIBE."""

    async def create_mirror(
        self,
        name: Name,
        *,
        source: Name,
        topics: str,
        groups: str = "",
        start: Start = "earliest",
        options: Mapping[str, str] | None = None,
        bandwidth: NumberOfBytes = 0,
        acls: bool = False,
        validate_only: bool = False,
    ) -> str:
        """Begin to copy topics of the cluster at `source` (host:port, separated by commas). Returns that cluster's id.

        `topics` and `groups` are regular expressions (RE2) of whole names. Copies begin at `start`: "earliest",
        "latest", or a time. `options` are those of a client of the source, under the names of this library
        (security_protocol) or of Java (security.protocol); files are read on the brokers' machines. Each broker fetches
        at most `bandwidth` bytes/s from the source, unless that is 0. With `acls` the ACLs of these topics and groups
        are copied. With `validate_only` the source is connected to, and nothing changes.
        """
        request = CreateMirrorRequest(
            name=name,
            bootstrap_servers=source,
            topics=topics,
            groups=groups,
            start=_start(start),
            options=sent_options(options),
            validate_only=validate_only,
            bandwidth=bandwidth,
            acls=acls,
        )

        async def once() -> str:
            connection = await self.session.cluster.any_connection()
            response = await connection.request(request)
            check(response.error_code, f"mirror {name!r}", response.error_message)
            return response.source_cluster_id

        return await self.session.with_retries(once)

    async def describe_mirrors(self, names: Iterable[Name] | None = None) -> list[MirrorDescription]:
        """Return these mirrors, or all, by name. Every broker is asked, as each knows the progress of its own
        partitions.

        Raises KafkaError, RESOURCE_NOT_FOUND, for a name that does not exist.
        """
        wanted = None if names is None else list(names)
        described = _merged(await self._describe_on_each_broker())
        for name in wanted or ():
            if name not in described:
                meant = nearest(name, described)
                raise KafkaError(
                    ErrorCode.RESOURCE_NOT_FOUND,
                    f"there is no mirror {name!r}" + (f"; did you mean {meant!r}?" if meant else ""),
                )
        return [described[name] for name in sorted(described if wanted is None else set(wanted))]

    async def pause_mirror(self, name: Name) -> None:
        """Stop copying until the mirror is resumed. Its topics still accept no records."""
        await self._alter_mirror(name, MirrorAction.PAUSE)

    async def resume_mirror(
        self, name: Name, *, accept_gap: bool = False, topics: Iterable[Name] | None = None
    ) -> None:
        """Resume copying.

        With `accept_gap` copying also resumes where a fault has stopped a partition, in these `topics` only if they are
        given. The records that the fault names are lost or cut off. After a promotion at a cut it is committed offsets
        that may be lost: groups continue without them.
        """
        some = list(topics or ())
        if some and not accept_gap:
            raise ValueError("a mirror is resumed as a whole: topics are named for accept_gap only")
        if accept_gap and topics is not None and not some:
            raise ValueError("topics is empty: name topics, or leave it out to accept the faults of all")
        if accept_gap:
            await self._alter_mirror(name, MirrorAction.ACCEPT_FAULTS, some)
        try:
            await self._alter_mirror(name, MirrorAction.RESUME)
        except KafkaError as error:
            # After the promotion there is nothing to resume; the loss is accepted.
            if not accept_gap or error.code is not ErrorCode.INVALID_REQUEST:
                raise

    async def reconnect_mirror(
        self, name: Name, *, source: str = "", options: Mapping[str, str] | None = None
    ) -> None:
        """Connect to the source with these `options` from now on, and at another address if `source` is given.

        All options are replaced, so secrets must be given again. The source must be the same cluster.
        """
        request = AlterMirrorRequest(
            name=name,
            action=MirrorAction.RECONNECT,
            bootstrap_servers=source,
            options=sent_options(options),
        )
        await self._submit_change(request)

    async def limit_mirror(self, name: Name, bandwidth: NumberOfBytes) -> None:
        """Limit each broker to fetch at most `bandwidth` bytes/s from the source; 0 removes the limit."""
        await self._submit_change(
            AlterMirrorRequest(name=name, action=MirrorAction.LIMIT, bandwidth=bandwidth)
        )

    async def promote_mirror(
        self, name: Name, *, at_cut: bool = False, progress: Progress | None = None
    ) -> MirrorDescription:
        """Stop copying, and let all topics of the mirror accept records. This cannot be undone.

        With `at_cut` every copy ends at the newest cut that all copies have reached. So no transaction of the source is
        present in one partition and missing in another. Raises KafkaError, INVALID_REQUEST, if there is no such cut.

        Returns when every partition has a leader that accepts records and, after a cut, groups have their offsets.
        `progress` is called with the current description meanwhile. Raises RequestTimedOut if that takes longer than
        `request_timeout_ms`; the mirror is promoted then.
        """
        await self._alter_mirror(name, MirrorAction.PROMOTE_AT_CUT if at_cut else MirrorAction.PROMOTE)
        loop, backoff = asyncio.get_running_loop(), Backoff(500)
        deadline = loop.time() + self.session.timeout_ms / 1000
        while True:
            answers = await self._describe_on_each_broker()
            mirror = _merged(answers).get(name)
            if mirror is None:
                raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, f"mirror {name!r} was deleted meanwhile")
            if progress is not None:
                progress(mirror)
            ready = _taking_records(answers, name)
            waiting = [
                f"{topic.name}-{partition.partition}"
                for topic in mirror.topics
                for partition in topic.partitions
                if (topic.name, partition.partition) not in ready
            ]
            if not waiting and not mirror.takes_offsets and mirror.phase is MirrorPhase.PROMOTED:
                return mirror
            if loop.time() > deadline and (lost := _lost_offsets(mirror)):
                raise RequestTimedOut(
                    f"mirror {name!r} is promoted, but no broker can tell the committed offsets in {lost[0]}: they are "
                    "a gap that can be accepted"
                )
            if not waiting and loop.time() > deadline:
                raise RequestTimedOut(
                    f"mirror {name!r} is promoted, but groups have not got their committed offsets yet"
                )
            if loop.time() > deadline:
                more = f" and {len(waiting) - 5} more" if len(waiting) > 5 else ""
                raise RequestTimedOut(
                    f"mirror {name!r} is promoted, but there is no leader yet that takes records for "
                    f"{', '.join(waiting[:5])}{more}"
                )
            await asyncio.sleep(backoff.next_s())

    async def delete_mirror(self, name: Name) -> None:
        """Delete a mirror that is promoted, or has no topics. Its topics remain."""
        await self._alter_mirror(name, MirrorAction.DELETE)

    async def _alter_mirror(self, name: str, action: MirrorAction, topics: Iterable[str] = ()) -> None:
        await self._submit_change(AlterMirrorRequest(name=name, action=action, topics=list(topics)))

    async def _submit_change(self, request: AlterMirrorRequest) -> None:
        async def once() -> None:
            connection = await self.session.cluster.any_connection()
            response = await connection.request(request)
            check(response.error_code, f"mirror {request.name!r}", response.error_message)

        await self.session.with_retries(once)

    async def _describe_on_each_broker(self) -> _Answers:
        """Return each broker's descriptions of the mirrors, or its error. Raises KafkaError if no broker answered."""
        request = DescribeMirrorsRequest()

        async def ask(broker_id: int) -> list[DescribedMirror] | KafkaError:
            try:
                response = await self.session.cluster.ask(broker_id, request)
                check(response.error_code, "mirrors", response.error_message)
            except KafkaError as error:
                return error
            return response.mirrors

        brokers = sorted(await self.session.brokers_to_ask())
        answers = dict(zip(brokers, await asyncio.gather(*map(ask, brokers)), strict=True))
        failures = [answer for answer in answers.values() if isinstance(answer, KafkaError)]
        if failures and len(failures) == len(answers):
            raise failures[0]
        return answers


def sent_options(options: Mapping[str, str] | None) -> list[MirrorOption]:
    """Return a source's options as the request carries them. Raises ValueError for an option that is not understood."""
    return [MirrorOption(name=key, value=value) for key, value in _source_options(options or {}).items()]


def _source_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return a source's options under the names that brokers know, which are those of this library's clients.

    Raises ValueError for an option of another client that is not understood, or does not concern connections.
    """
    foreign = {name: value for name, value in options.items() if "." in name}
    named = {name: value for name, value in options.items() if name not in foreign}
    of_librdkafka_alone = foreign.keys() & LIBRDKAFKA.keys() - JAVA.keys()
    given, others = of_java({name: foreign[name] for name in foreign if name not in of_librdkafka_alone})
    others += [name for name in foreign if {**LIBRDKAFKA, **JAVA}.get(name) in _NOT_ABOUT_SECURITY]
    if others:
        raise ValueError(f"{others[0]!r} is no option of connections to a source")
    theirs = of_librdkafka({name: foreign[name] for name in of_librdkafka_alone})
    twice = next(
        (name for name in (*given, *theirs) if (name in named) + (name in given) + (name in theirs) > 1), None
    )
    if twice is not None:
        raise ValueError(f"{twice!r} is given twice, also by its name in other clients")
    return named | {name: _text(name, value) for name, value in (given | theirs).items()}


def _text(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str):
        raise ValueError(f"{name} cannot be given for a source")
    return str(value)


def _start(start: Start) -> int:
    if start in ("earliest", "latest"):
        return EARLIEST if start == "earliest" else LATEST
    milliseconds = int(start.timestamp() * 1000) if isinstance(start, datetime) else start
    if not isinstance(milliseconds, int) or milliseconds < 0:
        raise ValueError(
            f"start is 'earliest', 'latest', a datetime or milliseconds since 1970, not {start!r}"
        )
    return milliseconds


def _told(answers: _Answers) -> Iterator[tuple[int, DescribedMirror]]:
    for broker_id, mirrors in sorted(answers.items()):
        for mirror in () if isinstance(mirrors, KafkaError) else mirrors:
            yield broker_id, mirror


def _merged(answers: _Answers) -> dict[str, MirrorDescription]:
    by_name: dict[str, list[tuple[int, DescribedMirror]]] = {}
    for broker_id, mirror in _told(answers):
        by_name.setdefault(mirror.name, []).append((broker_id, mirror))
    unanswered = {
        broker_id: answer for broker_id, answer in answers.items() if isinstance(answer, KafkaError)
    }
    return {name: _mirror(listed, unanswered) for name, listed in by_name.items()}


def _mirror(
    answers: list[tuple[int, DescribedMirror]], unanswered: Mapping[int, KafkaError]
) -> MirrorDescription:
    # A broker may not have applied the last change yet. The broker that manages the topics knows most, and a promotion
    # is never undone.
    base = max((mirror for _, mirror in answers), key=lambda mirror: (mirror.is_told, len(mirror.topics)))
    is_promoted = any(mirror.phase == MirrorPhase.PROMOTED for _, mirror in answers)
    topics: dict[str, list[DescribedMirrorTopic]] = {}
    for _, mirror in answers:
        for topic in mirror.topics:
            topics.setdefault(topic.name, []).append(topic)
    names = {topic.topic_id: topic.name for topic in base.topics}
    return MirrorDescription(
        base.name,
        base.source_cluster_id,
        base.bootstrap_servers,
        base.topics_pattern,
        base.groups_pattern,
        base.start,
        MirrorPhase.PROMOTED if is_promoted else MirrorPhase(base.phase),
        {option.name: option.value for option in base.options},
        tuple(_topic(some) for _, some in sorted(topics.items())),
        {skipped.name: skipped.reason for skipped in base.skipped} if base.is_told else None,
        {broker_id: mirror.trouble for broker_id, mirror in answers if mirror.trouble},
        unanswered,
        _newest_cut(mirror for _, mirror in answers),
        base.cuts_trouble,
        tuple(
            TopicPartition(names[topic.topic_id], index)
            for topic in base.behind_cut
            for index in topic.partitions
            if topic.topic_id in names
        ),
        any(mirror.is_cut for _, mirror in answers),
        bandwidth=base.bandwidth,
        acls=base.acls,
        takes_offsets=_takes_offsets(answers),
    )


def _takes_offsets(answers: list[tuple[int, DescribedMirror]]) -> bool:
    """Return whether the groups of a promoted mirror still wait for their committed offsets. Brokers that do not know
    of the promotion yet are ignored, since they do not know of the offsets either."""
    promoted = [mirror for _, mirror in answers if mirror.phase == MirrorPhase.PROMOTED]
    return bool(promoted) and all(mirror.takes_offsets for mirror in promoted)


def _lost_offsets(mirror: MirrorDescription) -> list[str]:
    """Return the names (topic-partition) of the copied partitions of committed offsets whose faults stop a promotion at
    a cut."""
    return [
        f"{topic.name}-{index}"
        for topic in mirror.topics
        if is_offsets_copy(topic.name)
        for index in topic.faults
    ]


def _newest_cut(mirrors: Iterable[DescribedMirror]) -> MirrorCut | None:
    known = [mirror for mirror in mirrors if mirror.cut_age_ms >= 0]
    # After a promotion at a cut no other cut counts.
    known = [mirror for mirror in known if mirror.is_cut] or known
    newest = min(known, key=lambda mirror: mirror.cut_age_ms, default=None)
    return None if newest is None else MirrorCut(newest.cut, newest.cut_age_ms)


def _topic(answers: list[DescribedMirrorTopic]) -> MirrorTopicDescription:
    partitions: dict[int, DescribedMirrorPartition] = {}
    for topic in answers:
        for partition in topic.partitions:
            if partition.partition not in partitions or partition.is_told:
                partitions[partition.partition] = partition
    newest = answers[-1]
    return MirrorTopicDescription(
        newest.name,
        newest.topic_id,
        newest.source_topic_id,
        tuple(_partition(partition) for _, partition in sorted(partitions.items())),
    )


def _partition(partition: DescribedMirrorPartition) -> MirrorPartitionDescription:
    fault = None
    if partition.fault:
        kind = FaultKind(partition.fault) if partition.fault in list(FaultKind) else FaultKind.UNREADABLE
        fault = MirrorFault(kind, partition.fault_first, partition.fault_end, partition.fault_reason)
    return MirrorPartitionDescription(
        partition.partition,
        None if partition.leader == NO_LEADER else partition.leader,
        fault,
        None if partition.promoted_epoch == NO_EPOCH else partition.promoted_epoch,
        tuple((pair.epoch, pair.start_offset) for pair in partition.lineage),
        _known(partition.log_end_offset),
        _known(partition.high_watermark),
        _known(partition.source_high_watermark),
        _known(partition.lag_bytes),
        _known(partition.behind_ms),
        partition.trouble,
    )


def _known(number: int) -> int | None:
    return None if number < 0 else number


def _taking_records(answers: _Answers, mirror: str) -> set[tuple[str, int]]:
    """Return the partitions of a promoted mirror that accept records: their leaders report that they lead, and that the
    mirror is promoted."""
    return {
        (topic.name, partition.partition)
        for broker_id, described in _told(answers)
        if described.name == mirror and described.phase == MirrorPhase.PROMOTED
        for topic in described.topics
        for partition in topic.partitions
        if partition.leader == broker_id
    }


def _total(numbers: Iterable[int | None]) -> int | None:
    total = 0
    for number in numbers:
        if number is None:
            return None
        total += number
    return total
