"""The path of a command through this node: from the queue into the log, and from the log into the state machine.

At the library's next turn, the leader's queue becomes an entry. Every node applies an entry once it is committed. The
leader does so at once, and answers the callers. No caller waits for a follower's machine, so a follower applies several
entries in one go when it is idle.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from math import inf
from typing import Final

from ...network.garbage_collection import gc_paused
from ...protocol.exposition import Histogram
from .compaction import Compactor
from .effects import Done, NotLeader, OutcomeUnknown, Overloaded
from .entries import OVERHEAD_BYTES, pack_group, unpack_group
from .journal import Journal
from .machine import Machine
from .safety import BrokenInvariant
from .settings import Settings
from .syncobj import Consensus

COMMIT_BOUNDS_MS: Final = (0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)

APPLY_EVERY_S = 0.02
"""Interval at which a follower applies committed entries."""
APPLY_WHILE_WRITING_EVERY_S = 0.05
"""Interval while the follower writes, since writing comes first."""
BACKLOG_MAX = 8
"""Number of entries that a follower may leave for later. It might become leader at any moment, and must apply the rest
first."""


class Commands:
    """The client commands of this node that wait to be appended, to reach a majority, or to be applied. pysyncobj calls
    this object (`CommandHooks`)."""

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
        """`replicate` is called as soon as entries have been appended. `wake` requests the library's next turn."""
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
        #: by index of an appended entry: its term, its callers by position of their command, and the time it was
        #: appended
        self._waiting: dict[int, tuple[int, list[tuple[int | None, Done]], float]] = {}
        self.commit_times = Histogram(COMMIT_BOUNDS_MS)
        """Milliseconds from appending to applying, for each entry that this leader appended."""
        self._has_applied = False
        self._closed = False

    def propose(self, consensus: Consensus, command: bytes | None, done: Done) -> None:
        """Queue `command` for replication at the library's next turn; None is a barrier.

        `done` gets the result of `apply`, or `NotLeader`, `OutcomeUnknown` or `Overloaded`. Raises ValueError for a
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
        """Append the queued commands as an entry, or as several entries of limited size."""
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
        """Apply a slice of the committed entries in order, if they are due."""
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
        """Return whether committed entries are to be applied now. A leader applies at once, a follower at intervals or
        when many entries wait."""
        backlog = self._backlog(consensus)
        if backlog <= 0 or consensus.leads or backlog > BACKLOG_MAX:
            return backlog > 0
        patience_s = APPLY_WHILE_WRITING_EVERY_S if self._journal.syncing else APPLY_EVERY_S
        return self._clock() - self._applied_at >= patience_s

    def hurry(self) -> None:
        """Let committed entries be applied in the next turn without delay: this node may have to lead soon."""
        self._applied_at = -inf

    def take_applied(self) -> bool:
        """Return whether entries have been applied since the last call."""
        has_applied, self._has_applied = self._has_applied, False
        return has_applied

    def give_up(self) -> None:
        """Fail all waiting commands when leadership ends.

        Queued commands were never appended, so they get `NotLeader`. The outcome of appended commands is unknown.
        """
        queue, self._queue = self._queue, deque()
        waiting, self._waiting = self._waiting, {}
        self._queued_bytes = 0
        for _, done in queue:
            done(None, NotLeader(None))
        for _, dones, _ in waiting.values():
            for _, done in dones:
                done(None, OutcomeUnknown("leadership ended before the command was committed"))

    def close(self) -> None:
        """Fail all waiting commands, and refuse new ones."""
        self._closed = True
        self.give_up()

    def check(self, consensus: Consensus) -> None:
        """Raise AssertionError if this object contradicts itself or the library's state."""
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
        """Return the number of committed entries to apply. A follower leaves out the newest entry while it writes."""
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
