"""Transactions: the effect of each command on a transactional id. Pure. `transaction_audience` chooses the recipients.

    phase        command                         becomes            epoch
    -            InitTransactionalId             EMPTY              0 of a new producer id
    over         InitTransactionalId             EMPTY              + 1 (at the last one: a new producer id)
    over         AddToTransaction, FindOrBegin   ONGOING            the same; the number rises
    -            FindOrBegin                     ONGOING            0 of a new producer id
    ONGOING      FindOrBegin                     ONGOING            the same
    ONGOING      AddToTransaction                ONGOING            the same
    ONGOING      EndTransaction                  PREPARE_x          + 1 if the client takes it up
    over         EndTransaction that bumps       COMPLETE_x         + 1; an empty transaction
    ONGOING      Init... of another producer     PREPARE_ABORT      + 1: the earlier owner is fenced
    ONGOING      Expire..., Abort..., its Init   PREPARE_ABORT      + 1, which its producer may take up (KIP-588)
    PREPARE_x    the last of ReportMarkers       COMPLETE_x         the same
    PREPARE_x    all others of a client          CONCURRENT_TRANSACTIONS, or the same answer if it is repeated
    over         Forget..., Delete...            -                  none: the next owner gets a new producer id
    all others   DeleteTransactionalId           CONCURRENT_TRANSACTIONS

The last two rows are in `transactional_ids`.

"Over" are EMPTY and COMPLETE_x. If no partition is outstanding, PREPARE_x is COMPLETE_x at once. A decided outcome
never changes.

A transaction that the cluster aborts by itself ends as if its producer had asked for the abort. Two requests under the
former epoch are answered with the current epoch: an EndTransaction that aborts, and InitTransactionalId. All other
requests under the former epoch are refused, so that nothing of an aborted transaction enters another one. A client that
cannot ask for the next epoch is fenced.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...protocol.cluster.transaction_table import (
    Phase,
    Place,
    Recovery,
    TransactionMetadata,
    Writer,
    places_of,
)
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.command import PlainResult
from ...protocol.messages.transaction_commands import (
    AbortTransaction,
    AddToTransaction,
    AddToTransactionResult,
    ChosenWriter,
    ClientOrigin,
    EndTransaction,
    EndTransactionResult,
    ExpireTransactions,
    FindOrBegin,
    FindOrBeginResult,
    InitTransactionalId,
    InitTransactionalIdResult,
    JoinTransaction,
    JoinTransactionResult,
    VerifyTransaction,
)
from .brokers import current
from .copies import check_is_no_copy
from .producer_ids import next_producer_id
from .transaction_audience import Telling
from .transaction_session import check_session, check_session_of_epoch
from .workspace import Workspace

EPOCH_LAST = 32766
"""Last epoch of a producer id. After it clients get a new producer id; epoch 32767 is left for fencing."""
_NUMBER_LAST = 2**31 - 1
WRITERS_MAX = 10_000
"""Limit for the writers in one transaction. Each takes memory on every node, and a permanent place in the pool."""


def init(work: Workspace, command: InitTransactionalId) -> InitTransactionalIdResult:
    """Return a producer id with its next epoch, which fences earlier owners of the transactional id."""
    transaction = work.image.transactions.by_id.get(command.transactional_id)
    if transaction is None:
        fresh = TransactionMetadata(
            command.transactional_id,
            next_producer_id(work),
            0,
            recovery=_recovery(command),
            timeout_ms=command.timeout_ms,
        )
        return _initialized(work, fresh, command)
    check_session(transaction, command.origin)
    expected = command.producer_epoch if command.producer_id >= 0 else None
    if expected is not None and not _may_be_of(transaction, command.producer_id, expected):
        raise _fenced(transaction)
    if transaction.phase.is_decided:
        raise _concurrent(transaction)
    if transaction.phase is Phase.ONGOING:
        if expected is not None and expected != transaction.producer_epoch:
            raise _fenced(transaction)
        if expected is None:
            abort_and_fence(work, transaction)
        else:
            _decide(work, _next_epoch(work, transaction, expected), False, set())
        raise _concurrent(transaction)
    changed = _next_epoch(work, transaction, expected)
    if changed is not transaction or transaction.phase is Phase.COMPLETE_ABORT:
        changed = changed.but(phase=Phase.EMPTY, commit_index=-1)
    changed = changed.but(timeout_ms=command.timeout_ms, recovery=_recovery(command))
    return _initialized(work, changed, command)


def _recovery(command: InitTransactionalId) -> Recovery:
    return Recovery.POSSIBLE if command.recovers else Recovery.NEVER


def _may_be_of(transaction: TransactionMetadata, producer_id: int, epoch: int) -> bool:
    """Return whether a producer with this id and epoch may continue (KIP-360)."""
    return producer_id == transaction.producer_id or (
        producer_id == transaction.last_producer_id and epoch >= EPOCH_LAST
    )


def _next_epoch(
    work: Workspace, transaction: TransactionMetadata, expected: int | None
) -> TransactionMetadata:
    """Return the transaction with the next epoch; unchanged if `expected` shows that the request is a repetition."""
    current = transaction.producer_epoch
    if expected is not None and expected not in (current, transaction.last_producer_epoch):
        raise _fenced(transaction)
    if expected is not None and expected != current:
        return transaction
    last = -1 if expected is None else current
    if current >= EPOCH_LAST:
        return transaction.but(
            producer_id=next_producer_id(work),
            producer_epoch=0,
            last_producer_id=transaction.producer_id,
            last_producer_epoch=last,
        )
    return transaction.but(producer_epoch=current + 1, last_producer_epoch=last, last_producer_id=-1)


def _initialized(
    work: Workspace, changed: TransactionMetadata, command: InitTransactionalId
) -> InitTransactionalIdResult:
    with Telling(work, changed.transactional_id, command.origin) as telling:
        telling.state(changed)
    return InitTransactionalIdResult(
        producer_id=changed.producer_id,
        producer_epoch=changed.producer_epoch,
        app_version=changed.app_version,
    )


def add(work: Workspace, command: AddToTransaction) -> AddToTransactionResult:
    """Add partitions to a transaction. The owner's first request begins it, even with no partitions."""
    transaction = _known(work, command.transactional_id)
    places = _existing(work, places_of(command.topics))
    _check_not_aborted(transaction, command.producer_id, command.producer_epoch)
    owns = command.producer_id == transaction.producer_id
    writer = transaction.writers.get(command.producer_id)
    if not owns and (writer is None or not places):
        raise _unmapped(transaction, command.producer_id)
    epoch = transaction.producer_epoch if owns or writer is None else writer.producer_epoch
    if command.producer_epoch != epoch:
        raise _fenced(transaction)
    if command.origin.is_client:
        check_session_of_epoch(transaction, command.origin)
    if transaction.phase.is_decided:
        raise _concurrent(transaction)
    begins = transaction.phase.is_over
    if begins and epoch > EPOCH_LAST:
        raise _fenced(transaction)  # no producer has this epoch, and no higher epoch is left to fence it
    if begins or writer is None:
        new, is_known = places, False
    else:
        new, is_known = places - writer.outstanding, True
    if is_known and not new:
        return AddToTransactionResult(number=transaction.number)
    with Telling(work, transaction.transactional_id, command.origin, new) as telling:
        telling.state(_begun(transaction, command.origin.now_ms) if begins else transaction, replaces=begins)
        telling.writes(command.producer_id, epoch, new)
    return AddToTransactionResult(number=telling.transaction.number)


