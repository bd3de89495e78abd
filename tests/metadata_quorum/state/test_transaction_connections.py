"""Requests about a transaction that were delayed on an old connection, and requests that merely come from an old
instance.
"""

from __future__ import annotations

from ottla.protocol.cluster.transaction_table import Phase, by_topic
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages import transaction_commands as t

from .transactional import Identity, Transactions


def adding(cluster: Transactions, who: Identity, origin: t.ClientOrigin) -> ErrorCode:
    command = t.AddToTransaction(
        transactional_id="x",
        producer_id=who[0],
        producer_epoch=who[1],
        topics=by_topic(cluster.places(0)),
        origin=origin,
    )
    return ErrorCode(cluster.do(command, t.AddToTransactionResult).error_code)


def ending(cluster: Transactions, who: Identity, origin: t.ClientOrigin, *, bumps: bool = False) -> ErrorCode:
    command = t.EndTransaction(
        transactional_id="x",
        producer_id=who[0],
        producer_epoch=who[1],
        commits=True,
        bumps_epoch=bumps,
        origin=origin,
    )
    return ErrorCode(cluster.do(command, t.EndTransactionResult).error_code)


def test_what_follows_an_initialization_may_come_on_a_connection_that_is_older() -> None:
    """aiokafka has one connection for InitProducerId, and another one for the rest, both open by then."""
    cluster = Transactions()
    older = cluster.origin(1)
    who = cluster.begin()
    assert adding(cluster, who, older) == ErrorCode.NONE
    assert ending(cluster, who, older) == ErrorCode.NONE


def test_what_follows_an_initialization_after_a_transaction_may_as_well() -> None:
    cluster = Transactions()
    first = cluster.begin()
    cluster.add(first, cluster.places(0))
    cluster.end(first, bumps=False)
    cluster.write_markers()
    older = cluster.origin(1)
    second = cluster.begin()
    assert cluster.state().phase is Phase.EMPTY
    assert cluster.end(second, bumps=False).error_code == ErrorCode.INVALID_TXN_STATE, "nothing of it is open"
    assert adding(cluster, second, older) == ErrorCode.NONE


def test_once_a_connection_was_used_an_older_one_is_not_any_more() -> None:
    cluster = Transactions()
    older = cluster.origin(1)
    who = cluster.begin()
    cluster.add(who, cluster.places(0))
    assert adding(cluster, who, older) == ErrorCode.NETWORK_EXCEPTION
    assert ending(cluster, who, older) == ErrorCode.NETWORK_EXCEPTION
    assert cluster.state().phase is Phase.ONGOING


def test_who_takes_up_epochs_may_end_a_transaction_on_any_connection() -> None:
    """Java does so when its coordinator changes, with connections that were open before.

    A delayed request has an old epoch by then.
    """
    cluster = Transactions()
    older = cluster.origin(1)
    who = cluster.begin()
    cluster.add(who, cluster.places(0))
    assert ending(cluster, who, older, bumps=True) == ErrorCode.NONE
    cluster.write_markers()
    present = who[0], who[1] + 1
    cluster.add(present, cluster.places(0))
    assert ending(cluster, who, older, bumps=True) == ErrorCode.PRODUCER_FENCED
    assert cluster.state().phase is Phase.ONGOING


def test_who_was_replaced_is_told_so_on_whatever_connection() -> None:
    """The producer would otherwise be refused only on its next connection, after pauses."""
    cluster = Transactions()
    zombie = cluster.begin()
    connection = cluster.origin(1)
    present = cluster.begin()
    cluster.add(present, cluster.places(1))
    assert adding(cluster, zombie, connection) == ErrorCode.PRODUCER_FENCED
    assert ending(cluster, zombie, connection) == ErrorCode.PRODUCER_FENCED
