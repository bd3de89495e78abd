"""Transactions as values."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from ottla.protocol.cluster.transaction_table import Phase, Recovery, TransactionMetadata, Writer


def _transaction() -> TransactionMetadata:
    """Return a transaction in which no two fields are equal."""
    place = (bytes(16), 3)
    return TransactionMetadata(
        "id",
        producer_id=1,
        producer_epoch=2,
        last_producer_epoch=4,
        last_producer_id=5,
        recovery=Recovery.OFFERED,
        number=6,
        phase=Phase.ONGOING,
        timeout_ms=7,
        commit_index=8,
        app_version=9,
        started_ms=10,
        updated_ms=11,
        session=(12, 13, 14),
        session_offset=15,
        writers={1: Writer(1, 2, {place}, {place})},
        lacking={place: 16},
        pool={17: 18},
        aborted={place: 19},
    )


def test_another_one_but_for_some_fields_shares_the_rest() -> None:
    transaction = _transaction()
    other = transaction.but(number=20, phase=Phase.PREPARE_COMMIT)
    assert other == replace(transaction, number=20, phase=Phase.PREPARE_COMMIT)
    assert (transaction.number, transaction.phase) == (6, Phase.ONGOING)
    changed = {"number", "phase"}
    assert all(
        getattr(other, one_of.name) is getattr(transaction, one_of.name)
        for one_of in fields(transaction)
        if one_of.name not in changed
    )


def test_a_field_that_there_is_none_of_is_refused() -> None:
    with pytest.raises(AttributeError):
        _transaction().but(nunber=1)
