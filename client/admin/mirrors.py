"""Mirrors: topics of another cluster, copied offset by offset. Ottla's own; see docs/MIRRORS.md."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal

from ...protocol.cluster.mirror_table import NO_EPOCH, FaultKind, MirrorFault, MirrorPhase, is_offsets_copy
from ...protocol.errors import ErrorCode, KafkaError
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
from ..connections.cluster import Backoff
from ..connections.metadata import NO_LEADER
from ..failures import RequestTimedOut
from ..foreign_names import JAVA, LIBRDKAFKA
from ..records import TopicPartition
from ..security.foreign_options import of_java, of_librdkafka
from .admin_base import AdminBase
from .session import check

_EARLIEST: Final = -2
_LATEST: Final = -1
_NOT_ABOUT_SECURITY: Final = ("bootstrap_servers", "client_id")
Start = Literal["earliest", "latest"] | datetime | int
Progress = Callable[["MirrorDescription"], None]
_Answers = dict[int, list[DescribedMirror] | KafkaError]


@dataclass(frozen=True, slots=True)
class MirrorPartitionDescription:
    """The copy of one partition. None: nobody told it, as its leader did not answer or has not asked the source yet."""

    partition: int
    leader: int | None
    """Broker that leads it here."""
    fault: MirrorFault | None
    """What stops it, with the offsets that are concerned."""
    promoted_epoch: int | None
    """First leader epoch of this cluster in which it takes records; None before the promotion."""
    lineage: tuple[tuple[int, int], ...]
    """(leader epoch of the source, its first offset), as far as copied."""
    log_end_offset: int | None
    high_watermark: int | None
    source_high_watermark: int | None
    """As the source said last."""
    lag_bytes: int | None
    """Bytes that are still to be copied, estimated."""
    behind_ms: int | None
    """How long ago the copy had all that the source had."""
    trouble: str
    """Why nothing can be fetched at the moment; empty if it can."""

    @property
    def lag(self) -> int | None:
        """Offsets that the source has and the copy does not have yet."""
        if self.source_high_watermark is None or self.log_end_offset is None:
            return None
        return max(0, self.source_high_watermark - self.log_end_offset)


@dataclass(frozen=True, slots=True)
class MirrorTopicDescription:
    """The copy of one topic."""

    name: str
    topic_id: bytes
    source_topic_id: bytes
    partitions: tuple[MirrorPartitionDescription, ...]

    @property
    def lag(self) -> int | None:
        """Of all partitions; None if that of one is unknown."""
        return _total(one.lag for one in self.partitions)

    @property
    def lag_bytes(self) -> int | None:
        """Of all partitions; None if that of one is unknown."""
        return _total(one.lag_bytes for one in self.partitions)

    @property
    def behind_ms(self) -> int | None:
        """Of the partition that is behind most; None if that of one is unknown."""
        known = [one.behind_ms for one in self.partitions if one.behind_ms is not None]
        return max(known, default=0) if len(known) == len(self.partitions) else None

    @property
    def faults(self) -> Mapping[int, MirrorFault]:
        """What stops partitions, by their numbers."""
        return {one.partition: one.fault for one in self.partitions if one.fault is not None}


@dataclass(frozen=True, slots=True)
class MirrorCut:
    """A cut of the source that all copies of a mirror have reached: a promotion there tears no transaction."""

    commit_index: int
    """Of the source: all that it had decided up to there is below the cut. -1 before its first transaction."""
    age_ms: int
    """How long ago the source told it."""


@dataclass(frozen=True, slots=True)
class MirrorDescription:
    """A mirror, its copies, and how far they are."""

    name: str
    source_cluster_id: str
    bootstrap_servers: str
    """Where the source is first asked."""
    topics_pattern: str
    groups_pattern: str
    """Empty: no offsets of groups follow."""
    start: int
    """Where copies begin: -2 at the start, -1 at the end, else a time in ms."""
    phase: MirrorPhase
    options: Mapping[str, str]
    """Of the connections to the source, without secrets."""
    topics: tuple[MirrorTopicDescription, ...]
    skipped: Mapping[str, str] | None
    """Topics of the source that are not copied, and why; None: nobody told it."""
    troubles: Mapping[int, str]
    """Brokers that do not reach the source, and why."""
    unanswered: Mapping[int, KafkaError]
    """Brokers that did not answer, and why."""
    cut: MirrorCut | None = None
    """The newest that all copies have reached. Of a mirror that is promoted at a cut, that one."""
    cuts_trouble: str = ""
    """Why the source tells no cuts at the moment; empty if it does."""
    behind_cut: tuple[TopicPartition, ...] = ()
    """Copies that have not reached the next cut yet. For a moment there always are such."""
    is_promoted_at_cut: bool = False
    bandwidth: int = 0
    """Bytes/s that each broker may fetch from the source; 0: no limit."""
    acls: bool = False
    """Whether ACLs of its topics and groups follow."""
    takes_offsets: bool = False
    """Whether groups are yet to get the offsets that they had committed at the cut."""

    @property
    def lag(self) -> int | None:
        """Of all topics; None if that of one partition is unknown."""
        return _total(one.lag for one in self.topics)

    @property
    def lag_bytes(self) -> int | None:
        """Of all topics; None if that of one partition is unknown."""
        return _total(one.lag_bytes for one in self.topics)


class MirrorAdmin(AdminBase):
    """Creates, describes, pauses, promotes and deletes mirrors. It takes ALTER on the cluster, or DESCRIBE."""

    async def create_mirror(
        self,
        name: str,
        *,
        source: str,
        topics: str,
        groups: str = "",
        start: Start = "earliest",
        options: Mapping[str, str] | None = None,
        bandwidth: int = 0,
        acls: bool = False,
        validate_only: bool = False,
    ) -> str:
        """Begin to copy topics of the cluster at `source` (host:port, separated by commas). Returns that cluster's id.

        `topics` and `groups` are regular expressions (RE2) of whole names. Copies begin at `start`: "earliest",
        "latest", or a time. `options` are those of a client of the source, under the names that clients have here
        (security_protocol) or in Java (security.protocol); files are read on the brokers' machines. Each broker fetches
        at most `bandwidth` bytes/s from the source, if that is not 0. With `acls` the ACLs of these topics and groups
        follow. With `validate_only` the source is reached, and nothing changes.
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
            told = await connection.request(request)
            check(told.error_code, f"mirror {name!r}", told.error_message)
            return told.source_cluster_id

        return await self.session.with_retries(once)

    async def describe_mirrors(self, names: Iterable[str] | None = None) -> list[MirrorDescription]:
        """These mirrors, or all, by name. Every broker is asked, as each knows how far its own partitions are.

        Raises KafkaError, RESOURCE_NOT_FOUND, for a name that does not exist.
        """
        wanted = None if names is None else list(names)
        told = _merged(await self._tell_of_mirrors())
        for name in wanted or ():
            if name not in told:
                meant = nearest(name, told)
                raise KafkaError(
                    ErrorCode.RESOURCE_NOT_FOUND,
                    f"there is no mirror {name!r}" + (f"; did you mean {meant!r}?" if meant else ""),
                )
        return [told[name] for name in sorted(told if wanted is None else set(wanted))]

    async def pause_mirror(self, name: str) -> None:
        """Copy nothing until it is resumed. Its topics go on to take no records."""
        await self._alter_mirror(name, MirrorAction.PAUSE)

    async def resume_mirror(
        self, name: str, *, accept_gap: bool = False, topics: Iterable[str] | None = None
    ) -> None:
        """Go on to copy. With `accept_gap` also where a fault has stopped a partition: what it names is lost, or cut
        off, and only in these `topics` if they are given. After a promotion at a cut it is committed offsets that may
        be lost: groups go on without them."""
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
            # Once it is promoted there is nothing to be resumed; what was lost is accepted.
            if not accept_gap or error.code is not ErrorCode.INVALID_REQUEST:
                raise

    async def reconnect_mirror(
        self, name: str, *, source: str = "", options: Mapping[str, str] | None = None
    ) -> None:
        """Reach the source with these `options` from now on, and at another address if `source` is given. All options
        are replaced, so that secrets are given anew. It has to be the same cluster."""
        request = AlterMirrorRequest(
            name=name,
            action=MirrorAction.RECONNECT,
            bootstrap_servers=source,
            options=sent_options(options),
        )
        await self._submit_change(request)

    async def limit_mirror(self, name: str, bandwidth: int) -> None:
        """Have each broker fetch at most so many bytes/s from the source; 0: as fast as it can."""
        await self._submit_change(
            AlterMirrorRequest(name=name, action=MirrorAction.LIMIT, bandwidth=bandwidth)
        )

    async def promote_mirror(
        self, name: str, *, at_cut: bool = False, progress: Progress | None = None
    ) -> MirrorDescription:
        """Copy no more, and let all topics of the mirror take records. It cannot be undone.

        With `at_cut` every copy ends where the newest cut lies that all have reached, so that no transaction of the
        source is there in one partition and missing in another. Raises KafkaError, INVALID_REQUEST, if there is none.

        Returns when every partition has a leader that takes records, and after a cut groups have their offsets.
        `progress` is called with what is known meanwhile. Raises RequestTimedOut if that takes longer than
        `request_timeout_ms`; the mirror is promoted then.
        """
        await self._alter_mirror(name, MirrorAction.PROMOTE_AT_CUT if at_cut else MirrorAction.PROMOTE)
        loop, backoff = asyncio.get_running_loop(), Backoff(500)
        deadline = loop.time() + self.session.timeout_ms / 1000
        while True:
            answers = await self._tell_of_mirrors()
            mirror = _merged(answers).get(name)
            if mirror is None:
                raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, f"mirror {name!r} was deleted meanwhile")
            if progress is not None:
                progress(mirror)
            ready = _taking_records(answers, name)
            waiting = [
                f"{topic.name}-{one.partition}"
                for topic in mirror.topics
                for one in topic.partitions
                if (topic.name, one.partition) not in ready
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

    async def delete_mirror(self, name: str) -> None:
        """Forget a mirror that is promoted, or has no topics. Its topics stay."""
        await self._alter_mirror(name, MirrorAction.DELETE)

    async def _alter_mirror(self, name: str, action: MirrorAction, topics: Iterable[str] = ()) -> None:
        await self._submit_change(AlterMirrorRequest(name=name, action=action, topics=list(topics)))

    async def _submit_change(self, request: AlterMirrorRequest) -> None:
        async def once() -> None:
            connection = await self.session.cluster.any_connection()
            told = await connection.request(request)
            check(told.error_code, f"mirror {request.name!r}", told.error_message)

        await self.session.with_retries(once)

    async def _tell_of_mirrors(self) -> _Answers:
        """What each broker tells, or why it did not. Raises KafkaError if none did."""
        request = DescribeMirrorsRequest()

        async def ask(broker_id: int) -> list[DescribedMirror] | KafkaError:
            try:
                told = await self.session.cluster.ask(broker_id, request)
                check(told.error_code, "mirrors", told.error_message)
            except KafkaError as error:
                return error
            return told.mirrors

        brokers = sorted(await self.session.brokers_to_ask())
        answers = dict(zip(brokers, await asyncio.gather(*map(ask, brokers)), strict=True))
        failures = [one for one in answers.values() if isinstance(one, KafkaError)]
        if failures and len(failures) == len(answers):
            raise failures[0]
        return answers


def sent_options(options: Mapping[str, str] | None) -> list[MirrorOption]:
    """Options of a source as they are sent. Raises ValueError for one that is not understood."""
    return [MirrorOption(name=key, value=value) for key, value in _source_options(options or {}).items()]


def _source_options(options: Mapping[str, str]) -> dict[str, str]:
    """Options of a source under the names that brokers know, which are those of clients here.

    Raises ValueError for one of another client that is not understood, or is not about connections.
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
        return _EARLIEST if start == "earliest" else _LATEST
    milliseconds = int(start.timestamp() * 1000) if isinstance(start, datetime) else start
    if not isinstance(milliseconds, int) or milliseconds < 0:
        raise ValueError(
            f"start is 'earliest', 'latest', a datetime or milliseconds since 1970, not {start!r}"
        )
    return milliseconds


def _told(answers: _Answers) -> Iterator[tuple[int, DescribedMirror]]:
    for broker_id, mirrors in sorted(answers.items()):
        for one in () if isinstance(mirrors, KafkaError) else mirrors:
            yield broker_id, one


def _merged(answers: _Answers) -> dict[str, MirrorDescription]:
    by_name: dict[str, list[tuple[int, DescribedMirror]]] = {}
    for broker_id, one in _told(answers):
        by_name.setdefault(one.name, []).append((broker_id, one))
    unanswered = {broker_id: one for broker_id, one in answers.items() if isinstance(one, KafkaError)}
    return {name: _mirror(told, unanswered) for name, told in by_name.items()}


def _mirror(
    told: list[tuple[int, DescribedMirror]], unanswered: Mapping[int, KafkaError]
) -> MirrorDescription:
    # A broker may not have heard yet of the last change: the one that looks after the topics knows most, and nobody
    # takes back a promotion.
    base = max((one for _, one in told), key=lambda one: (one.is_told, len(one.topics)))
    is_promoted = any(one.phase == MirrorPhase.PROMOTED for _, one in told)
    topics: dict[str, list[DescribedMirrorTopic]] = {}
    for _, one in told:
        for topic in one.topics:
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
        {one.name: one.reason for one in base.skipped} if base.is_told else None,
        {broker_id: one.trouble for broker_id, one in told if one.trouble},
        unanswered,
        _newest_cut(one for _, one in told),
        base.cuts_trouble,
        tuple(
            TopicPartition(names[topic.topic_id], index)
            for topic in base.behind_cut
            for index in topic.partitions
            if topic.topic_id in names
        ),
        any(one.is_cut for _, one in told),
        bandwidth=base.bandwidth,
        acls=base.acls,
        takes_offsets=_takes_offsets(told),
    )


def _takes_offsets(told: list[tuple[int, DescribedMirror]]) -> bool:
    """Whoever does not know of the promotion yet knows of no offsets either."""
    promoted = [one for _, one in told if one.phase == MirrorPhase.PROMOTED]
    return bool(promoted) and all(one.takes_offsets for one in promoted)


def _lost_offsets(mirror: MirrorDescription) -> list[str]:
    """Partitions of the copy of committed offsets that stop a promotion at a cut."""
    return [
        f"{topic.name}-{index}"
        for topic in mirror.topics
        if is_offsets_copy(topic.name)
        for index in topic.faults
    ]


def _newest_cut(told: Iterable[DescribedMirror]) -> MirrorCut | None:
    known = [one for one in told if one.cut_age_ms >= 0]
    # Once it is promoted at a cut no other counts.
    known = [one for one in known if one.is_cut] or known
    newest = min(known, key=lambda one: one.cut_age_ms, default=None)
    return None if newest is None else MirrorCut(newest.cut, newest.cut_age_ms)


def _topic(told: list[DescribedMirrorTopic]) -> MirrorTopicDescription:
    partitions: dict[int, DescribedMirrorPartition] = {}
    for topic in told:
        for one in topic.partitions:
            if one.partition not in partitions or one.is_told:
                partitions[one.partition] = one
    newest = told[-1]
    return MirrorTopicDescription(
        newest.name,
        newest.topic_id,
        newest.source_topic_id,
        tuple(_partition(one) for _, one in sorted(partitions.items())),
    )


def _partition(one: DescribedMirrorPartition) -> MirrorPartitionDescription:
    fault = None
    if one.fault:
        kind = FaultKind(one.fault) if one.fault in list(FaultKind) else FaultKind.UNREADABLE
        fault = MirrorFault(kind, one.fault_first, one.fault_end, one.fault_reason)
    return MirrorPartitionDescription(
        one.partition,
        None if one.leader == NO_LEADER else one.leader,
        fault,
        None if one.promoted_epoch == NO_EPOCH else one.promoted_epoch,
        tuple((pair.epoch, pair.start_offset) for pair in one.lineage),
        _known(one.log_end_offset),
        _known(one.high_watermark),
        _known(one.source_high_watermark),
        _known(one.lag_bytes),
        _known(one.behind_ms),
        one.trouble,
    )


def _known(number: int) -> int | None:
    return None if number < 0 else number


def _taking_records(answers: _Answers, mirror: str) -> set[tuple[str, int]]:
    """Partitions whose leaders know that they lead, and that the mirror is promoted."""
    return {
        (topic.name, one.partition)
        for broker_id, told in _told(answers)
        if told.name == mirror and told.phase == MirrorPhase.PROMOTED
        for topic in told.topics
        for one in topic.partitions
        if one.leader == broker_id
    }


def _total(numbers: Iterable[int | None]) -> int | None:
    total = 0
    for number in numbers:
        if number is None:
            return None
        total += number
    return total
