"""Answers about a group that wait for the latest write of the group: they must not overtake it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ...protocol.errors import ErrorCode
from ..coordinated_log.batches import KeyValue
from .writes import ShardWrites

Settled = Callable[[ErrorCode], None]


class OrderedAnswers:
    """Answers by group, each given once all changes of the group so far are committed.

    A group's state moves ahead of the log, so an answer without changes also waits for a write that is under way.
    """

    def __init__(self, writes: ShardWrites) -> None:
        self._writes = writes
        self._waiting: dict[str, list[Settled]] = {}

    def wait(self, group_id: str, then: Settled) -> None:
        """Call `then` with NONE once the latest write of the group is committed, or else with its error."""
        waiting = self._waiting.get(group_id)
        if waiting is None:
            then(ErrorCode.NONE)
        else:
            waiting.append(then)

    def write(
        self,
        group_id: str,
        records: Iterable[KeyValue],
        then: Settled,
        failed: Callable[[], None],
        *,
        insist: bool = False,
    ) -> None:
        """Write records of the group. `then` gets NONE once they are committed, or else the error.

        After an error `failed` is called first: it returns the changes to the group. `insist`: see
        `ShardWrites.write`.
        """
        waiting = self._waiting[group_id] = [then]

        def written(code: ErrorCode) -> None:
            if self._waiting.get(group_id) is waiting:
                del self._waiting[group_id]
            if code is not ErrorCode.NONE:
                failed()
            for answer in waiting:
                answer(code)

        self._writes.write(records, written, insist=insist)