def _begun(transaction: TransactionMetadata, now_ms: int) -> TransactionMetadata:
    number = transaction.number + 1 if transaction.number < _NUMBER_LAST else 1
    return transaction.but(
        number=number,
        phase=Phase.ONGOING,
        last_producer_epoch=-1,  # requests under the former epoch belong to earlier transactions
        last_producer_id=-1,
        recovery=min(transaction.recovery, Recovery.POSSIBLE),
        commit_index=-1,
        started_ms=now_ms,
        writers={},
        lacking={},
    )


def _existing(work: Workspace, wanted: Iterable[Place]) -> set[Place]:
    places = set(wanted)
    for topic_id, index in sorted(places):
        topic = work.image.topics_by_id.get(topic_id)
        if topic is None or index not in topic.partitions:
            name = topic_id.hex() if topic is None else topic.name
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {index} of {name}")
        check_is_no_copy(work.image, topic)
    return places


def end(work: Workspace, command: EndTransaction) -> EndTransactionResult:
    """Decide whether a transaction commits or aborts, once and for all its writers and partitions."""
    transaction = _known(work, command.transactional_id)
    if _was_committed_in_an_earlier_life(transaction, command):
        if transaction.phase.is_decided:
            raise _concurrent(transaction)
        return EndTransactionResult(
            producer_id=command.producer_id,
            producer_epoch=command.producer_epoch,
            commit_index=transaction.commit_index,
        )
    is_repeated = _is_repeated(transaction, command)
    if not is_repeated:
        _check_not_aborted(transaction, command.producer_id, command.producer_epoch)
        if command.producer_id != transaction.producer_id:
            raise _unmapped(transaction, command.producer_id)
        if command.producer_epoch != transaction.producer_epoch:
            raise _fenced(transaction)
    if not command.bumps_epoch:  # otherwise the epoch identifies the transaction
        check_session_of_epoch(transaction, command.origin)
    if command.number >= 0 and command.number != transaction.number:
        raise KafkaError(
            ErrorCode.INVALID_TXN_STATE,
            f"transaction {command.number} of {transaction.transactional_id!r} is over: {transaction.number} is the "
            "newest",
        )
    if is_repeated:
        if command.origin.is_client and command.origin.broker_id != transaction.session[0]:
            # The client now uses another broker, which waits with it for the markers.
            with Telling(work, transaction.transactional_id, command.origin) as telling:
                telling.state(transaction)
        return _ended(transaction, was_committed=command.commits and not transaction.phase.commits)
    if transaction.phase.is_decided and command.bumps_epoch:
        raise _concurrent(transaction)
    if transaction.phase is not Phase.ONGOING and not command.bumps_epoch:
        raise KafkaError(
            ErrorCode.INVALID_TXN_STATE,
            f"{transaction.transactional_id!r} is in {transaction.phase.name}: there is nothing to "
            f"{'commit' if command.commits else 'abort'}",
        )
    if transaction.phase.is_over and command.number >= 0:
        raise KafkaError(
            ErrorCode.INVALID_TXN_STATE,
            f"transaction {command.number} of {transaction.transactional_id!r} is over: it is in "
            f"{transaction.phase.name}",
        )
    return _decide_as_asked(work, transaction, command)


