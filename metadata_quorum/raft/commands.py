"""The way of a command through this node: from the queue into the log, and from the log into the machine.

The leader's queue becomes one entry when the library gets its turn. Every node applies an entry once it is committed.
The leader does so at once, and tells the callers what came of their commands. Nobody waits for a follower's machine: it
applies several entries in one go, when it has nothing else to do.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from math import inf
from typing import Final

from ...protocol.exposition import Histogram
from .compaction import Compactor
from .effects import Done, NotLeader, OutcomeUnknown, Overloaded
from .entries import OVERHEAD_BYTES, pack_group, unpack_group
from .gc_pause import gc_paused
from .journal import Journal
from .machine import Machine
from .safety import BrokenInvariant
from .settings import Settings
from .syncobj import Consensus

COMMIT_BOUNDS_MS: Final = (0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)

APPLY_EVERY_S = 0.02
"""A follower applies what is committed so long after it applied something the last time."""
APPLY_WHILE_WRITING_EVERY_S = 0.05
"""The same while it writes, for that comes first."""
BACKLOG_MAX = 8
"""More entries than this a follower does not leave for later: it may have to lead in a moment, and then applies them
first."""


class Commands:
    """Commands that wait for their turn, for a majority, or to be applied. The library calls it (`CommandHooks`)."""

    def __init__(
        self,
        settings: Settings,
        journal: Journal,
        machine: Machine,
        compactor: Compactor,
        replicate: Callable[[], None],
        wake: Callable[[], None],
        clock: Callable[[], float],
    ) -> None:
        """`replicate` is called as soon as entries have been appended. `wake` has the library take its turn soon."""
        self._settings = settings
        self._journal = journal
        self._machine = machine
        self._compactor = compactor
        self._replicate = replicate
        self._wake = wake
        self._clock = clock
        self._applied_at = clock()
        self._queue: deque[tuple[bytes | None, Done]] = deque()
        self._queued_bytes = 0
        #: by index of an appended entry: its term, who waits for which command of it, and since when
        self._waiting: dict[int, tuple[int, list[tuple[int | None, Done]], float]] = {}
        self.commit_times = Histogram(COMMIT_BOUNDS_MS)
        """Milliseconds from each entry of this leader to its application."""
        self._has_applied = False
        self._closed = False

    def propose(self, consensus: Consensus, command: bytes | None, done: Done) -> None:
        """Replicate `command`; None is a barrier. It waits in the queue until the library's next turn.

        `done` gets what `apply` returned, or `NotLeader`, `OutcomeUnknown` or `Overloaded`. Raises ValueError for a
        command over the limit.
        """
        limit = self._settings.command_bytes_max
        if command is not None and len(command) > limit:
            raise ValueError(f"command of {len(command)} bytes, at most {limit} are allowed")
        if not consensus.active or self._closed:
            done(None, NotLeader(consensus.leader_id))
            return
        size = len(command or b"") + OVERHEAD_BYTES
        waiting = self._queued_bytes + self._journal.unsynced_bytes
        if waiting + size > self._settings.waiting_bytes_max:
            done(None, Overloaded(f"{waiting} bytes of commands are waiting for the disk"))
            return
        self._queue.append((command, done))
        self._queued_bytes += size
        self._wake()

    def append_queued(self, consensus: Consensus) -> None:
        """Everything queued becomes one entry, or several of bounded size."""
        if not self._queue or not consensus.leads:
            return
        now_s = self._clock()
        while self._queue:
            commands: list[bytes] = []
            waiting: list[tuple[int | None, Done]] = []
            size = 0
            while self._queue and (
                not size or size + len(self._queue[0][0] or b"") <= self._settings.group_bytes
            ):
                command, done = self._queue.popleft()
                if command is None:
                    waiting.append((None, done))
                    continue
                waiting.append((len(commands), done))
                commands.append(command)
                size += len(command) + OVERHEAD_BYTES
            index, term = self._journal.last_index + 1, consensus.term
            self._journal.append(pack_group(commands), index, term)
            self._waiting[index] = (term, waiting, now_s)
        self._queued_bytes = 0
        self._replicate()

    def apply_committed(self, consensus: Consensus) -> None:
        """Apply a slice of what is committed, in order, if it is time for that."""
        if not self.is_due(consensus):
            return
        budget = self._settings.apply_commands_per_turn
        entries = self._journal.entries
        while self._backlog(consensus) > 0 and budget > 0:
            index = consensus.last_applied + 1
            payload, entry_index, term = entries[index - entries[0][1]]
            if entry_index != index:
                raise BrokenInvariant(f"entry {index} is found at the place of {entry_index}")
            commands = unpack_group(payload)
            with gc_paused(stays=True):
                results = [self._machine.apply(index, term, command) for command in commands]
            consensus.mark_applied(index)
            self._compactor.applied(len(payload))
            self._has_applied = True
            budget -= 1 + len(commands)
            self._answer(consensus, index, term, results)
        self._applied_at = self._clock()

    def is_due(self, consensus: Consensus) -> bool:
        """Whether something is to be applied now. The leader does not put it off."""
        backlog = self._backlog(consensus)
        if backlog <= 0 or consensus.leads or backlog > BACKLOG_MAX:
            return backlog > 0
        patience_s = APPLY_WHILE_WRITING_EVERY_S if self._journal.syncing else APPLY_EVERY_S
        return self._clock() - self._applied_at >= patience_s

    def hurry(self) -> None:
        """Put nothing off: this node may have to lead in a moment."""
        self._applied_at = -inf

    def take_applied(self) -> bool:
        """Whether anything has been applied since this was asked last."""
        has_applied, self._has_applied = self._has_applied, False
        return has_applied

    def give_up(self) -> None:
        """Leadership has ended: what is queued was never appended, and of the rest nobody knows yet."""
        queue, self._queue = self._queue, deque()
        waiting, self._waiting = self._waiting, {}
        self._queued_bytes = 0
        for _, done in queue:
            done(None, NotLeader(None))
        for _, dones, _ in waiting.values():
            for _, done in dones:
                done(None, OutcomeUnknown("leadership ended before the command was committed"))

    def close(self) -> None:
        """This node takes no further part: it gives up what waits, and takes no more."""
        self._closed = True
        self.give_up()

    def check(self, consensus: Consensus) -> None:
        """AssertionError if this contradicts itself or the library's state."""
        applied, last = consensus.last_applied, self._journal.last_index
        if (self._waiting or self._queue) and not consensus.leads:
            raise BrokenInvariant(f"commands wait for {sorted(self._waiting)}, and this node does not lead")
        if self._waiting and not applied < min(self._waiting) <= max(self._waiting) <= last:
            raise BrokenInvariant(
                f"commands wait for {sorted(self._waiting)}, {applied}..{last} are to be applied"
            )
        queued = sum(len(command or b"") + OVERHEAD_BYTES for command, _ in self._queue)
        if queued != self._queued_bytes:
            raise BrokenInvariant(f"{queued} bytes are queued, {self._queued_bytes} counted")

    def _backlog(self, consensus: Consensus) -> int:
        """How many entries may be applied. A follower leaves the newest one while it writes."""
        may_wait = self._journal.syncing and not consensus.leads
        return consensus.commit_index - consensus.last_applied - may_wait

    def _answer(self, consensus: Consensus, index: int, term: int, results: list[object]) -> None:
        if index not in self._waiting:
            return
        appended_in, waiting, since_s = self._waiting.pop(index)
        if appended_in == term:
            self.commit_times.observe((self._clock() - since_s) * 1000)
        for position, done in waiting:
            if appended_in != term:
                done(None, NotLeader(consensus.leader_id))
            else:
                done(None if position is None else results[position], None)
