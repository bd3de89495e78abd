"""Counts of the interesting branches that a run takes, counted where they are taken.

A simulation that silently stops exploring finds nothing. So truncations, elections, refusals and the like are counted,
and a test asserts that a batch of seeds covers each.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from ottla.dataplane.groups import consumer_shell, shard
from ottla.dataplane.groups.classic.group import ClassicGroup
from ottla.dataplane.groups.classic.states import GroupState
from ottla.dataplane.groups.consumer.group import ConsumerGroup
from ottla.dataplane.groups.coordinator import GroupCoordinator
from ottla.dataplane.groups.shard import Shard
from ottla.dataplane.log.old_segments import OldSegments
from ottla.dataplane.log.partition_log import PartitionLog
from ottla.dataplane.log.produced import ProducedBatches
from ottla.dataplane.log.recovery import recovery
from ottla.dataplane.log.segments.segment import Segment
from ottla.dataplane.log.truncation import Truncation
from ottla.dataplane.replication.leader import follower_session
from ottla.dataplane.replication.replica.following import Following
from ottla.dataplane.replication.replica.partition import Partition
from ottla.dataplane.replication.replicas.damage import Damage
from ottla.dataplane.replication.replicas.offline import OfflineReplicas
from ottla.dataplane.replication.roles.leader import LeaderState
from ottla.dataplane.transactions.markers import Markers
from ottla.dataplane.transactions.pending_writes import PendingTransactionWrites
from ottla.metadata_quorum.raft.core import Core
from ottla.metadata_quorum.state import election, partitions, reassignment, transaction_decisions
from ottla.metadata_quorum.transaction_deadlines import TransactionClocks
from ottla.protocol.cluster.cluster_image import PartitionState
from ottla.protocol.errors import ErrorCode, KafkaError
from tests.histories.operations import History

NAMED_ERRORS = (
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.OFFSET_OUT_OF_RANGE,
    ErrorCode.STALE_BROKER_EPOCH,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.UNKNOWN_PRODUCER_ID,
)

Namer = Callable[[tuple[Any, ...], Any], str | None]
"""A function that names the branch taken by a call, from its arguments and result; None for an uninteresting one."""


@contextmanager
def counting(branches: Counter[str]) -> Iterator[None]:
    """Count branches within the block."""
    with ExitStack() as stack:
        for owner, name, namer in (
            (Partition, "become_leader", _leadership),
            (Following, "truncate_diverging", lambda _arguments, _result: "divergence told to a follower"),
            (
                follower_session,
                "diverges",
                lambda _arguments, result: "divergence found by a leader" if result else None,
            ),
            (
                recovery,
                "_recovered",
                lambda arguments, _: (
                    f"recovered by {'headers' if arguments[1].only_process_died else 'all bytes'}"
                ),
            ),
            (Segment, "truncate", lambda _arguments, _result: "segment cut"),
            (
                ProducedBatches,
                "append",
                lambda _, result: "duplicate answered" if result.duplicate else None,
            ),
            (Truncation, "truncate_fully_and_start_at", lambda _arguments, _result: "log begun anew"),
            (LeaderState, "propose_expand", lambda _, result: result and "ISR expansion proposed"),
            (LeaderState, "propose_shrink", lambda _, result: result and "ISR shrink proposed"),
            (partitions, "_refusal", _refused),
            (KafkaError, "__init__", _error),
            (
                TransactionClocks,
                "expire",
                lambda _arguments, late: "transaction expired" if late is not None else None,
            ),
            (
                transaction_decisions,
                "abort_and_fence",
                lambda _arguments, _result: "open transaction aborted",
            ),
            (transaction_decisions, "abort_by_itself", lambda _arguments, _result: "aborted by the cluster"),
            (
                transaction_decisions,
                "_free_in_pool",
                lambda _arguments, free: "producer id of a former writer" if free is not None else None,
            ),
            (PendingTransactionWrites, "wait", lambda _arguments, _result: "transactional write waited"),
            (Partition, "append_marker", lambda _arguments, _end: "marker written"),
            (Markers, "elected", _owed),
            (
                Shard,
                "commit_in_transaction",
                lambda _arguments, _result: "offsets committed in a transaction",
            ),
            (Core, "leadership_begins", lambda _arguments, _result: "quorum node leads"),
            (reassignment, "begun", lambda arguments, state: _changed(arguments, state, "move begun")),
            (
                reassignment,
                "completed",
                lambda arguments, state: _changed(arguments, state, "move completed"),
            ),
            (
                reassignment,
                "cancelled",
                lambda arguments, state: _changed(arguments, state, "move called off"),
            ),
            (
                election,
                "elect_preferred",
                lambda arguments, state: _changed(arguments, state, "preferred elected"),
            ),
            (election, "_elected", _elected_uncleanly),
            (PartitionLog, "advance_log_start_offset", lambda _arguments, _result: "log start moved"),
            (
                OldSegments,
                "retain",
                lambda _arguments, dropped: "segments retained no longer" if dropped else None,
            ),
            (OldSegments, "replace", lambda _arguments, _result: "segments compacted"),
            (OfflineReplicas, "add", lambda _arguments, _result: "replica offline"),
            (Damage, "condemn", lambda _arguments, _result: "damaged log found in use"),
            (Damage, "_begin", lambda _arguments, _result: "damaged replica made anew"),
            (GroupCoordinator, "elected", lambda _arguments, _result: "coordinator elected"),
            (Shard, "close", lambda arguments, _result: _resigned(arguments[0])),
            (shard, "check_commit", _commit_refused),
            (ClassicGroup, "_become", _group_became),
            (ClassicGroup, "_remove", lambda _arguments, _result: "classic member removed"),
            (consumer_shell, "upgrade", lambda _arguments, _group: "classic group upgraded"),
            (consumer_shell, "downgrade", lambda _arguments, _group: "consumer group downgraded"),
            (ConsumerGroup, "bump", lambda _arguments, _result: "consumer group: next epoch"),
            (
                ConsumerGroup,
                "tick",
                lambda _arguments, late: "consumer group: member expired" if late else None,
            ),
        ):
            stack.enter_context(patch.object(owner, name, _counted(getattr(owner, name), namer, branches)))
        yield


def _counted(function: Callable[..., Any], namer: Namer, branches: Counter[str]) -> Callable[..., Any]:
    @functools.wraps(function)
    def counted(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        if branch := namer(args, result):
            branches[branch] += 1
        return result

    return counted


def _leadership(arguments: tuple[Any, ...], began: Any) -> str | None:
    state: PartitionState = arguments[1]
    if not began:
        return None
    return "leadership begins uncleanly" if state.unclean else "leadership begins"


def _elected_uncleanly(arguments: tuple[Any, ...], result: Any) -> str | None:
    """Name an election of a leader outside the ISR, the ELR and the last known ELR."""
    was = arguments[1]
    known = {*was.isr, *was.elr, *was.last_known_elr}
    return "unclean election" if result.unclean and result.leader not in {*known, was.leader} else None


def _changed(arguments: tuple[Any, ...], state: PartitionState, branch: str) -> str | None:
    return None if state is arguments[0] else branch


def _owed(arguments: tuple[Any, ...], _result: Any) -> str | None:
    markers, partition = arguments
    here = markers._image().transactions.at((partition.topic_id, partition.index))
    return (
        "marker owed by a new leader"
        if any(transaction.phase.is_decided for transaction in here.values())
        else None
    )


def _refused(_arguments: tuple[Any, ...], result: Any) -> str | None:
    return None if result == ErrorCode.NONE else f"ISR change refused: {ErrorCode(result).name}"


def _resigned(shard: Shard) -> str:
    return "coordinator resigned" if shard.loaded else "coordinator resigned before it had loaded"


def _commit_refused(_arguments: tuple[Any, ...], result: Any) -> str | None:
    return None if result == ErrorCode.NONE else f"commit refused: {ErrorCode(result).name}"


def _group_became(arguments: tuple[Any, ...], _result: Any) -> str:
    state: GroupState = arguments[1]
    return f"classic group: {state.value}"


def told(history: History) -> Counter[str]:
    """Count operations of clients and their outcomes, by name."""
    counts = Counter({f"history: {kind}": count for kind, count in history.counts().items()})
    counts += Counter(f"commit: {commit.error}" for commit in history.commits)
    counts += Counter(
        f"transaction of a {transaction.transactional_id}: {transaction.error}"
        for transaction in history.transactions
        if transaction.app_version
    )
    counts["history: Poll in a transaction"] += sum(poll.transaction is not None for poll in history.polls)
    counts += Counter(f"continued: {position.reason}" for position in history.positions)
    counts += Counter(f"probe: {probe.what}: {probe.got}" for probe in history.probes)
    return counts


def _error(arguments: tuple[Any, ...], _result: Any) -> str | None:
    error: KafkaError = arguments[0]
    if error.message.endswith("did last"):
        return "refused: a request of an older connection"
    return f"refused: {error.code.name}" if error.code in NAMED_ERRORS else None
