"""Mirrors: their phases, the topics that they copy, and the faults that stop a copy.

A promotion is one command: either all topics of the mirror accept records from then on, or none. Each partition begins
a new leader epoch with it, so that brokers can distinguish copied records from records produced here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from ...protocol.cluster.cluster_image import PartitionState, TopicState
from ...protocol.cluster.mirror_table import (
    MIRRORED_SETTINGS,
    NO_EPOCH,
    OF_THE_BROKERS,
    FaultKind,
    Mirror,
    MirrorFault,
    MirrorPartition,
    MirrorPhase,
    Resumption,
    is_offsets_copy,
    mirror_partition_record,
    mirror_record,
)
from ...protocol.cluster.transaction_table import Place
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.features import MIRROR, MIRROR_WITH_LIMITS, finalized
from ...protocol.messages.command import PlainResult
from ...protocol.messages.config_commands import ResourceType
from ...protocol.messages.metadata_records import ConfigRecord
from ...protocol.messages.mirror_commands import (
    AcceptMirrorFaults,
    AlterMirror,
    CreateMirror,
    DeleteMirror,
    FollowTopics,
    FollowTopicsResult,
    LimitMirror,
    MirroredTopic,
    MirroredTopicResult,
    MirrorPartitionReport,
    PromoteMirrorAtCut,
    PromoteMirrorAtCutResult,
    ReconnectMirror,
    ReportMirrorPartitions,
)
from ...protocol.messages.mirror_records import (
    MirrorOption,
    MirrorRemovedRecord,
    MirrorTopicRecord,
    SourceEpoch,
)
from ...protocol.messages.topic_commands import NewTopic
from ...protocol.messages.transaction_records import CommitIndexRecord
from ...protocol.settings.config_keys import ConfigError, check_topic_config
from ...protocol.wire.schema import ZERO_UUID
from . import mirror_acls, mirror_cuts, mirror_offsets, mirrored_transactions, topics
from .known_mirrors import known_mirror, refused_for_mirror
from .refusal import MESSAGE_LENGTH_MAX, message_of
from .workspace import Workspace

NAME_LENGTH_MAX: Final = 100
TEXT_LENGTH_MAX: Final = 16 << 10
OPTIONS_MAX: Final = 50
START_LEAST: Final = -2


def create(work: Workspace, command: CreateMirror) -> PlainResult:
    """Store a new mirror, which is active at once. Raises KafkaError."""
    if finalized(work.image.features)[MIRROR] < 1:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"mirrors need the feature {MIRROR} at level 1, so that no broker is left that takes records for a copy",
        )
    mirror = new_mirror(work, command)
    if not command.is_checked_only:
        work.emit(mirror_record(mirror))
        if command.awaits_cuts:
            mirror_cuts.await_first(work, mirror.name)
    return PlainResult()


def new_mirror(work: Workspace, command: CreateMirror) -> Mirror:
    """Return the mirror that a command describes, without storing it. Raises KafkaError."""
    _check_settings(work, command)
    return Mirror(
        command.name,
        command.source_cluster_id,
        command.bootstrap_servers,
        command.topics,
        command.groups,
        command.start,
        MirrorPhase.ACTIVE,
        _pairs(command.options),
        bandwidth=_checked_limit(work, command.bandwidth),
        copies_acls=mirror_acls.checked(work, command.acls),
    )


def _check_settings(work: Workspace, command: CreateMirror) -> None:
    name = command.name
    if (
        not name
        or len(name) > NAME_LENGTH_MAX
        or not all(character.isascii() and (character.isalnum() or character in "._-") for character in name)
    ):
        raise refused_for_mirror(
            f"a mirror is named by 1 to {NAME_LENGTH_MAX} ASCII letters, digits, '.', '_' and '-', not {name[:200]!r}"
        )
    if name in work.image.mirrors.by_name:
        raise KafkaError(ErrorCode.DUPLICATE_RESOURCE, f"there is a mirror {name!r} already")
    if command.source_cluster_id == work.image.cluster_id:
        raise refused_for_mirror(
            f"{command.bootstrap_servers[:200]} is this cluster: it cannot be a copy of itself"
        )
    texts = (command.source_cluster_id, command.bootstrap_servers, command.topics)
    if not all(texts):
        raise refused_for_mirror(
            "a mirror needs the id of its source, bootstrap servers, and a pattern of topics"
        )
    if any(len(text) > TEXT_LENGTH_MAX for text in (*texts, command.groups)):
        raise refused_for_mirror(f"patterns and bootstrap servers may have {TEXT_LENGTH_MAX} characters")
    if command.start < START_LEAST:
        raise refused_for_mirror(f"start {command.start}: it is -2 (earliest), -1 (latest) or a time in ms")
    if len(command.options) > OPTIONS_MAX:
        raise refused_for_mirror(f"{len(command.options)} options: a mirror may have {OPTIONS_MAX}")


def limit(work: Workspace, command: LimitMirror) -> PlainResult:
    """Set the limit in bytes per second at which each broker may fetch a mirror's topics from the source; 0
    removes it. Raises KafkaError."""
    mirror = known_mirror(work, command.name)
    work.emit(mirror_record(replace(mirror, bandwidth=_checked_limit(work, command.bandwidth))))
    return PlainResult()


def _checked_limit(work: Workspace, bandwidth: int) -> int:
    if bandwidth < 0:
        raise refused_for_mirror(f"a bandwidth of {bandwidth} bytes/s: it is 1 or more, or 0 for no limit")
    if bandwidth and finalized(work.image.features)[MIRROR] < MIRROR_WITH_LIMITS:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"a limit of bandwidth needs the feature {MIRROR} at level {MIRROR_WITH_LIMITS}, so that no node is left "
            "that does not know it",
        )
    return bandwidth


def alter(work: Workspace, command: AlterMirror) -> PlainResult:
    """Pause, resume or promote a mirror; a mirror in that phase already is a success. Raises KafkaError."""
    mirror = known_mirror(work, command.name)
    try:
        phase = MirrorPhase(command.phase)
    except ValueError:
        raise refused_for_mirror(f"a mirror has no phase {command.phase}") from None
    if phase is mirror.phase:
        return PlainResult()
    if mirror.phase is MirrorPhase.PROMOTED:
        raise refused_for_mirror(
            f"mirror {mirror.name!r} is promoted: its topics take records, and are copied no more"
        )
    if phase is MirrorPhase.PROMOTED:
        mirror_offsets.drop_copy(work, mirror)
        _begin_epochs_of_our_own(work, mirror, {})
    work.emit(mirror_record(replace(mirror, phase=phase)))
    return PlainResult()


def promote_at_cut(work: Workspace, command: PromoteMirrorAtCut) -> PromoteMirrorAtCutResult:
    """Promote a mirror at the newest cut that all copies have reached; a mirror promoted so already is a success.
    Raises KafkaError."""
    mirror = known_mirror(work, command.name)
    if mirror.phase is MirrorPhase.PROMOTED:
        cuts = work.image.mirror_cuts.of(mirror.name)
        at = next((round_ for round_ in cuts.rounds if round_.number == mirror.promoted_round), None)
        if at is None:
            raise refused_for_mirror(f"mirror {mirror.name!r} is promoted already, at no cut")
    else:
        at, offsets = mirror_cuts.newest_whole(work, mirror)
        if work.image.transactions.next_commit_index <= at.cut:
            # Readers keep commit indexes of the source as their positions, and must continue with indexes of this
            # cluster.
            work.emit(CommitIndexRecord(next_commit_index=at.cut + 1))
        mirrored_transactions.take_versions(
            work,
            work.image.mirror_cuts.of(mirror.name).versions.at_cut(at.cut),
            replaces=any(topic.has_returned for _, topic in work.image.mirrors.topics_of(mirror.name)),
        )
        _begin_epochs_of_our_own(work, mirror, offsets)
        if at.has_offsets:
            mirror_offsets.become_due(work, mirror)
        else:
            mirror_offsets.drop_copy(work, mirror)
        work.emit(mirror_record(replace(mirror, phase=MirrorPhase.PROMOTED, promoted_round=at.number)))
    return PromoteMirrorAtCutResult(number=at.number, cut=at.cut, time_ms=at.time_ms)


def _begin_epochs_of_our_own(work: Workspace, mirror: Mirror, cut_at: Mapping[Place, int]) -> None:
    """Begin a new leader epoch in each partition of a promoted mirror. Its leader first truncates its log to the
    partition's offset in `cut_at`, if there is one.

    The mirror's own record comes last: until then no client can write, and partitions with a record are no longer
    copied.
    """
    for topic in _topics(work, mirror.name):
        for index, state in sorted(topic.partitions.items()):
            epoch = state.leader_epoch + 1
            copy = replace(_copy(work, topic.id, index), promoted_epoch=epoch)
            if (topic.id, index) in cut_at:
                copy = replace(copy, resumption=Resumption(epoch, cut_at[topic.id, index]))
            work.emit(mirror_partition_record(topic.id, index, copy))
            work.set_partition(topic.id, index, _in_new_epoch(state))


def reconnect(work: Workspace, command: ReconnectMirror) -> PlainResult:
    """Change the addresses and client options by which a mirror reaches its source, unless they were changed
    concurrently. Raises KafkaError."""
    mirror = known_mirror(work, command.name)
    if command.replaces is not None and _pairs(command.replaces) != mirror.options:
        return PlainResult()
    if len(command.options) > OPTIONS_MAX:
        raise refused_for_mirror(f"{len(command.options)} options: a mirror may have {OPTIONS_MAX}")
    changed = replace(
        mirror,
        bootstrap_servers=command.bootstrap_servers[:TEXT_LENGTH_MAX] or mirror.bootstrap_servers,
        options=_pairs(command.options),
    )
    work.emit(mirror_record(changed))
    return PlainResult()


def _pairs(options: Iterable[MirrorOption]) -> tuple[tuple[str, str], ...]:
    return tuple((option.name, option.value) for option in options)


def delete(work: Workspace, command: DeleteMirror) -> PlainResult:
    """Delete a mirror that copies nothing. Raises KafkaError."""
    mirror = known_mirror(work, command.name)
    mirror_offsets.check_nobody_waits(work, mirror)
    names = [
        work.image.topics_by_id[topic_id].name for topic_id, _ in work.image.mirrors.topics_of(mirror.name)
    ]
    copies = sum(not is_offsets_copy(name) for name in names)
    if mirror.phase is not MirrorPhase.PROMOTED and copies:
        raise refused_for_mirror(
            f"mirror {mirror.name!r} has {copies} topics that take no records: promote it first, and delete the topics "
            "that are not wanted afterwards"
        )
    mirror_offsets.drop_copy(work, mirror)
    work.emit(MirrorRemovedRecord(name=mirror.name))
    return PlainResult()


def follow(work: Workspace, command: FollowTopics) -> FollowTopicsResult:
    """Create a copy of each of the source's topics in the command, or extend and configure the existing copy,
    independently of the other topics. Raises KafkaError."""
    mirror = known_mirror(work, command.mirror)
    if mirror.phase is not MirrorPhase.ACTIVE:
        raise refused_for_mirror(f"mirror {mirror.name!r} is {mirror.phase.name.lower()}")
    budget, results = topics.PARTITIONS_PER_COMMAND_MAX, []
    for wanted in command.topics:
        result = MirroredTopicResult(name=wanted.name)
        try:
            budget -= _follow(work, mirror, wanted, command.seed, budget)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, message_of(error)
        results.append(result)
    return FollowTopicsResult(topics=results)


def _follow(work: Workspace, mirror: Mirror, wanted: MirroredTopic, seed: int, budget: int) -> int:
    """Create or update the copy of one topic of the source, and return the number of new partitions."""
    topic = work.image.topics.get(wanted.name)
    if topic is None:
        return _create_copy(work, mirror, wanted, seed, budget)
    copy = work.image.mirrors.topics.get(topic.id)
    if copy is None or copy.mirror != mirror.name:
        owner = "of no mirror" if copy is None or not copy.mirror else f"of mirror {copy.mirror!r}"
        raise KafkaError(
            ErrorCode.TOPIC_ALREADY_EXISTS, f"there is a topic {wanted.name!r} here, which is {owner}"
        )
    if wanted.source_topic_id not in (ZERO_UUID, copy.source_topic_id):
        if copy.source_topic_id != ZERO_UUID:
            _found_made_anew(work, topic)
            return 0
        work.emit(
            MirrorTopicRecord(topic_id=topic.id, mirror=mirror.name, source_topic_id=wanted.source_topic_id)
        )
    _take_over_settings(work, wanted)
    before = set(topic.partitions)
    came = topics.grow(work, topic, wanted.partitions, seed, budget)
    mirror_cuts.copies_came(
        work, mirror.name, ((topic.id, index) for index in sorted(set(topic.partitions) - before))
    )
    return came


def _create_copy(work: Workspace, mirror: Mirror, wanted: MirroredTopic, seed: int, budget: int) -> int:
    if wanted.name.startswith(OF_THE_BROKERS):
        mirror_offsets.check_may_be_copied(work, mirror, wanted.name)
    new = NewTopic(
        name=wanted.name,
        num_partitions=wanted.partitions,
        replication_factor=min(wanted.replication_factor, max(1, len(work.image.brokers))),
        configs=wanted.configs,
    )
    copy = MirrorTopicRecord(mirror=mirror.name, source_topic_id=wanted.source_topic_id)
    came = topics.create_copy(work, new, seed, budget, copy).num_partitions
    mirror_cuts.copies_came(work, mirror.name, ((copy.topic_id, index) for index in range(came)))
    return came


def _found_made_anew(work: Workspace, topic: TopicState) -> None:
    for index in sorted(topic.partitions):
        reason = f"the source's topic {topic.name!r} was deleted, and made anew"
        _stop(work, topic.id, index, MirrorFault(FaultKind.MADE_ANEW, 0, -1, reason))


def _take_over_settings(work: Workspace, wanted: MirroredTopic) -> None:
    present = work.image.configs.get((ResourceType.TOPIC, wanted.name), {})
    theirs = {config.name: config.value for config in wanted.configs}
    for key in MIRRORED_SETTINGS:
        value = theirs.get(key)
        try:
            value = None if value is None else check_topic_config(key, value)
        except ConfigError:
            continue  # this cluster does not support the value, so the copy keeps its own
        if present.get(key) != value:
            work.emit(
                ConfigRecord(
                    resource_type=ResourceType.TOPIC, resource_name=wanted.name, config_name=key, value=value
                )
            )


def report(work: Workspace, command: ReportMirrorPartitions) -> PlainResult:
    """Record the leader epochs and faults of copied partitions, which their leaders have reported. Reports of former
    leaders, and about inactive mirrors, are ignored."""
    for reported in command.partitions:
        topic = work.image.topics_by_id.get(reported.topic_id)
        state = None if topic is None else topic.partitions.get(reported.partition)
        if state is None or (state.leader, state.leader_epoch) != (command.broker_id, reported.leader_epoch):
            continue
        mirror = work.image.mirrors.mirror_of(reported.topic_id)
        if mirror is not None and mirror.phase is MirrorPhase.ACTIVE:
            _reported(work, reported, state)
    return PlainResult()


def _reported(work: Workspace, reported: MirrorPartitionReport, state: PartitionState) -> None:
    key = (reported.topic_id, reported.partition)
    if reported.fault:
        if reported.fault not in list(FaultKind) or not 0 <= reported.fault_first <= reported.fault_end:
            return  # perhaps of a later version, which cannot be resumed
        kind = FaultKind(reported.fault)
        reason = reported.fault_reason[:MESSAGE_LENGTH_MAX]  # it may quote an unauthenticated peer
        _stop(work, *key, MirrorFault(kind, reported.fault_first, reported.fault_end, reason))
        return
    copy = _copy(work, *key)
    lineage = _extended(copy.lineage, reported.epochs)
    if lineage != copy.lineage:
        copy = replace(copy, lineage=lineage)
        work.emit(mirror_partition_record(*key, copy))
    if reported.begins_at >= 0 and not copy.lineage:
        _go_on_at(work, *key, state, copy, reported.begins_at)


def _extended(lineage: tuple[tuple[int, int], ...], epochs: list[SourceEpoch]) -> tuple[tuple[int, int], ...]:
    for started in epochs:
        last_epoch, last_start = lineage[-1] if lineage else (NO_EPOCH, 0)
        if started.epoch > last_epoch and started.start_offset >= last_start:
            lineage = (*lineage, (started.epoch, started.start_offset))
    return lineage


def _stop(work: Workspace, topic_id: bytes, index: int, fault: MirrorFault) -> None:
    """Stop the copying of a partition because of a fault, which is recorded. The first fault stays, since others follow
    from it, unless the source's topic was recreated."""
    copy = _copy(work, topic_id, index)
    is_anew = fault.kind is FaultKind.MADE_ANEW and copy.fault != fault
    if copy.fault is None or is_anew:
        work.emit(mirror_partition_record(topic_id, index, replace(copy, fault=fault)))