def _is_repeated(transaction: TransactionMetadata, command: EndTransaction) -> bool:
    """Return whether this request repeats the decision: its answer may have been lost, or the cluster aborted by itself
    before."""
    if transaction.phase in (Phase.EMPTY, Phase.ONGOING):
        return False
    if transaction.phase.commits != command.commits and not _was_committed(transaction, command):
        return False
    producer = (command.producer_id, command.producer_epoch)
    if command.bumps_epoch or (not command.commits and transaction.may_recover(*producer)):
        return command.producer_epoch >= 0 and producer == transaction.former_producer
    return producer == (transaction.producer_id, transaction.producer_epoch)


def _was_committed_in_an_earlier_life(transaction: TransactionMetadata, command: EndTransaction) -> bool:
    """Return whether a client that took up the next epoch made this commit before, and a client that cannot repeats it:
    Flink repeats a checkpoint's commits under the epochs it stored (FLINK-40689).

    Nothing changes and no record is emitted, so nodes that refuse this request keep the same state.
    """
    producer = (command.producer_id, command.producer_epoch)
    asks = command.commits and not command.bumps_epoch and command.producer_epoch >= 0
    return asks and transaction.phase.commits and producer == transaction.former_producer


def _was_committed(transaction: TransactionMetadata, command: EndTransaction) -> bool:
    """Return whether a commit's application version is not above the last one, so that the transaction must be
    aborted."""
    return command.commits and 0 <= command.app_version <= transaction.app_version


def _decide_as_asked(
    work: Workspace, transaction: TransactionMetadata, command: EndTransaction
) -> EndTransactionResult:
    chosen = _chosen(transaction, command.writers) if command.commits else set()
    was_committed = _was_committed(transaction, command)
    commits = command.commits and not was_committed
    changed = transaction
    if transaction.phase.is_over:
        changed = _begun(transaction, command.origin.now_ms)
    if commits:
        chosen.add(transaction.producer_id)
        changed = changed.but(app_version=max(changed.app_version, command.app_version))
    if command.bumps_epoch:
        changed = _next_epoch(work, changed, transaction.producer_epoch)
    _decide(work, changed, commits, chosen if commits else set(), command.origin)
    decided = work.image.transactions.by_id[transaction.transactional_id]
    return _ended(decided, was_committed=was_committed)


def _chosen(transaction: TransactionMetadata, writers: Iterable[ChosenWriter]) -> set[int]:
    chosen = set()
    for named in writers:
        writer = transaction.writers.get(named.producer_id)
        if writer is None or writer.producer_epoch != named.producer_epoch:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"nobody writes under producer id {named.producer_id}, epoch {named.producer_epoch} in transaction "
                f"{transaction.number} of {transaction.transactional_id!r}: nothing is decided",
            )
        chosen.add(named.producer_id)
    return chosen


