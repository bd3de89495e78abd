"""The promise of compacted topics to read-committed consumers."""

from __future__ import annotations

from collections.abc import Iterator

from ..operations import Outcome
from .base import Invariant
from .facts import Facts, Place, named, short


class NotTheLastOfItsKey(Invariant):
    """Read-committed consumers of a compacted topic find, for each key, the last committed value or a later value.

    Compaction never removes the last value, and never brings back an older one. (Deleted records are exempt.)
    """

    scenarios = (35,)

    def violations(self, facts: Facts) -> Iterator[str]:
        starts = {(read.topic, read.partition): read.log_start for read in facts.history.committed_reads}
        for place, keys in self._newest(facts).items():
            for key, (offset, value) in keys.items():
                if place not in starts or offset < starts[place]:
                    continue
                found = facts.last_of_keys.get(place, {}).get(key)
                if found is None or found[0] < offset or (found[0] == offset and found[1] != value):
                    last = "nothing" if found is None else f"{short(found[1])} at offset {found[0]}"
                    yield (
                        f"{short(value)} of key {key!r} was committed at offset {offset} of {named(place)}; in the end "
                        f"{last} is the last of it"
                    )

    def _newest(self, facts: Facts) -> dict[Place, dict[bytes, tuple[int, bytes]]]:
        """Return, for each key, the record with the highest offset that is known to be committed, through an answer or
        a read.
        """
        found: dict[Place, dict[bytes, tuple[int, bytes]]] = {}

        def note(place: Place, key: bytes, offset: int, value: bytes) -> None:
            keys = found.setdefault(place, {})
            keys[key] = max(keys.get(key, (offset, value)), (offset, value))

        for send in facts.history.sends:
            place = (send.topic, send.partition)
            if send.key is None or send.offset is None or send.outcome is not Outcome.OK:
                continue
            transaction = None if send.transaction is None else facts.transactions[send.transaction]
            is_committed = transaction is None or transaction.is_committed
            if is_committed and not facts.losses.excuse(place, send.offset, send.invoked_s):
                note(place, send.key, send.offset, send.value)
        for poll in facts.history.polls:
            place = (poll.topic, poll.partition)
            if poll.committed and not facts.losses.excuse(place, poll.offset, poll.at_s):
                for send in facts.sent.get(place, {}).get(poll.value, ()):
                    if send.key is not None:
                        note(place, send.key, poll.offset, poll.value)
        return found
