"""Mistakes that brokers of share groups have made, or that their rules name, each with the test that sees it.

The histories of a share partition find the mistakes of `tests/dataplane/share/share_mutants.py`. The simulation of a
cluster finds those of `tests/simulation/share/mutants.py`. The mistakes here need rare steps, or concern keys,
sessions, durable states, dead letters and the requests of members.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple
from unittest.mock import patch

from ottla.dataplane.share import partition as partition_module
from ottla.dataplane.share.acquisition import Acquisition
from ottla.dataplane.share.key_order import KeyOrder
from ottla.dataplane.share.leader.acknowledging import AcknowledgeRound
from ottla.dataplane.share.leader.dead_letters import DeadLetters
from ottla.dataplane.share.leader.dependencies import LetterTopic, ShareKey, StateChange
from ottla.dataplane.share.leader.group_settings import GroupSettings, ShareGroupSettings
from ottla.dataplane.share.leader.letters import LetterForm
from ottla.dataplane.share.leader.share_sessions import ShareSessions
from ottla.dataplane.share.letter_office import StateTransactions
from ottla.dataplane.share.partition import SharePartition
from ottla.dataplane.share.sessions import (
    SessionKey,
    SharedPartition,
    ShareSession,
    ShareSessionCache,
    next_epoch,
)
from ottla.dataplane.share.state.stored_state import ShareState, Write
from ottla.dataplane.share.states import Available, Blocked, Delayed, State, StateBatch
from ottla.dataplane.share.transitions import DeadRecords
from ottla.protocol.errors import KafkaError
from ottla.protocol.records.record import NewRecord, Record
from tests.dataplane.share import test_key_order as keys
from tests.dataplane.share import test_letter_office as office
from tests.dataplane.share import test_share_partition as windows
from tests.dataplane.share import test_share_sessions as sessions
from tests.dataplane.share.state import test_stored_state as states
from tests.simulation.share.mutants import MUTANTS as OF_A_CLUSTER

from . import test_dead_letters as letters
from . import test_led_partitions as partitions
from . import test_letters as forms
from . import test_share_fetch as fetches


class Mistake(NamedTuple):
    """A mistake, and the test that sees the mistake. The test may have the parameters `broker` and `caplog`."""

    planted: Callable[[], AbstractContextManager[None]]
    test: Callable[..., Any]


MISTAKES: dict[str, Mistake] = {}


def seen_by(test: Callable[..., Any]) -> Callable[[Callable[[], Iterator[None]]], None]:
    def note(plant: Callable[[], Iterator[None]]) -> None:
        MISTAKES[plant.__name__] = Mistake(contextmanager(plant), test)

    return note


# ------------------------------------------------------------ keys


@seen_by(keys.test_one_released_key_stops_no_others)
def released_key_stops_others() -> Iterator[None]:
    """A released or delayed record of one key holds up the records of all keys behind it (apache/pulsar#8703,
    apache/pulsar#21656)."""
    take_ordered = Acquisition.take_ordered

    def up_to_the_first_held(self: Acquisition, first: int, last: int, order: KeyOrder) -> None:
        held = [begin for begin, _, state in self._runs.all_runs() if isinstance(state, Delayed)]
        if not held:
            take_ordered(self, first, last, order)
            return
        if held[0] > first:
            take_ordered(self, first, held[0] - 1, order)
        self._has_ended = True

    with patch.object(Acquisition, "take_ordered", up_to_the_first_held):
        yield


@seen_by(keys.test_a_key_is_blocked_until_its_first_record_ends)
def released_key_is_overtaken() -> Iterator[None]:
    """A released record frees its key, so the next record of the key comes before it."""

    def finish(self: SharePartition, first: int, last: int) -> None:
        for offset in () if self._order is None else self._order.finish(first, last):
            self._runs.update(
                offset,
                offset,
                lambda state: Available(state.delivery_count) if isinstance(state, Blocked) else state,
            )

    with patch.object(SharePartition, "_finish_keys", finish):
        yield


@seen_by(keys.test_a_new_leader_walks_the_window_before_it_delivers_records)
def order_lost_at_failover() -> Iterator[None]:
    """A new leader delivers a record beside the earlier record of its key, which the former leader had delivered."""
    restore = SharePartition.restore

    def unordered(*state: Any) -> SharePartition:
        share = restore(*state)
        if share._order is not None:
            share._order.skip(share.end_offset)
        return share

    with patch.object(SharePartition, "restore", unordered):
        yield


# ------------------------------------------------------------ locks, delays and transactions


@seen_by(windows.test_a_renewed_lock_lasts_longer)
def renewal_without_effect() -> Iterator[None]:
    """A renewed lock ends at its first deadline, and another member gets the record (KIP-1222)."""
    with patch.object(partition_module, "renewal", lambda _deadline_ms: lambda state: state):
        yield


@seen_by(windows.test_a_record_released_with_a_delay_stays_unavailable_until_then)
def delay_lost_at_failover() -> Iterator[None]:
    """A new leader delivers a released record before the end of its delay."""
    restored = partition_module.restored_state

    def undelayed(batch: StateBatch) -> State:
        return restored(batch._replace(not_before_ms=0))

    with patch.object(partition_module, "restored_state", undelayed):
        yield


@seen_by(windows.test_pending_acknowledgements_survive_a_failover)
def transaction_lost_at_failover() -> Iterator[None]:
    """A new leader delivers a record whose acknowledgement is part of an open transaction."""
    with patch.object(SharePartition, "restore_pending", lambda *_args: None):
        yield


# ------------------------------------------------------------ sessions


@seen_by(fetches.test_a_request_that_opens_a_session_has_no_acknowledgements)
def acknowledgements_open_a_session() -> Iterator[None]:
    """A request that opens a session acknowledges records, which its member no longer holds. Kafka answers
    "Acknowledge data present in Initial Fetch Request"."""
    fetch = ShareSessions.fetch

    def unchecked(self: ShareSessions, *request: Any, **fields: Any) -> ShareSession:
        return fetch(self, *request, **(fields | {"has_acknowledgements": False}))

    with patch.object(ShareSessions, "fetch", unchecked):
        yield


@seen_by(sessions.test_epochs_follow_each_other)
def any_epoch_continues_a_session() -> Iterator[None]:
    """A request that was sent twice counts twice, and its member misses the records of an answer."""

    def advance(self: ShareSessionCache, key: SessionKey, epoch: int) -> ShareSession:
        session = self._get(key)
        session.epoch = next_epoch(epoch)
        return session

    with patch.object(ShareSessionCache, "_advance", advance):
        yield


@seen_by(fetches.test_a_forgotten_partition_keeps_its_locks)
def forgotten_partition_loses_its_locks() -> Iterator[None]:
    """A member that removes a partition from its session loses the records that it is at work with."""
    update = ShareSessions._update

    def released(
        self: ShareSessions,
        session: ShareSession,
        holders: tuple[str, ...],
        added: list[SharedPartition],
        forgotten: list[SharedPartition],
    ) -> None:
        for partition in forgotten:
            led = self._partitions.find(ShareKey(session.key.group_id, *partition))
            if led is not None:
                led.release(session.key.member_id, lambda _error: None)
        update(self, session, holders, added, forgotten)

    with patch.object(ShareSessions, "_update", released):
        yield


@seen_by(fetches.test_a_closed_session_keeps_the_locks_of_a_partition_that_it_has_forgotten)
def session_ends_in_all_partitions() -> Iterator[None]:
    """A closed session releases the member's records in partitions that the member has removed from it before
    (confluentinc/librdkafka#5508)."""
    with OF_A_CLUSTER["session-ends-in-all-partitions"].planted():
        yield


# ------------------------------------------------------------ requests


@seen_by(fetches.test_a_wrong_acknowledgement_spoils_no_other_partition)
def wrong_acknowledgement_spoils_the_request() -> Iterator[None]:
    """An acknowledgement of a lost lock refuses the acknowledgements of all partitions behind it."""
    apply = AcknowledgeRound._apply

    def together(self: AcknowledgeRound, acknowledge: Callable[..., None], *request: Any) -> None:
        errors: list[KafkaError] = []

        def unless_failed(*acknowledgement: Any) -> None:
            try:
                for error in errors:
                    raise error
                acknowledge(*acknowledgement)
            except KafkaError as error:
                errors.append(error)
                raise

        apply(self, unless_failed, *request)

    with patch.object(AcknowledgeRound, "_apply", together):
        yield


def _with_settings(**changed: Any) -> AbstractContextManager[Any]:
    get = ShareGroupSettings.get

    def altered(self: ShareGroupSettings, group_id: str) -> GroupSettings:
        return get(self, group_id)._replace(**changed)

    return patch.object(ShareGroupSettings, "get", altered)


@seen_by(partitions.test_renewals_are_refused_where_the_group_forbids_them)
def renewal_that_the_group_forbids() -> Iterator[None]:
    """A member keeps a record for ever, though share.renew.acknowledge.enable is false."""
    with _with_settings(may_renew=True):
        yield


@seen_by(partitions.test_a_read_committed_group_gets_no_aborted_records)
def isolation_ignored() -> Iterator[None]:
    """A group with share.isolation.level=read_committed gets the records of aborted transactions."""
    with _with_settings(is_read_committed=False):
        yield


# ------------------------------------------------------------ durable states


@seen_by(states.test_an_older_leader_neither_reads_nor_writes)
def former_leader_writes() -> Iterator[None]:
    """A leader that was replaced writes that records are available which the next leader has finished."""
    with patch.object(ShareState, "_check_leader", lambda *_args: None):
        yield


@seen_by(states.test_a_write_for_a_former_state_is_refused)
def former_state_written() -> Iterator[None]:
    """An acknowledgement from before AlterShareGroupOffsets finishes a record that the group has to get again."""

    def check(self: ShareState, write: Write) -> None:
        self._check_leader(write.leader_epoch)

    with patch.object(ShareState, "check_write", check):
        yield


# ------------------------------------------------------------ dead letters


@seen_by(letters.test_a_record_waits_while_its_letter_cannot_be_written)
def archived_regardless() -> Iterator[None]:
    """A record is archived though its letter was not written. Apache Kafka 4.4 logs "Failed to write to DLQ,
    proceeding to ARCHIVED regardless"."""
    write_some = DeadLetters._write_some

    async def regardless(self: DeadLetters, dead: Sequence[DeadRecords]) -> None:
        try:
            await write_some(self, dead)
        except KafkaError:
            share = self._led.share
            assert share is not None
            await self._led.written(share.dead_letter_written([(found.first, found.last) for found in dead]))
            raise

    with patch.object(DeadLetters, "_write_some", regardless):
        yield


@seen_by(office.test_a_letter_and_the_end_of_its_record_are_one_transaction)
def letter_apart_from_the_end() -> Iterator[None]:
    """A letter is written, and then the end of its record. A leader that dies in between leaves a letter of a record
    that is delivered again (apache/kafka#22080)."""

    async def apart(
        self: StateTransactions, topic: LetterTopic, letters: Sequence[NewRecord], change: StateChange
    ) -> None:
        writer = await self._initialized()
        await self._appends.append(topic.topic_id, topic.partition, b"", writer)
        await self._committed(writer)
        await self._persister.write_in_transaction(*self._key, **change._asdict(), writer=writer)

    with patch.object(StateTransactions, "commit", apart):
        yield


@seen_by(forms.test_a_letter_that_its_topic_would_refuse_has_headers_alone)
def large_letter_is_never_written() -> Iterator[None]:
    """The topic refuses a letter that is too large, so its record and all dead records behind it wait for ever."""
    letter = LetterForm.letter

    def whole(self: LetterForm, record: Record | None, offset: int, dead: DeadRecords) -> NewRecord:
        return letter(self._replace(bytes_max=2**31), record, offset, dead)

    with patch.object(LetterForm, "letter", whole):
        yield
