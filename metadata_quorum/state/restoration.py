"""The repair of the state after a quorum was restored from copies: ids and epochs since the copies are never reused.

The copies do not record later leaders and epochs, nor which replicas have left an ISR. Every partition therefore begins
a leadership with an epoch above all possible ones, and its ISR is discarded. All replicas are last known members, and
the replica that is furthest along leads once all of them have reported their log ends.
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
"""Number of skipped epochs: more elections than any partition has had since the copies were made."""
PRODUCER_IDS_SKIPPED = 1 << 32
_LAST_EPOCH = 2**31 - 1


def declare(work: Workspace, _: DeclareRestored) -> PlainResult:
    """Begin new leader epochs and skip producer ids, so that none is reused that was assigned after the quorum's copies
    were made. KafkaError when there are no epochs left."""
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
