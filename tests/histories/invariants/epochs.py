"""The promise of leader epochs: what was committed in one is replaced by losses of later ones only."""

from __future__ import annotations

from collections.abc import Iterator

from ..operations import Poll
from .base import Invariant
from .facts import Facts, Place, polled


class RecordReplaced(Invariant):
    """Where records may be lost, too, an offset in a leader epoch is one record for ever, and two of different epochs
    are read at one offset only if a loss began an epoch behind the older of them.

    Judged for partitions with losses of which the leader epochs are known; the others must keep everything.
    """

    scenarios = (3, 17)

    def violations(self, facts: Facts) -> Iterator[str]:
        losses: dict[Place, int | None] = {}
        for one in facts.history.lossy:
            if one.topic is None or one.partition is None or one.leader_epoch is None:
                return
            place = (one.topic, one.partition)
            losses[place] = max(one.leader_epoch, losses.get(place) or 0)
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
