"""OAUTHBEARER: the messages of RFC 7628, and what becomes of a token that is refused."""

from __future__ import annotations

import asyncio
import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.dataplane.security.oauth.provider_keys import NoKeysYet
from ottla.dataplane.security.oauth.settings import TokenRules
from ottla.dataplane.security.oauth.tokens import Token
from ottla.dataplane.security.sasl.login import LoggedIn, LoginRefused, LoginUndecided
from ottla.dataplane.security.sasl.oauthbearer import BearerLogin, BearerMechanism
from tests.oauth_issuer import unsigned

NOW_MS = 1_800_000_000_000
RULES = TokenRules(skew_ms=0, needs_issue_time=False)
CLAIMS = {"sub": "ann", "exp": NOW_MS // 1000 + 60}
TOKEN = unsigned(CLAIMS).encode()
GOOD = b"n,,\x01auth=Bearer " + TOKEN + b"\x01\x01"


def login(rules: TokenRules = RULES) -> BearerLogin:
    return BearerMechanism(rules, None, lambda: NOW_MS).begin()


@pytest.mark.parametrize(
    "message",
    [
        GOOD,
        GOOD.replace(b"Bearer ", b"bEARER   "),
        GOOD.replace(b"n,,", b"n,a=ann,"),
        GOOD.replace(b"\x01auth", b"\x01logicalCluster=lkc-1\x01auth"),
        GOOD[:-1] + b"pool=a b\tc\x01\x01",
    ],
)
def test_a_good_token_logs_in(message: bytes) -> None:
    attempt = login()
    assert asyncio.run(attempt.receive(message)) == b""
    assert attempt.outcome == LoggedIn("ann", NOW_MS + 60_000)


@pytest.mark.parametrize(
    ("message", "complaint"),
    [
        (b"", "form of OAUTHBEARER"),
        (b"\x01", "form of OAUTHBEARER"),
        (b"\0ann\0secret", "form of OAUTHBEARER"),
        (b"n,,\x01\x01", "without a bearer token"),
        (GOOD[:-1], "form of OAUTHBEARER"),
        (GOOD + b"\x01", "malformed"),
        (GOOD.replace(b"n,,", b"y,,"), "form of OAUTHBEARER"),
        (GOOD.replace(b"n,,", b"p=tls-unique,,"), "form of OAUTHBEARER"),
        (GOOD.replace(b"n,,", b"n,a=,"), "form of OAUTHBEARER"),
        (GOOD.replace(b"n,,", b"n,a=x=y,"), "form of OAUTHBEARER"),
        (GOOD.replace(b"n,,", b"n,,\xff"), "not UTF-8"),
        (GOOD.replace(b"Bearer ", b"Basic "), "without a bearer token"),
        (GOOD.replace(b"Bearer ", b"Bearer"), "without a bearer token"),
        (GOOD.replace(b"auth=", b"Auth="), "without a bearer token"),
        (GOOD.replace(b"\x01auth", b"\x01auth=Bearer x\x01auth"), "stands twice"),
        (GOOD[:-1] + b"a1=x\x01\x01", "malformed"),
        (GOOD[:-1] + b"a=\x01\x01", "malformed"),
        (GOOD[:-1] + "a=\u00e4\x01\x01".encode(), "malformed"),
        (GOOD[:-1] + b"a=" + b"x" * 70_000 + b"\x01\x01", "allowed are 65536"),
    ],
)
def test_messages_that_are_refused(message: bytes, complaint: str) -> None:
    attempt = login()
    with pytest.raises(LoginRefused, match=complaint) as refused:
        asyncio.run(attempt.receive(message))
    assert refused.value.told is None
    assert attempt.outcome is None


@pytest.mark.parametrize(
    ("claims", "rules", "problem"),
    [
        ({"exp": 1}, RULES, b'{"status":"invalid_token"}'),
        (
            {},
            TokenRules(required_scopes=frozenset({"write", "read"}), needs_issue_time=False),
            b'{"status":"insufficient_scope","scope":"read write"}',
        ),
    ],
)
@pytest.mark.parametrize("answer", [b"\x01", b"", GOOD])
def test_a_bad_token_is_told_and_whatever_follows_ends_the_login(
    claims: dict[str, int], rules: TokenRules, problem: bytes, answer: bytes
) -> None:
    attempt = login(rules)
    message = GOOD.replace(TOKEN, unsigned(CLAIMS | claims).encode())
    assert asyncio.run(attempt.receive(message)) == problem
    assert json.loads(problem)
    assert attempt.outcome is None
    assert attempt.claimed == "ann"
    with pytest.raises(LoginRefused, match="the token is refused: it ") as refused:
        asyncio.run(attempt.receive(answer))
    assert refused.value.told == problem.decode()
    assert TOKEN.decode() not in str(refused.value)
    assert attempt.outcome is None


def test_a_token_that_expires_while_keys_are_fetched_logs_nobody_in() -> None:
    now_ms = NOW_MS

    async def fetched_for_a_minute(_token: Token) -> None:
        nonlocal now_ms
        now_ms += 60_000

    attempt = BearerLogin(RULES, fetched_for_a_minute, lambda: now_ms)
    assert asyncio.run(attempt.receive(GOOD)) == b'{"status":"invalid_token"}'
    assert attempt.outcome is None


def test_a_token_lets_nobody_act_as_another() -> None:
    attempt = login()
    with pytest.raises(LoginRefused, match="act as another user") as refused:
        asyncio.run(attempt.receive(GOOD.replace(b"n,,", b"n,a=b=2Cb,")))
    assert "authorization id (b,b) that is different from the token's principal name (ann)" in str(
        refused.value.told
    )
    assert attempt.outcome is None


def test_without_keys_nothing_is_decided() -> None:
    async def unreachable(token: Token) -> None:
        raise NoKeysYet("nobody there")

    attempt = BearerLogin(RULES, unreachable, lambda: NOW_MS)
    with pytest.raises(LoginUndecided, match="nobody there"):
        asyncio.run(attempt.receive(GOOD))
    assert attempt.outcome is None


@given(
    st.binary(max_size=60)
    | st.builds(
        lambda at, put: GOOD[:at] + put + GOOD[at:],
        st.integers(0, len(GOOD)),
        st.binary(min_size=1, max_size=3),
    )
)
def test_any_message_is_answered_or_refused(message: bytes) -> None:
    attempt = login()
    with contextlib.suppress(LoginRefused):
        answer = asyncio.run(attempt.receive(message))
        assert (answer == b"") == (attempt.outcome is not None)
