"""Leader epochs of a log during recovery: first those of the checkpoint, then those of the batches.

No checksum covers the epoch in a batch's header. For flushed batches the checkpoint has the right epochs. After these,
epochs must not fall; if they do, one of the two batches is damaged. Nothing here can contradict the epoch of the last
batches. The replica's role, which is assigned later, has an upper bound of epochs.
"""

from __future__ import annotations

from ....protocol.records.record_batch import BatchHeader
from ..leader_epochs import LeaderEpochs
from ..storage_errors import BrokenBatch


class EpochFell(BrokenBatch):
    """The error for a batch with a lower leader epoch than an earlier batch. `since` is the start offset of the first
    epoch above it."""

    def __init__(self, position: int, reason: str, since: int) -> None:
        super().__init__(position, reason)
        self.since = since


class RecoveredEpochs:
    """The leader epochs of a log during recovery. `epochs` begins with those of the checkpoint, and gets the epochs of
    batches as they are read."""

    def __init__(self, epochs: LeaderEpochs, recovery_point: int) -> None:
        epochs.truncate_from_end(recovery_point)  # Later epochs may belong to records that were cut off.
        self.epochs = epochs
        self._checkpoint = epochs.copy()
        self._recovery_point = recovery_point

    def take(self, header: BatchHeader, position: int) -> None:
        """Add the epoch of the next batch, at byte `position`. Raises BrokenBatch if the epoch does not fit its
        offset."""
        epoch, offset, epochs = header.partition_leader_epoch, header.base_offset, self.epochs
        if offset < self._recovery_point and self._checkpoint.entries:
            reason = self._checkpoint.fault_of(epoch, offset)
            if reason is not None:
                raise BrokenBatch(position, reason)
        elif epoch < epochs.latest_epoch:
            since = epochs.first_above(epoch)
            assert since is not None
            raise EpochFell(position, f"leader epoch {epoch} follows epoch {epochs.latest_epoch}", since)
        elif epoch > epochs.latest_epoch:
            epochs.assign(epoch, offset)
