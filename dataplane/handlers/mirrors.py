"""CreateMirror (0), AlterMirror (0) and DescribeMirrors (0), Ottla's own: copies of topics of another cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...protocol.cluster.acls import AclOperation
from ...protocol.cluster.cluster_image import PartitionState, TopicState
from ...protocol.cluster.mirror_table import (
    NO_ROUND,
    FaultKind,
    Mirror,
    MirrorFault,
    MirrorPartition,
    MirrorPhase,
)
from ...protocol.credentials.sealed_text import sealed_bytes
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.features import MIRROR, MIRROR_WITH_CUTS, finalized
from ...protocol.messages.command import Command
from ...protocol.messages.cuts import CutTopic
from ...protocol.messages.mirror_commands import (
    AcceptMirrorFaults,
    AlterMirror,
    CreateMirror,
    DeleteMirror,
    LimitMirror,
    PromoteMirrorAtCut,
    ReconnectMirror,
)
from ...protocol.messages.mirror_records import MirrorOption, SourceEpoch
from ...protocol.messages.mirrors import (
    AlterMirrorRequest,
    AlterMirrorResponse,
    CreateMirrorRequest,
    CreateMirrorResponse,
    DescribedMirror,
    DescribedMirrorPartition,
    DescribedMirrorTopic,
    DescribeMirrorsRequest,
    DescribeMirrorsResponse,
    MirrorAction,
    SkippedTopic,
)
from ..mirroring import first_cut
from ..mirroring.mirrors import Mirrors
from ..mirroring.source_check import ReachedSource, SourceCheck
from ..mirroring.topic_history import known_copies
from ..patterns import compile_pattern
from ..quorum.access import Quorum
from ..runtime.clocks import monotonic_ms, wall_ms
from ..security.authorization.needs import cluster
from ..server.handler import ClientRequest, handles

if TYPE_CHECKING:
    from ..mirroring.copies import Copy

_PHASES: Mapping[int, MirrorPhase] = {
    MirrorAction.RESUME: MirrorPhase.ACTIVE,
    MirrorAction.PAUSE: MirrorPhase.PAUSED,
    MirrorAction.PROMOTE: MirrorPhase.PROMOTED,
}


class MirrorHandlers:
    """Passes changes to the quorum. Describes mirrors from the image, and from this broker's links."""

    def __init__(self, quorum: Quorum, mirrors: Mirrors, trial: SourceCheck) -> None:
        self._quorum = quorum
        self._mirrors = mirrors
        self._trial = trial

    @handles(CreateMirrorRequest, 0, 0, needs=cluster(AclOperation.ALTER))
    async def create(self, request: ClientRequest, message: CreateMirrorRequest) -> CreateMirrorResponse:
        """Create a mirror of another cluster's topics. The source cluster is contacted once before, so that the
        operator learns of a mistake at once."""
        compile_pattern(message.topics, "the pattern of topics")
        if message.groups:
            compile_pattern(message.groups, "the pattern of groups")
        async with self._trial.reached(message.name, message.bootstrap_servers, message.options) as reached:
            await self._check_no_loop(reached, message.topics)
            awaits_cuts = await first_cut.is_to_come(
                reached.source, reached.metadata, with_offsets=bool(message.groups)
            )
        command = CreateMirror(
            name=message.name,
            source_cluster_id=reached.cluster_id,
            bootstrap_servers=message.bootstrap_servers,
            topics=message.topics,
            groups=message.groups,
            start=message.start,
            options=reached.options,
            is_checked_only=message.validate_only,
            bandwidth=message.bandwidth,
            acls=message.acls,
            awaits_cuts=awaits_cuts,
        )
        await self._quorum.submit(command, author=request.session)
        return CreateMirrorResponse(source_cluster_id=reached.cluster_id)

    async def _check_no_loop(self, reached: ReachedSource, topics: str) -> None:
        """Raise KafkaError if a source topic that matches the pattern `topics` is itself a copy of a topic in this
        cluster."""
        own_id = self._quorum.image.cluster_id
        loops = (await known_copies(reached.source, reached.metadata, topics, own_id)).loops
        if loops:
            name, mirror = min(loops.items())
            more = f", and {len(loops) - 1} more topics are copies, too" if len(loops) > 1 else ""
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"the source's topic {name!r} is itself a copy of this cluster, by its mirror {mirror!r}{more}: name "
                "other topics alone, or promote that mirror first",
            )

    @handles(AlterMirrorRequest, 0, 0, needs=cluster(AclOperation.ALTER))
    async def alter(self, request: ClientRequest, message: AlterMirrorRequest) -> AlterMirrorResponse:
        """Have the quorum change a mirror: its phase, its source's addresses or its bandwidth limit. Other actions
        delete the mirror, or let it go on after lost records."""
        command: Command[Any]
        if message.action in _PHASES:
            command = AlterMirror(name=message.name, phase=_PHASES[message.action])
        elif message.action == MirrorAction.DELETE:
            command = DeleteMirror(name=message.name)
        elif message.action == MirrorAction.RECONNECT:
            command = await self._reconnection(message)
        elif message.action == MirrorAction.LIMIT:
            command = LimitMirror(name=message.name, bandwidth=message.bandwidth)
        elif message.action == MirrorAction.ACCEPT_FAULTS:
            command = AcceptMirrorFaults(mirror=message.name, topics=message.topics)
        elif message.action == MirrorAction.PROMOTE_AT_CUT:
            command = self._promotion_at_cut(message.name)
        else:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"there is no action {message.action} on mirrors")
        await self._quorum.submit(command, author=request.session)
        return AlterMirrorResponse()

    def _promotion_at_cut(self, name: str) -> PromoteMirrorAtCut:
        if finalized(self._quorum.image.features)[MIRROR] < MIRROR_WITH_CUTS:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"a promotion at a cut needs the feature {MIRROR} at level {MIRROR_WITH_CUTS}",
            )
        return PromoteMirrorAtCut(name=name)

    async def _reconnection(self, message: AlterMirrorRequest) -> ReconnectMirror:
        """Return the command that gives a mirror new addresses of its source. Raises KafkaError if they belong to
        another cluster."""
        mirror = self._quorum.image.mirrors.by_name.get(message.name)
        if mirror is None:
            raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, f"there is no mirror {message.name!r}")
        servers = message.bootstrap_servers or mirror.bootstrap_servers
        async with self._trial.reached(mirror.name, servers, message.options) as reached:
            cluster_id = reached.cluster_id
        if cluster_id != mirror.source_cluster_id:
            raise KafkaError(
                ErrorCode.INCONSISTENT_CLUSTER_ID,
                f"{servers} is cluster {cluster_id}, mirror {mirror.name!r} copies {mirror.source_cluster_id}",
            )
        return ReconnectMirror(name=mirror.name, bootstrap_servers=servers, options=reached.options)

    @handles(DescribeMirrorsRequest, 0, 0, needs=cluster(AclOperation.DESCRIBE))
    def describe(self, request: ClientRequest, message: DescribeMirrorsRequest) -> DescribeMirrorsResponse:
        """Describe the named mirrors, or all. Their progress is included as far as this broker knows it."""
        known = self._quorum.image.mirrors.by_name
        unknown = next((name for name in message.names if name not in known), None)
        if unknown is not None:
            raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, f"there is no mirror {unknown!r}")
        return DescribeMirrorsResponse(
            mirrors=[self._described(known[name]) for name in sorted(message.names or known)]
        )

    def _described(self, mirror: Mirror) -> DescribedMirror:
        image, link = self._quorum.image, self._mirrors.links.get(mirror.name)
        copies = {} if link is None else {copy.key: copy for copy in link.copies}
        topics = [image.topics_by_id[topic_id] for topic_id, _ in image.mirrors.topics_of(mirror.name)]
        is_told = link is not None and link.looks_after_topics
        skipped = link.topic_list.skipped if link is not None and is_told else {}
        cuts, places = image.mirror_cuts.of(mirror.name), image.copies_of(mirror.name)
        cut = cuts.newest_whole(places)
        behind: dict[bytes, CutTopic] = {}
        for topic_id, index in sorted(cuts.behind(places)):
            behind.setdefault(topic_id, CutTopic(topic_id=topic_id)).partitions.append(index)
        return DescribedMirror(
            name=mirror.name,
            source_cluster_id=mirror.source_cluster_id,
            bootstrap_servers=mirror.bootstrap_servers,
            topics_pattern=mirror.topics,
            groups_pattern=mirror.groups,
            start=mirror.start,
            phase=mirror.phase,
            options=[
                MirrorOption(name=name, value=value)
                for name, value in mirror.options
                if sealed_bytes(value) is None
            ],
            trouble=self._mirrors.trouble_of(mirror.name),
            is_told=is_told,
            skipped=[SkippedTopic(name=name, reason=reason) for name, reason in sorted(skipped.items())],
            topics=[self._topic(topic, copies) for topic in sorted(topics, key=lambda topic: topic.name)],
            cut=-1 if cut is None else cut.cut,
            cut_age_ms=-1 if cut is None else max(0, wall_ms() - cut.time_ms),
            cuts_trouble=link.rounds.trouble if link is not None and is_told else "",
            is_cut=mirror.promoted_round != NO_ROUND,
            behind_cut=list(behind.values()),
            bandwidth=mirror.bandwidth,
            acls=mirror.copies_acls,
            takes_offsets=mirror.name in image.mirror_offsets.due,
        )

    def _topic(self, topic: TopicState, copies: Mapping[tuple[str, int], Copy]) -> DescribedMirrorTopic:
        known = self._quorum.image.mirrors.topics[topic.id]
        due = self._quorum.image.mirror_offsets.of_copy(topic.id)
        leaders = {index: state.leader for index, state in topic.partitions.items()}
        lost = () if due is None else due[1].lost(leaders)
        parts = {
            index: _without_offsets(known.partitions.get(index, MirrorPartition()), state, index in lost)
            for index, state in sorted(topic.partitions.items())
        }
        return DescribedMirrorTopic(
            name=topic.name,
            topic_id=topic.id,
            source_topic_id=known.source_topic_id,
            partitions=[
                _partition(index, part, leaders[index], copies.get((topic.name, index)))
                for index, part in parts.items()
            ],
        )