def _decide(
    work: Workspace,
    changed: TransactionMetadata,
    commits: bool,
    chosen: set[int],
    origin: ClientOrigin | None = None,
) -> None:
    """Store a transaction's outcome, commit or abort; `changed` already has the producer epoch that belongs to it. The
    writers in `chosen` take part in the commit."""
    settled = changed.is_settled
    if commits:
        phase = Phase.COMPLETE_COMMIT if settled else Phase.PREPARE_COMMIT
    else:
        phase = Phase.COMPLETE_ABORT if settled else Phase.PREPARE_ABORT
    writers = {
        number: Writer(
            writer.producer_id,
            writer.producer_epoch,
            writer.places,
            writer.outstanding,
            number in chosen,
        )
        for number, writer in changed.writers.items()
    }
    index = work.image.transactions.next_commit_index
    with Telling(work, changed.transactional_id, origin) as telling:
        telling.state(
            changed.but(phase=phase, commit_index=index, writers={} if settled else writers),
            replaces=settled,
        )


def _ended(transaction: TransactionMetadata, *, was_committed: bool) -> EndTransactionResult:
    return EndTransactionResult(
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        number=transaction.number,
        was_committed=was_committed,
        commit_index=transaction.commit_index,
    )


def find_or_begin(work: Workspace, command: FindOrBegin) -> FindOrBeginResult:
    """Return the open transaction of a transactional id, begun if there is none; nothing if its application version was
    committed before.

    The transaction's timeout starts again, as `started_ms` sets the nodes' timers.
    """
    transaction = work.image.transactions.by_id.get(command.transactional_id)
    if transaction is None:
        transaction = TransactionMetadata(command.transactional_id, next_producer_id(work), 0)
    elif 0 <= command.app_version <= transaction.app_version:
        return FindOrBeginResult(was_committed=True)
    elif transaction.phase.is_decided:
        raise _concurrent(transaction)
    begins = transaction.phase.is_over
    if begins and transaction.producer_epoch > EPOCH_LAST:
        transaction = _next_epoch(
            work, transaction, None
        )  # otherwise no epoch would be left to fence this one
    found = _begun(transaction, command.now_ms) if begins else transaction
    found = found.but(
        timeout_ms=command.timeout_ms,
        started_ms=max(command.now_ms, found.started_ms),
        updated_ms=max(command.now_ms, found.updated_ms),
    )
    with Telling(work, found.transactional_id) as telling:
        telling.state(found, replaces=begins)
        if begins:
            telling.writes(found.producer_id, found.producer_epoch, ())
    return FindOrBeginResult(
        producer_id=found.producer_id, producer_epoch=found.producer_epoch, number=found.number
    )


def join(work: Workspace, command: JoinTransaction) -> JoinTransactionResult:
    """Return a producer id that a writer had before, with its next epoch, or a new producer id."""
    transaction = _known(work, command.transactional_id)
    producer = (command.producer_id, command.producer_epoch, command.number)
    if producer != (transaction.producer_id, transaction.producer_epoch, transaction.number):
        raise KafkaError(
            ErrorCode.INVALID_TXN_STATE,
            f"transaction {command.number} of {transaction.transactional_id!r} is over, or its owner was replaced",
        )
    if transaction.phase is not Phase.ONGOING:
        raise KafkaError(
            ErrorCode.INVALID_TXN_STATE,
            f"transaction {command.number} of {transaction.transactional_id!r} is in {transaction.phase.name}",
        )
    if len(transaction.writers) >= WRITERS_MAX:
        raise KafkaError(
            ErrorCode.INVALID_TXN_STATE,
            f"transaction {command.number} of {transaction.transactional_id!r} has {len(transaction.writers)} writers, "
            f"more than {WRITERS_MAX} are not allowed",
        )
    producer_id, epoch = _free_in_pool(transaction) or (next_producer_id(work), 0)
    with Telling(work, transaction.transactional_id, None) as telling:
        telling.writes(producer_id, epoch, ())
    return JoinTransactionResult(producer_id=producer_id, producer_epoch=epoch)


def _free_in_pool(transaction: TransactionMetadata) -> tuple[int, int] | None:
    """Return an unused producer id of the transaction's pool of writers' producer ids, with its next epoch; None if
    there is none. Ids in use are the last of the pool."""
    if len(transaction.pool) < len(transaction.writers):
        return None  # all are in use, and the owner writes, too
    free = (
        (producer_id, epoch + 1)
        for producer_id, epoch in transaction.pool.items()
        if producer_id not in transaction.writers and epoch < EPOCH_LAST
    )
    return next(free, None)