def accept(work: Workspace, command: AcceptMirrorFaults) -> PlainResult:
    """Resume stopped copies after a loss that an operator has accepted. For a promoted mirror this concerns committed
    offsets only. Raises KafkaError."""
    mirror = known_mirror(work, command.mirror)
    if mirror.phase is MirrorPhase.PROMOTED:
        mirror_offsets.give_up(work, mirror, command.topics)
        return PlainResult()
    ours = {topic.name: topic for topic in _topics(work, mirror.name)}
    unknown = next((name for name in command.topics if name not in ours), None)
    if unknown is not None:
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{unknown!r} is no topic of mirror {mirror.name!r}"
        )
    for name in sorted(command.topics or ours):
        topic = ours[name]
        for index, state in sorted(topic.partitions.items()):
            copy = _copy(work, topic.id, index)
            if copy.fault is not None:
                _pass_over(work, topic.id, index, state, copy, copy.fault)
    return PlainResult()


def _pass_over(
    work: Workspace,
    topic_id: bytes,
    index: int,
    state: PartitionState,
    copy: MirrorPartition,
    fault: MirrorFault,
) -> None:
    copy = replace(copy, fault=None)
    offset = fault.end
    if fault.kind is FaultKind.DIVERGED:
        offset = fault.first
        copy = replace(copy, lineage=tuple(pair for pair in copy.lineage if pair[1] < offset))
    elif fault.kind is FaultKind.MADE_ANEW:
        # The next look at the source yields the id of the new topic.
        topic = work.image.mirrors.topics[topic_id]
        if topic.source_topic_id != ZERO_UUID:
            work.emit(MirrorTopicRecord(topic_id=topic_id, mirror=topic.mirror, source_topic_id=ZERO_UUID))
        offset, copy = 0, replace(copy, lineage=())
    _go_on_at(work, topic_id, index, state, copy, offset)


def _go_on_at(
    work: Workspace, topic_id: bytes, index: int, state: PartitionState, copy: MirrorPartition, offset: int
) -> None:
    """Continue a copied partition's log at `offset` in a new leader epoch. The leader truncates the log there, or skips
    missing records."""
    resumption = Resumption(state.leader_epoch + 1, offset)
    work.emit(mirror_partition_record(topic_id, index, replace(copy, resumption=resumption)))
    work.set_partition(topic_id, index, _in_new_epoch(state))


def _in_new_epoch(state: PartitionState) -> PartitionState:
    return replace(state, leader_epoch=state.leader_epoch + 1, partition_epoch=state.partition_epoch + 1)


def _copy(work: Workspace, topic_id: bytes, index: int) -> MirrorPartition:
    return work.image.mirrors.partition(topic_id, index) or MirrorPartition()


def _topics(work: Workspace, mirror: str) -> Iterator[TopicState]:
    """Yield the copied topics of a mirror in the order of their names."""
    found = [work.image.topics_by_id[topic_id] for topic_id, _ in work.image.mirrors.topics_of(mirror)]
    return iter(sorted(found, key=lambda topic: topic.name))
