"""After a quorum was put back from copies: nothing that was given out since they were made is given out again.

The copies do not know who led which partition since, under which epoch, nor who left an ISR. So every partition
begins a leadership above all that there can have been, and its ISR is not believed: all replicas are last known
members, and the one that is furthest along leads, once all of them have told how far they are.
"""

from __future__ import annotations

from dataclasses import replace

from ...protocol.cluster.cluster_image import NO_LEADER
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.cluster_commands import DeclareRestored
from ...protocol.messages.command import PlainResult
from ...protocol.messages.metadata_records import ProducerIdsRecord
from . import election
from .workspace import Workspace

EPOCHS_SKIPPED = 1 << 16
"""More elections than any partition has had since the copies were made."""
PRODUCER_IDS_SKIPPED = 1 << 32
_LAST_EPOCH = 2**31 - 1


def declare(work: Workspace, _: DeclareRestored) -> PlainResult:
    """Begin anew what may have gone on without this state. KafkaError when there are no epochs left."""
    partitions = list(work.partitions())
    if any(
        max(state.leader_epoch, state.partition_epoch) > _LAST_EPOCH - 2 * EPOCHS_SKIPPED
        for _, _, state in partitions
    ):
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "the epochs of a partition are exhausted")
    work.emit(ProducerIdsRecord(next_producer_id=work.image.next_producer_id + PRODUCER_IDS_SKIPPED))
    for topic_id, index, state in partitions:
        uncertain = replace(
            state,
            isr=(),
            elr=(),
            last_known_elr=state.replicas,
            leader=NO_LEADER,
            leader_epoch=state.leader_epoch + EPOCHS_SKIPPED,
            partition_epoch=state.partition_epoch + EPOCHS_SKIPPED,
        )
        alone = len(state.replicas) == 1
        work.set_partition(
            topic_id, index, election.elect(uncertain, work.electorate(topic_id)) if alone else uncertain
        )
    return PlainResult()
