"""PLAIN: one message, and all its invalid forms."""

from __future__ import annotations

import asyncio

import pytest

from ottla.dataplane.security.sasl.login import LoggedIn, LoginRefused
from ottla.dataplane.security.sasl.plain import ListedUsers, PlainLogin, PlainMechanism
from ottla.protocol.credentials.jaas import parse_jaas

USERS = ListedUsers(parse_jaas('PlainLoginModule required username="me" password="x" user_ann="secret";')[0])


def log_in(message: bytes) -> PlainLogin:
    login = PlainMechanism(USERS.check).begin()
    assert asyncio.run(login.receive(message)) == b""
    return login


@pytest.mark.parametrize("message", [b"\0ann\0secret", b"ann\0ann\0secret"])
def test_a_listed_user_logs_in(message: bytes) -> None:
    assert log_in(message).outcome == LoggedIn("ann")


@pytest.mark.parametrize(
    ("message", "complaint"),
    [
        (b"\0ann\0wrong", "unknown or the password is wrong"),
        (b"\0bob\0secret", "unknown or the password is wrong"),
        # The broker's own name and password are for its way out.
        (b"\0me\0x", "unknown or the password is wrong"),
        (b"bob\0ann\0secret", "act as another"),
        (b"ann\0secret", "2 parts"),
        (b"\0ann\0secret\0", "4 parts"),
        (b"\0\0secret", "without a user name"),
        (b"\0ann\0", "without a user name or a password"),
        (b"\0ann\0\xff", "not UTF-8"),
        (b"\0ann\0" + b"x" * 70_000, "allowed are 65536"),
    ],
)
def test_what_is_refused(message: bytes, complaint: str) -> None:
    login = PlainMechanism(USERS.check).begin()
    with pytest.raises(LoginRefused, match=complaint):
        asyncio.run(login.receive(message))
    assert login.outcome is None
