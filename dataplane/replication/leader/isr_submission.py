"""Submission of ISR proposals as AlterPartition commands, and conversion of the results."""

from __future__ import annotations

from collections.abc import Sequence

from ....protocol.cluster.cluster_image import ClusterImage
from ....protocol.messages.partition_commands import (
    AlteredPartition,
    AlterPartition,
    AlterPartitionChange,
    IsrMember,
)
from ...quorum.access import Quorum
from ..replica.partition import Partition
from ..roles.in_sync import Proposal
from ..roles.leader import Refusal
from .isr_updates import IsrCommitted, Outcome, Submit


def submit_to(quorum: Quorum, broker_id: int) -> Submit:
    """Return a function that submits the proposals of this broker's leaders to `quorum`."""

    async def submit(proposals: Sequence[tuple[Partition, Proposal]]) -> Sequence[Outcome]:
        result = await quorum.submit(
            AlterPartition(
                broker_id=broker_id,
                broker_epoch=quorum.broker_epoch,
                partitions=[_change(partition, proposal) for partition, proposal in proposals],
            )
        )
        return [
            _outcome(quorum.image, partition, proposal, changed)
            for (partition, proposal), changed in zip(proposals, result.partitions, strict=True)
        ]

    return submit


def _change(partition: Partition, proposal: Proposal) -> AlterPartitionChange:
    return AlterPartitionChange(
        topic_id=partition.topic_id,
        partition=partition.index,
        leader_epoch=proposal.leader_epoch,
        partition_epoch=proposal.partition_epoch,
        new_isr=[
            IsrMember(
                broker_id=member, broker_epoch=epoch, log_end_offset=_end_of(partition, proposal, member)
            )
            for member, epoch in proposal.isr
        ],
    )


def _end_of(partition: Partition, proposal: Proposal, member: int) -> int:
    """Return the end offset of the member's log as the leader knows it; -1 if unknown. The quorum needs it for an
    election if this change ends the leadership.
    """
    leader = partition.leader
    if leader is None or leader.leader_epoch != proposal.leader_epoch:
        return -1
    follower = leader.followers.get(member)
    return (
        leader.log_end_offset
        if member == leader.broker_id
        else -1
        if follower is None
        else follower.log_end_offset
    )


def _outcome(
    image: ClusterImage, partition: Partition, proposal: Proposal, changed: AlteredPartition
) -> Outcome:
    if not changed.error_code:
        return IsrCommitted(changed.partition_epoch, frozenset(changed.isr))
    topic = image.topics_by_id.get(partition.topic_id)
    state = None if topic is None else topic.partitions.get(partition.index)
    if (
        state is not None
        and state.leader_epoch == proposal.leader_epoch
        and state.partition_epoch == proposal.partition_epoch
    ):
        # The image is newer than the refusal and still shows the state on which the proposal was based. So neither this
        # proposal nor an earlier one whose answer was lost was committed.
        return Refusal.INELIGIBLE
    return Refusal.STALE
