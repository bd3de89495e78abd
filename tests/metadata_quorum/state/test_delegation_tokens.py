"""Delegation tokens in the controller, compared with a second implementation of Kafka's rules, across snapshots and
upgrades.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.metadata_quorum.state import delegation_tokens
from ottla.metadata_quorum.state.controller import Controller
from ottla.metadata_quorum.token_expiry import ExpiredTokens
from ottla.protocol.cluster.cluster_image import ClusterImage
from ottla.protocol.credentials.delegation_tokens import TokenLifetimes, TokenState, token_hmac
from ottla.protocol.errors import ErrorCode
from ottla.protocol.features import SECURITY
from ottla.protocol.messages.broker_commands import RegisterBroker
from ottla.protocol.messages.cluster_commands import FormCluster, InitialFeature
from ottla.protocol.messages.command import Command
from ottla.protocol.messages.metadata_records import BrokerFeature, encode_record
from ottla.protocol.messages.quorum_commands import decode_result, encode_command
from ottla.protocol.messages.quota_commands import FeatureLevel, UpdateFeatures
from ottla.protocol.messages.token_commands import (
    CreateDelegationToken,
    ExpireDelegationToken,
    RemoveExpiredTokens,
    RenewDelegationToken,
)

HOUR = 3_600_000
LONG_MAX = 2**63 - 1


def formed(level: int = 2) -> Controller:
    controller = Controller()
    features = [InitialFeature(feature=SECURITY, level=level)] if level else []
    do(controller, FormCluster(cluster_id="c", features=features))
    return controller


def do(controller: Controller, command: Command[Any]) -> Any:
    return decode_result(command, controller.apply(1, 1, encode_command(None, command)).result)


def creation(token_id: str = "id", **changes: Any) -> CreateDelegationToken:
    return CreateDelegationToken(
        **{
            "token_id": token_id,
            "owner": "User:ann",
            "requester": "User:bob",
            "renewers": ["User:eve"],
            "issued_at_ms": 0,
            "expires_at_ms": HOUR,
            "ends_at_ms": 3 * HOUR,
            "key_id": b"key1",
            **changes,
        }
    )


def tokens(controller: Controller) -> dict[str, TokenState]:
    return controller.image.delegation_tokens


@dataclass
class Kafkas:
    """A token by the rules of Apache Kafka 4.4's DelegationTokenControlManager, line by line."""

    max_timestamp: int
    expiry_timestamp: int
    owner: str = "User:ann"
    renewers: tuple[str, ...] = ("User:eve",)
    default_renew_lifetime: int = HOUR
    is_there: bool = True

    def allowed_to_renew(self, principal: str) -> bool:
        return principal == self.owner or principal in self.renewers

    def renew(self, principal: str, now: int, renew_period: int) -> tuple[int, int]:
        if not self.is_there:
            return ErrorCode.DELEGATION_TOKEN_NOT_FOUND, 0
        if self.max_timestamp < now or self.expiry_timestamp < now:
            return ErrorCode.DELEGATION_TOKEN_EXPIRED, 0
        if not self.allowed_to_renew(principal):
            return ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, 0
        renew_lifetime = self.default_renew_lifetime
        if renew_period > 0:
            renew_lifetime = min(self.default_renew_lifetime, renew_period)
        self.expiry_timestamp = min(self.max_timestamp, min(now + renew_lifetime, LONG_MAX))
        return 0, self.expiry_timestamp

    def expire(self, principal: str, now: int, expiry_period: int) -> tuple[int, int]:
        if not self.is_there:
            return ErrorCode.DELEGATION_TOKEN_NOT_FOUND, 0
        if not self.allowed_to_renew(principal):
            return ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, 0
        if expiry_period < 0:
            self.is_there = False
            return 0, now
        if self.max_timestamp < now or self.expiry_timestamp < now:
            return ErrorCode.DELEGATION_TOKEN_EXPIRED, 0
        self.expiry_timestamp = min(self.max_timestamp, min(now + expiry_period, LONG_MAX))
        return 0, self.expiry_timestamp

    def sweep(self, now: int) -> None:
        if self.max_timestamp < now or self.expiry_timestamp < now:
            self.is_there = False


PERIODS = st.one_of(st.integers(-2, 2 * HOUR), st.sampled_from([0, LONG_MAX]))
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["renew", "expire", "sweep"]),
        st.sampled_from(["User:ann", "User:bob", "User:eve", "User:x"]),
        st.integers(0, HOUR),
        PERIODS,
    ),
    max_size=12,
)


