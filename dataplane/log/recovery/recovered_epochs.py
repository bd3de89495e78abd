"""Leader epochs of a log that is being recovered: those of the checkpoint, then those of the batches.

No checksum covers the epoch in a batch's header. Of what had been flushed the checkpoint tells which it is; from
there on epochs must not fall, or either batch is damaged. That of the last batches nothing here contradicts: whoever
gives the replica its role knows the highest there can be.
"""

from __future__ import annotations

from ....protocol.records.record_batch import BatchHeader
from ..leader_epochs import LeaderEpochs
from ..storage_errors import BrokenBatch


class EpochFell(BrokenBatch):
    """A batch is of a lower leader epoch than one before it; the first that is above it starts at `since`."""

    def __init__(self, position: int, reason: str, since: int) -> None:
        super().__init__(position, reason)
        self.since = since


class RecoveredEpochs:
    """`epochs` are those of the checkpoint; they take what the batches say in addition."""

    def __init__(self, epochs: LeaderEpochs, recovery_point: int) -> None:
        epochs.truncate_from_end(recovery_point)  # The others may be of records that were cut off.
        self.epochs = epochs
        self._checkpoint = epochs.copy()
        self._recovery_point = recovery_point

    def take(self, header: BatchHeader, position: int) -> None:
        """The next batch, at byte `position`. Raises BrokenBatch if its epoch is not that of its offset."""
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
