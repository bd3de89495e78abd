"""Registration, fencing and shutdown of brokers."""

from __future__ import annotations

from dataclasses import replace

from ...protocol.cluster.cluster_image import UNKNOWN_TIME_MS, BrokerState
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.features import OURS, PLACEMENT, PLACEMENT_BY_HOSTS, finalized
from ...protocol.messages.broker_commands import (
    BeginControlledShutdown,
    ControlledShutdownResult,
    FenceBroker,
    RegisterBroker,
    RegisterBrokerResult,
    UnfenceBroker,
    UnregisterBroker,
)
from ...protocol.messages.command import PlainResult
from ...protocol.messages.metadata_records import BrokerRemovedRecord
from . import election
from .election import NO_PROGRESS, Leave
from .workspace import ProgressByPartition, Workspace


def register(work: Workspace, command: RegisterBroker) -> RegisterBrokerResult:
    """Register a broker. A new incarnation fences the old one; after an unclean stop it also leaves the ISRs and ELRs.

    A missing data folder counts as an unclean stop, whatever the other conditions say, since its replicas start empty.
    """
    broker_id = command.broker_id
    if broker_id < 0:
        raise KafkaError(ErrorCode.INVALID_REGISTRATION, f"broker id {broker_id} is negative")
    _check_features(work, command)
    old = work.image.brokers.get(broker_id)
    if old is not None and old.incarnation == command.incarnation:
        return RegisterBrokerResult(broker_epoch=old.broker_epoch)
    epoch = work.image.offset + 1
    work.set_broker(
        BrokerState(
            broker_id,
            epoch,
            command.incarnation,
            tuple(command.listeners),
            command.rack,
            fenced=True,
            log_dirs=tuple(command.log_dirs),
            features=tuple(command.features),
            host=command.host if finalized(work.image.features)[PLACEMENT] >= PLACEMENT_BY_HOSTS else None,
            fenced_since_ms=old.fenced_since_ms if old is not None and old.fenced else command.now_ms,
        )
    )
    clean = (
        old is not None
        and command.previous_broker_epoch == old.broker_epoch
        and set(old.log_dirs) <= set(command.log_dirs)
    )
    _forget_offline_replicas(work, broker_id)
    _leave_partitions(work, broker_id, election.without if clean else election.after_unclean_stop, {})
    return RegisterBrokerResult(broker_epoch=epoch)


def _check_features(work: Workspace, command: RegisterBroker) -> None:
    """Check that the broker's program supports the finalized features. A broker without ACLs would permit everything.
    Raises KafkaError."""
    levels = finalized(work.image.features)
    for name in OURS:
        known = max((feature.most for feature in command.features if feature.name == name), default=0)
        if known < levels[name]:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"{name} is at level {levels[name]}, and the program of broker {command.broker_id} knows level "
                f"{known} at most: upgrade it",
            )


def _forget_offline_replicas(work: Workspace, broker_id: int) -> None:
    """Clear the broker's offline replicas: the new process checks its folders again, and reports before it asks to be
    unfenced."""
    for topic_id, index, state in work.partitions():
        if broker_id in state.offline_replicas:
            left = tuple(offline for offline in state.offline_replicas if offline != broker_id)
            epoch = state.partition_epoch + 1
            work.set_partition(topic_id, index, replace(state, offline_replicas=left, partition_epoch=epoch))


def current(work: Workspace, broker_id: int, broker_epoch: int) -> BrokerState:
    """Return the registration that a command refers to. Raises KafkaError if it is outdated or missing."""
    broker = work.image.brokers.get(broker_id)
    if broker is None:
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {broker_id} is not registered")
    if broker.broker_epoch != broker_epoch:
        raise KafkaError(
            ErrorCode.STALE_BROKER_EPOCH,
            f"broker {broker_id} is registered with epoch {broker.broker_epoch}, not {broker_epoch}",
        )
    return broker


def fence(work: Workspace, command: FenceBroker) -> PlainResult:
    """Fence a broker. It leaves its ISRs, and its partitions get new leaders."""
    broker = current(work, command.broker_id, command.broker_epoch)
    if not broker.fenced:
        work.set_broker(replace(broker, fenced=True, fenced_since_ms=command.now_ms))
        _leave_partitions(work, broker.broker_id, election.without, work.by_partition(command.progress))
    return PlainResult()


def unfence(work: Workspace, command: UnfenceBroker) -> PlainResult:
    """Unfence a broker. It may lead again, and does so at once in partitions without a leader."""
    broker = current(work, command.broker_id, command.broker_epoch)
    if broker.fenced:
        work.set_broker(replace(broker, fenced=False, fenced_since_ms=UNKNOWN_TIME_MS))
        for topic_id, index, state in work.partitions():
            if state.leader < 0 and broker.broker_id in state.replicas:
                work.set_partition(topic_id, index, election.elect(state, work.electorate(topic_id)))
    return PlainResult()


def begin_controlled_shutdown(work: Workspace, command: BeginControlledShutdown) -> ControlledShutdownResult:
    """Remove the broker from its ISRs and leaderships while it still serves. Repeating the command tries again."""
    broker = current(work, command.broker_id, command.broker_epoch)
    if not broker.fenced:
        work.set_broker(replace(broker, shutting_down=True))
        _leave_partitions(work, broker.broker_id, election.without, work.by_partition(command.progress))
    remaining = sum(state.leader == broker.broker_id for _, _, state in work.partitions())
    return ControlledShutdownResult(remaining_leaderships=remaining)


def unregister(work: Workspace, command: UnregisterBroker) -> PlainResult:
    """Remove the broker's registration; it stays in replica lists, as in Kafka."""
    if command.broker_id not in work.image.brokers:
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {command.broker_id} is not registered")
    work.emit(BrokerRemovedRecord(broker_id=command.broker_id))
    _leave_partitions(work, command.broker_id, election.without, {})
    return PlainResult()


def _leave_partitions(work: Workspace, broker_id: int, leave: Leave, progress: ProgressByPartition) -> None:
    leaving = election.LeavingBroker(broker_id, leave)
    for topic_id, index, state in work.partitions():
        if broker_id in state.isr or broker_id in state.elr:
            known = progress.get((topic_id, index), NO_PROGRESS)
            work.set_partition(topic_id, index, leaving.after(state, work.electorate(topic_id), known))