@settings(max_examples=150, deadline=None)
@given(asked=PERIODS, steps=STEPS)
def test_the_life_of_a_token_is_as_in_kafka(asked: int, steps: list[tuple[str, str, int, int]]) -> None:
    lifetimes = TokenLifetimes(3 * HOUR, HOUR)
    max_timestamp = min(3 * HOUR, asked) if asked > 0 else 3 * HOUR
    kafkas = Kafkas(max_timestamp, min(max_timestamp, HOUR))
    controller = formed()
    expires, ends = lifetimes.of_new(0, asked)
    assert (expires, ends) == (kafkas.expiry_timestamp, kafkas.max_timestamp)
    assert not do(controller, creation(expires_at_ms=expires, ends_at_ms=ends)).error_code
    now = 0
    for what, who, passes, period in steps:
        now += passes
        if what == "sweep":
            kafkas.sweep(now)
            do(controller, RemoveExpiredTokens(token_ids=["id"], now_ms=now))
        else:
            expected = getattr(kafkas, what)(who, now, period)
            command: Command[Any] = (
                RenewDelegationToken(
                    token_id="id", principal=who, now_ms=now, period_ms=lifetimes.renewal(period)
                )
                if what == "renew"
                else ExpireDelegationToken(token_id="id", principal=who, now_ms=now, period_ms=period)
            )
            result = do(controller, command)
            assert (result.error_code, result.expires_at_ms) == expected
        found = tokens(controller).get("id")
        assert (found is not None) == kafkas.is_there
        assert found is None or found.expires_at_ms == kafkas.expiry_timestamp


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"token_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"token_id": "there"}, ErrorCode.INVALID_REQUEST),
        ({"owner": "ann"}, ErrorCode.INVALID_REQUEST),
        ({"renewers": ["User:" + "x" * 4096]}, ErrorCode.INVALID_REQUEST),
        ({"renewers": ["User:x"] * 101}, ErrorCode.INVALID_REQUEST),
        ({"expires_at_ms": -1}, ErrorCode.INVALID_REQUEST),
        ({"ends_at_ms": HOUR - 1}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_cannot_be_a_token_is_refused(changes: dict[str, Any], code: int) -> None:
    controller = formed()
    do(controller, creation("there"))
    assert do(controller, creation(**{"token_id": "new", **changes})).error_code == code
    assert list(tokens(controller)) == ["there"]


def test_nobody_uses_up_what_all_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delegation_tokens, "TOKENS_MAX", 4)
    monkeypatch.setattr(delegation_tokens, "TOKENS_OF_REQUESTER_MAX", 2)
    controller = formed()
    codes = [
        do(controller, creation(str(number), requester=who)).error_code
        for number, who in enumerate(("User:a", "User:a", "User:a", "User:b", "User:b", "User:c"))
    ]
    refused = ErrorCode.POLICY_VIOLATION
    assert codes == [0, 0, refused, 0, 0, refused]


def test_tokens_outlive_a_snapshot_and_have_no_secret_in_it() -> None:
    controller = formed()
    do(controller, creation(renewers=["User:eve", "User:joe"]))
    do(controller, RenewDelegationToken(token_id="id", principal="User:ann", now_ms=5, period_ms=HOUR))
    restored = Controller()
    chunks = list(controller.snapshot())
    restored.restore(chunks)
    expected = TokenState(
        "id", "User:ann", "User:bob", ("User:eve", "User:joe"), 0, HOUR + 5, 3 * HOUR, b"key1"
    )
    assert tokens(restored) == {"id": expected}
    assert token_hmac(b"any key", "id") not in b"".join(chunks)
    copy = ClusterImage()
    for record in controller.image.records():
        assert encode_record(record)
        copy.apply(record)
    assert copy.delegation_tokens == tokens(controller)
    assert controller.image.frozen().delegation_tokens is not tokens(controller)


def raise_level(controller: Controller, level: int, kind: int = 1) -> Any:
    update = FeatureLevel(feature=SECURITY, level=level, upgrade_type=kind)
    return do(controller, UpdateFeatures(updates=[update]))


@pytest.mark.parametrize("level", [0, 1])
def test_there_are_no_tokens_before_the_upgrade(level: int) -> None:
    controller = formed(level)
    refused = do(controller, creation())
    assert refused.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert f"{SECURITY} at level 2" in refused.error_message
    assert not raise_level(controller, 2).error_code
    assert not do(controller, creation()).error_code


def register(controller: Controller, broker_id: int, most: int) -> Any:
    feature = BrokerFeature(name=SECURITY, most=most)
    return do(
        controller,
        RegisterBroker(broker_id=broker_id, incarnation=bytes([broker_id]) * 16, features=[feature]),
    )


def test_no_broker_that_does_not_know_tokens_meets_one() -> None:
    controller = formed(1)
    assert not register(controller, 1, 2).error_code
    assert not register(controller, 2, 1).error_code
    refused = raise_level(controller, 2)
    assert refused.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert "broker 2" in refused.error_message
    controller.image.brokers.pop(2)
    assert not raise_level(controller, 2).error_code
    assert register(controller, 2, 1).error_code == ErrorCode.UNSUPPORTED_VERSION


def test_the_level_stays_while_there_are_tokens() -> None:
    controller = formed()
    do(controller, creation())
    assert raise_level(controller, 1, 2).error_code == ErrorCode.INVALID_UPDATE_VERSION
    do(controller, ExpireDelegationToken(token_id="id", principal="User:ann", now_ms=0, period_ms=-1))
    assert not raise_level(controller, 1, 2).error_code


def test_the_leader_forgets_what_has_ended_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.metadata_quorum.token_expiry.COMMAND_TOKENS_MAX", 2)
    monkeypatch.setattr("ottla.metadata_quorum.token_expiry.LOOKS_MAX", 4)
    controller = formed()
    for number in range(6):
        expires = HOUR if number % 2 else 100 + number
        do(controller, creation(str(number), expires_at_ms=expires))
    sweep = ExpiredTokens(check_interval_s=10)
    sweep.begin(now=50)
    forgotten: list[str] = []
    for _ in range(4):
        command = sweep.remove(tokens(controller), 50, 200)
        if command is not None:
            assert len(command.token_ids) <= 2
            forgotten += command.token_ids
            do(controller, command)
    assert sorted(forgotten) == ["0", "2", "4"]
    assert sorted(tokens(controller)) == ["1", "3", "5"]
    assert sweep.remove(tokens(controller), 59.9, 2 * HOUR) is None, "the next look is not due"
    assert sweep.remove(tokens(controller), 60, 2 * HOUR) is not None
