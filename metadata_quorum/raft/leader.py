"""A leader's side of replication: sending entries to each follower, and counting their durable entries.

Entries are sent ahead of replies, within a window of bytes. A follower's confirmation is passed to the library up to
this node's own durable index, and again when that index rises. Nothing commits therefore before a majority *including
this node* has synced it, while heartbeats continue whatever the disk does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from . import syncobj
from .disk import Disk, File
from .follower_contact import FollowerContacts, Replication
from .journal import Journal
from .journal_recovery import Entry
from .messages import ENTRY_OVERHEAD_BYTES, Append, AppendReply, Message, SnapshotChunk, SnapshotReply
from .progress import Mode, ReplicationProgress
from .settings import Settings
from .snapshots import Snapshot, SnapshotStore
from .syncobj import Consensus

_SILENT_HEARTBEATS_MAX = 250


@dataclass(slots=True)
class _Transfer:
    """The transfer of a snapshot to one follower."""

    snapshot: Snapshot
    file: File
    sent: int = 0
    received: int = 0
    refused_from: int | None = None
    silent_heartbeats: int = 0

    def at_heartbeat(self) -> None:
        """Move the transfer back to the position that the follower asked for, or to the start of the snapshot after a
        long silence.

        Only heartbeats do this, so that a burst of refused chunks does not cause a burst of resends.
        """
        self.silent_heartbeats += 1
        if self.refused_from is not None:
            self.sent = self.received = self.refused_from
            self.refused_from = None
        elif self.silent_heartbeats >= _SILENT_HEARTBEATS_MAX:
            self.sent = self.received = self.silent_heartbeats = 0


class Replicator:
    """A leader's replication to all followers: entries, heartbeats and snapshots. Peers without a connection have no
    progress."""

    def __init__(
        self,
        settings: Settings,
        consensus: Consensus,
        journal: Journal,
        store: SnapshotStore,
        disk: Disk,
        send: Callable[[int, Message], None],
        writable: Callable[[int], bool],
        clock: Callable[[], float],
    ) -> None:
        self._settings = settings
        self._consensus = consensus
        self._journal = journal
        self._store = store
        self._disk = disk
        self._send = send
        self._writable = writable
        self._clock = clock
        self._contacts = FollowerContacts()
        self._connected: set[int] = set()
        self._followers: dict[int, ReplicationProgress] = {}
        self._transfers: dict[int, _Transfer] = {}
        #: last acknowledged index of each follower in this leadership, connected or not
        self._acknowledged: dict[int, int] = {}
        #: last index of each follower that was reported to the library
        self._reported: dict[int, int] = {}

    @property
    def acknowledged(self) -> dict[int, int]:
        """Last committed index that each follower of this leadership is known to have stored durably."""
        committed = self._consensus.commit_index
        return {peer: min(index, committed) for peer, index in self._acknowledged.items()}

    @property
    def needed_from(self) -> int | None:
        """Lowest index after which a follower that receives, or has installed, a snapshot needs entries; None if there
        is no such follower."""
        sent = [transfer.snapshot.index for transfer in self._transfers.values()]
        installed = [
            follower.next_index - 1
            for follower in self._followers.values()
            if follower.restored and follower.mode is not Mode.SNAPSHOT
        ]
        return min(sent + installed, default=None)

    @property
    def replication(self) -> Replication:
        """Replication state of the leader and its followers; meaningless unless this node leads."""
        return Replication(
            self._journal.last_index + 1,
            self._consensus.commit_index + 1,
            self._contacts.standings(self._clock()),
        )

    def leadership_begins(self) -> None:
        """Begin replication to all connected followers with a probe at the end of the log."""
        self.leadership_ends()
        for peer in self._connected:
            self._followers[peer] = ReplicationProgress(self._journal.last_index + 1)

    def leadership_ends(self) -> None:
        """Drop all followers."""
        for peer in list(self._transfers):
            self._end_transfer(peer)
        self._followers.clear()
        self._contacts.clear()
        self._acknowledged.clear()
        self._reported.clear()

    def connected(self, peer: int) -> None:
        """Begin replication to `peer` with a probe at the end of the log, since the peer may have restarted."""
        self._connected.add(peer)
        if self._consensus.leads:
            self._followers[peer] = ReplicationProgress(self._journal.last_index + 1)
            self._feed(peer, heartbeat=True)

    def disconnected(self, peer: int) -> None:
        """Drop the replication progress of `peer`, whose connection is gone."""
        self._connected.discard(peer)
        self._followers.pop(peer, None)
        self._reported.pop(peer, None)
        self._end_transfer(peer)

    def replicate(self, *, heartbeat: bool = False) -> None:
        """Send missing entries to every follower; with `heartbeat` every follower gets a message."""
        for peer in list(self._followers):
            self._feed(peer, heartbeat=heartbeat)

    def on_reply(self, peer: int, reply: AppendReply) -> None:
        """Process a follower's AppendReply of this term: advance or move back, and send what follows."""
        follower = self._followers.get(peer)
        if follower is None:
            return
        now = self._clock()
        if reply.success:
            self._contacts.confirmed(peer, reply.next_index, self._journal.last_index + 1, now)
            was_probing = follower.mode is Mode.PROBE
            if follower.mode is not Mode.SNAPSHOT:
                follower.confirmed(reply.next_index)
            self._acknowledged[peer] = max(self._acknowledged.get(peer, 0), reply.next_index - 1)
            self._report_to_library(peer, follower)
            if was_probing or follower.next_index <= self._journal.last_index:
                self._feed(peer)
        else:
            self._contacts.heard(peer, now)
            self._consensus.deliver(peer, syncobj.confirm(None))
            if follower.refused(reply.next_index, reply.generation):
                self._feed(peer)

    def on_snapshot_reply(self, peer: int, reply: SnapshotReply) -> None:
        """Process a follower's report on a snapshot transfer."""
        self._contacts.heard(peer, self._clock())
        self._consensus.deliver(peer, syncobj.confirm(None))
        follower, transfer = self._followers.get(peer), self._transfers.get(peer)
        if follower is None or transfer is None or transfer.snapshot.index != reply.index:
            return
        if reply.installed:
            self._end_transfer(peer)
            follower.snapshot_installed(reply.index)
        elif transfer.received < reply.received <= transfer.sent:
            transfer.received = reply.received
        else:
            transfer.refused_from = min(reply.received, transfer.snapshot.size)
        transfer.silent_heartbeats = 0
        self._feed(peer)

    def synced(self) -> None:
        """Report followers' acknowledgements to pysyncobj, after this node's own durable index has risen to allow
        it."""
        for peer, follower in self._followers.items():
            if follower.durable_index > self._reported.get(peer, 0):
                self._report_to_library(peer, follower)

    def _report_to_library(self, peer: int, follower: ReplicationProgress) -> None:
        durable = self._reported[peer] = min(follower.durable_index, self._journal.durable_index)
        self._consensus.deliver(peer, syncobj.confirm(durable + 1))

    def _feed(self, peer: int, *, heartbeat: bool = False) -> None:
        follower = self._followers[peer]
        if follower.mode is not Mode.SNAPSHOT and follower.next_index <= self._journal.base_index:
            self._begin_transfer(peer, follower)
        said_something = False
        if follower.mode is Mode.SNAPSHOT:
            if heartbeat:
                self._transfers[peer].at_heartbeat()
            self._send_chunks(peer)
        elif follower.mode is Mode.PROBE:
            if not follower.awaiting_reply or heartbeat:
                self._send_entries(peer, follower)
                said_something = True
        else:
            while self._may_stream(peer, follower):
                self._send_entries(peer, follower)
                said_something = True
        if heartbeat and not said_something:
            self._send_heartbeat(peer, follower)

    def _may_stream(self, peer: int, follower: ReplicationProgress) -> bool:
        return (
            follower.next_index <= self._journal.last_index
            and follower.in_flight_bytes < self._settings.window_bytes
            and self._writable(peer)
        )

    def _send_entries(self, peer: int, follower: ReplicationProgress) -> None:
        entries, size = self._batch(follower.next_index)
        self._append(peer, follower, follower.next_index - 1, tuple(entries))
        follower.sent(follower.next_index - 1 + len(entries), size)

    def _send_heartbeat(self, peer: int, follower: ReplicationProgress) -> None:
        previous = follower.next_index - 1
        if follower.mode is Mode.SNAPSHOT:
            previous = self._journal.base_index
        self._append(peer, follower, previous, ())

    def _append(
        self, peer: int, follower: ReplicationProgress, previous: int, entries: tuple[Entry, ...]
    ) -> None:
        previous_term = self._journal.term_at(previous)
        assert previous_term is not None
        consensus = self._consensus
        self._send(
            peer,
            Append(
                consensus.term, follower.generation, consensus.commit_index, previous, previous_term, entries
            ),
        )

    def _batch(self, first: int) -> tuple[list[Entry], int]:
        """Return entries from index `first` on, up to the size of one message, and their size in bytes."""
        entries, size = [], 0
        held = self._journal.entries
        for position in range(first - held[0][1], len(held)):
            entry = held[position]
            entries.append(entry)
            size += len(entry[0]) + ENTRY_OVERHEAD_BYTES
            if size >= self._settings.message_bytes:
                break
        return entries, size

    def _begin_transfer(self, peer: int, follower: ReplicationProgress) -> None:
        snapshot = self._store.latest
        assert snapshot is not None, "a log without its beginning has a snapshot"
        follower.begin_snapshot()
        self._transfers[peer] = _Transfer(snapshot, self._disk.open(snapshot.name))

    def _send_chunks(self, peer: int) -> None:
        transfer = self._transfers[peer]
        snapshot = transfer.snapshot
        in_flight_max = self._settings.chunks_in_flight * self._settings.chunk_bytes
        for _ in range(self._settings.chunks_per_turn):
            if transfer.sent >= snapshot.size or transfer.sent - transfer.received >= in_flight_max:
                return
            data = transfer.file.read(transfer.sent, self._settings.chunk_bytes)
            chunk = SnapshotChunk(
                self._consensus.term, snapshot.index, snapshot.term, snapshot.size, transfer.sent, data
            )
            transfer.sent += len(data)
            self._send(peer, chunk)

    def _end_transfer(self, peer: int) -> None:
        transfer = self._transfers.pop(peer, None)
        if transfer is not None:
            transfer.file.close()