def _without_offsets(known: MirrorPartition, state: PartitionState, is_lost: bool) -> MirrorPartition:
    """Return a mirrored partition's state, with a fault if its promotion at a cut waits for committed offsets that no
    replica can report."""
    if not is_lost or known.resumption is None:
        return known
    have_it = ", ".join(map(str, sorted(state.replicas)))
    reason = (
        f"no broker that has them is there ({have_it}): groups wait for their committed offsets, or go on with those "
        "that they have here"
    )
    return replace(known, fault=MirrorFault(FaultKind.GAP, 0, known.resumption.offset, reason))


def _partition(
    index: int, known: MirrorPartition, leader: int, copy: Copy | None
) -> DescribedMirrorPartition:
    described = DescribedMirrorPartition(
        partition=index,
        promoted_epoch=known.promoted_epoch,
        lineage=[SourceEpoch(epoch=epoch, start_offset=start) for epoch, start in known.lineage],
        leader=leader,
    )
    if known.fault is not None:
        described.fault, described.fault_reason = known.fault.kind, known.fault.reason
        described.fault_first, described.fault_end = known.fault.first, known.fault.end
    if copy is not None and copy.is_led:
        described.is_told, described.trouble = True, copy.trouble
        described.log_end_offset, described.high_watermark = copy.log_end, copy.partition.high_watermark
        if copy.source_high_watermark >= 0:
            described.source_high_watermark, described.lag_bytes = copy.source_high_watermark, copy.lag_bytes
            described.behind_ms = copy.behind_ms(monotonic_ms())
    return described
