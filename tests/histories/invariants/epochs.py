"""The promise of leader epochs: only losses of later epochs replace records that were committed in an epoch."""

from __future__ import annotations

from collections.abc import Iterator

from ..operations import Poll
from .base import Invariant
from .facts import Facts, Place, polled


class RecordReplaced(Invariant):
    """An offset in a leader epoch holds one record for ever, even where records may be lost.

    Two records of different epochs are read at one offset only if a loss began an epoch after the older of the two
    epochs. Judged for partitions with losses whose leader epochs are known; other partitions must keep all records.
    """

    scenarios = (3, 17)

    def violations(self, facts: Facts) -> Iterator[str]:
        losses: dict[Place, int | None] = {}
        for loss in facts.history.lossy:
            if loss.topic is None or loss.partition is None or loss.leader_epoch is None:
                return
            place = (loss.topic, loss.partition)
            losses[place] = max(loss.leader_epoch, losses.get(place) or 0)
        known: dict[tuple[Place, int], Poll] = {}
        for poll in facts.history.polls:
            place = (poll.topic, poll.partition)
            last = losses.get(place)
            if last is None or poll.leader_epoch < 0:
                continue
            before = known.setdefault((place, poll.offset), poll)
            if before.value == poll.value:
                continue
            if before.leader_epoch == poll.leader_epoch:
                yield f"{polled(poll)}; in the same epoch {polled(before)}"
            elif last <= min(before.leader_epoch, poll.leader_epoch):
                yield f"{polled(poll)}; {polled(before)}, and no loss followed"
            known[place, poll.offset] = poll
