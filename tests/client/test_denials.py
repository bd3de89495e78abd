"""The cluster's answers become exceptions that state the denied action and the user."""

from __future__ import annotations

from typing import Any

import pytest

from ottla import AuthenticationFailed, AuthorizationFailed, ErrorCode, KafkaError, TlsFailed
from ottla.client.failures import cluster_error, restated

DENIALS = (29, 30, 31, 53, 65)


@pytest.mark.parametrize(
    ("code", "given", "message", "resource"),
    [
        (
            29,
            {"operation": "WRITE", "name": "orders", "user": "ann"},
            "denied: WRITE on topic 'orders' for User:ann",
            "topic 'orders'",
        ),
        (30, {"operation": "READ", "name": "g"}, "denied: READ on group 'g'", "group 'g'"),
        (31, {"operation": "ALTER", "name": "x"}, "denied: ALTER on cluster", "cluster"),
        (
            31,
            {"operation": "IDEMPOTENT_WRITE", "user": "ann"},
            "denied: IDEMPOTENT_WRITE on cluster (WRITE on a topic suffices) for User:ann",
            "cluster",
        ),
        (53, {"operation": "WRITE"}, "denied: WRITE on transactional id", "transactional id"),
        (29, {"told": "Topic authorization failed."}, "denied: Topic authorization failed.", "topic"),
        (65, {}, "denied: no right on this delegation token", "delegation token"),
    ],
)
def test_a_denial(code: int, given: dict[str, Any], message: str, resource: str) -> None:
    reason = given.pop("told", None)
    error = cluster_error(ErrorCode.of(code), "orders-0", reason, **given)
    assert isinstance(error, AuthorizationFailed)
    assert (error.code, error.message) == (ErrorCode.of(code), f"orders-0: {message}")
    assert (error.operation, error.resource) == (given.get("operation", ""), resource)


def test_whatever_else_is_no_denial() -> None:
    for code in ErrorCode:
        error = cluster_error(code, "w", operation="WRITE", name="t", user="ann")
        assert isinstance(error, AuthorizationFailed) is (code in DENIALS)
        assert not (code in DENIALS and code.retriable)
        if code not in DENIALS:
            assert error.message == f"w: {code.message}"


def test_another_message_keeps_what_programs_look_for() -> None:
    denied = cluster_error(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "", operation="READ", name="t")
    again = restated(denied, "more")
    assert isinstance(again, AuthorizationFailed)
    assert (again.message, again.operation, again.resource) == ("more", "READ", "topic 't'")
    for kind in (AuthenticationFailed, TlsFailed):
        assert type(restated(kind("x"), "more")) is kind
    plain = restated(KafkaError(ErrorCode.INVALID_CONFIG, "x"), "more")
    assert (type(plain), plain.code, plain.message) == (KafkaError, ErrorCode.INVALID_CONFIG, "more")
