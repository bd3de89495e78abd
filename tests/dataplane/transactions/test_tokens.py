"""Tokens: issued ones are recognised, and no others."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.dataplane.transactions.tokens import (
    TRANSACTIONAL_ID_BYTES_MAX,
    JoinableTransaction,
    TransactionTokens,
)
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.shared_transactions import JoinTransactionRequest
from ottla.protocol.session.node_secrets import Secrets
from ottla.protocol.wire.codec import decode, encode

TOKENS = TransactionTokens(Secrets((b"s" * 32,)), "cluster")
ONE = JoinableTransaction("copy", 7000, 3, 4)

transactions = st.builds(
    JoinableTransaction,
    st.text(st.characters(exclude_categories=("Cs",)), max_size=300),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-(2**15), 2**15 - 1),
    st.integers(-(2**31), 2**31 - 1),
)


def refusal(token: str, tokens: TransactionTokens = TOKENS) -> str:
    with pytest.raises(KafkaError) as refused:
        tokens.verify(token)
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    return refused.value.message


@given(transactions)
def test_a_token_stands_for_its_transaction(transaction: JoinableTransaction) -> None:
    token = TOKENS.issue(transaction)
    assert TOKENS.verify(token) == transaction
    assert TOKENS.issue(transaction) == token
    assert re.fullmatch(r"v1\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]{43}", token)


@given(transactions, transactions)
def test_transactions_differ_in_their_tokens(first: JoinableTransaction, second: JoinableTransaction) -> None:
    assert (TOKENS.issue(first) == TOKENS.issue(second)) == (first == second)


@settings(max_examples=300)
@given(st.data())
def test_whatever_was_changed_is_refused(data: st.DataObject) -> None:
    token = TOKENS.issue(data.draw(transactions))
    start = data.draw(st.integers(0, len(token)))
    end = data.draw(st.integers(start, len(token)))
    changed = token[:start] + data.draw(st.text(max_size=5)) + token[end:]
    if changed != token:
        assert "no token of a transaction" in refusal(changed)


@given(st.text())
def test_what_is_no_token_is_refused(text: str) -> None:
    refusal(text)


@pytest.mark.parametrize(
    ("token", "why"),
    [
        ("", "three parts"),
        ("v1.abc", "three parts"),
        ("v2.YWJj.YWJj", "version is 'v2', known is 'v1'"),
        ("v1.YWJj.YWJj", "not given out by this cluster"),
        ("x" * 100_000, "100000 characters"),
        ("v1.\ud800.x", "not given out by this cluster"),
    ],
)
def test_a_refusal_says_why(token: str, why: str) -> None:
    assert why in refusal(token)


@pytest.mark.parametrize("other", [("t" * 32, "cluster"), ("s" * 32, "another cluster")])
def test_another_cluster_refuses_it(other: tuple[str, str]) -> None:
    secret, cluster_id = other
    assert "not given out by this cluster" in refusal(
        TOKENS.issue(ONE), TransactionTokens(Secrets((secret.encode(),)), cluster_id)
    )


def test_a_token_outlives_the_replacement_of_the_secret_that_signed_it() -> None:
    old, new = b"s" * 32, b"t" * 32
    turned = TransactionTokens(Secrets((new, old)), "cluster")
    assert turned.verify(TOKENS.issue(ONE)) == ONE
    assert turned.issue(ONE) != TOKENS.issue(ONE)
    assert TransactionTokens(Secrets((old, new)), "cluster").verify(turned.issue(ONE)) == ONE
    assert "not given out by this cluster" in refusal(
        TOKENS.issue(ONE), TransactionTokens(Secrets((new,)), "cluster")
    )


def test_the_longest_token_fits_in_a_request() -> None:
    longest = ONE._replace(transactional_id="é" * (TRANSACTIONAL_ID_BYTES_MAX // 2))
    request = JoinTransactionRequest(token=TOKENS.issue(longest))
    assert TOKENS.verify(decode(JoinTransactionRequest, encode(request, 0), 0).token) == longest
    with pytest.raises(KafkaError, match=f"{TRANSACTIONAL_ID_BYTES_MAX} bytes are allowed"):
        TOKENS.issue(longest._replace(transactional_id=longest.transactional_id + "x"))