def verify(work: Workspace, command: VerifyTransaction) -> PlainResult:
    """Check only that the broker is registered. A broker sends this command to learn the state as of its
    application."""
    current(work, command.broker_id, command.broker_epoch)
    return PlainResult()


# ------------------------------------------------------------ aborts without a request of the client


def expire(work: Workspace, command: ExpireTransactions) -> PlainResult:
    """Abort the given transactions if they are still open."""
    for named in command.transactions:
        transaction = work.image.transactions.by_id.get(named.transactional_id)
        if transaction is not None and (transaction.number, transaction.phase) == (
            named.number,
            Phase.ONGOING,
        ):
            abort_by_itself(work, transaction)
    return PlainResult()


def abort(work: Workspace, command: AbortTransaction) -> PlainResult:
    """Abort a transaction on an operator's request, whichever producer owns it; do nothing if it is over.

    A transaction that is named by its number must be open, or the newest to be aborted.
    """
    transaction = _known(work, command.transactional_id)
    aborts = transaction.phase in (Phase.ONGOING, Phase.PREPARE_ABORT, Phase.COMPLETE_ABORT)
    if command.number >= 0 and not (aborts and command.number == transaction.number):
        raise KafkaError(
            ErrorCode.INVALID_TXN_STATE,
            f"transaction {command.number} of {transaction.transactional_id!r} is over: {transaction.number} is the "
            f"newest, in {transaction.phase.name}",
        )
    if transaction.phase is Phase.ONGOING:
        abort_by_itself(work, transaction)
    return PlainResult()


def abort_by_itself(work: Workspace, transaction: TransactionMetadata) -> None:
    """Abort an open transaction whose producer did not request it.

    The epoch rises, so that neither batches nor a commit of the former epoch count. The producer may take up the next
    epoch if it can ask for it (rule T6).
    """
    if transaction.recovery is Recovery.NEVER:
        abort_and_fence(work, transaction)
        return
    assert transaction.phase is Phase.ONGOING, transaction
    changed = _next_epoch(work, transaction, transaction.producer_epoch)
    _decide(work, changed.but(recovery=Recovery.OFFERED), False, set())


def abort_and_fence(work: Workspace, transaction: TransactionMetadata) -> None:
    """Abort an open transaction permanently: requests with its epoch are refused from now on."""
    assert transaction.phase is Phase.ONGOING, transaction
    fenced = transaction.but(
        producer_epoch=transaction.producer_epoch + 1,
        last_producer_epoch=-1,
        last_producer_id=-1,
    )
    _decide(work, fenced, False, set())


# ------------------------------------------------------------ refusals


def _known(work: Workspace, transactional_id: str) -> TransactionMetadata:
    transaction = work.image.transactions.by_id.get(transactional_id)
    if transaction is None:
        raise KafkaError(
            ErrorCode.INVALID_PRODUCER_ID_MAPPING, f"nobody uses the transactional id {transactional_id!r}"
        )
    return transaction


def _check_not_aborted(transaction: TransactionMetadata, producer_id: int, epoch: int) -> None:
    """Raise KafkaError, TRANSACTION_ABORTABLE, if the cluster has aborted the transaction and its producer must ask for
    an abort or for the next epoch."""
    if transaction.may_recover(producer_id, epoch):
        raise KafkaError(
            ErrorCode.TRANSACTION_ABORTABLE,
            f"transaction {transaction.number} of {transaction.transactional_id!r} was aborted: its timeout was over, "
            "or somebody else had it aborted",
        )


def _unmapped(transaction: TransactionMetadata, producer_id: int) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        f"{transaction.transactional_id!r} has producer id {transaction.producer_id}, not {producer_id}",
    )


def _fenced(transaction: TransactionMetadata) -> KafkaError:
    return KafkaError(
        ErrorCode.PRODUCER_FENCED,
        f"{transaction.transactional_id!r} is at epoch {transaction.producer_epoch} of producer id "
        f"{transaction.producer_id}",
    )


def _concurrent(transaction: TransactionMetadata) -> KafkaError:
    return KafkaError(
        ErrorCode.CONCURRENT_TRANSACTIONS,
        f"transaction {transaction.number} of {transaction.transactional_id!r} is not complete yet",
    )
