"""Equal raw requests about delegation tokens to Apache Kafka and to Ottla, with answers compared field by field.

Times differ between the two, so they are compared as distances from now. Ids and secrets are compared by their meaning.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from benchmarks.kafka import kafka_cluster
from ottla.protocol.credentials.delegation_tokens import token_hmac, token_password
from ottla.protocol.credentials.scram import SCRAM_MECHANISMS, ScramClient
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.cluster import DescribeClusterRequest
from ottla.protocol.messages.delegation_tokens import (
    CreatableRenewer,
    CreateDelegationTokenRequest,
    DescribeDelegationTokenRequest,
    DescribedTokenOwner,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
)
from ottla.protocol.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from ottla.protocol.wire.schema import Message
from ottla.testing import LocalCluster
from tests.raw_peer import Peer

pytestmark = pytest.mark.timeout(300)

_MODULE = "org.apache.kafka.common.security"
USERS = ("ann", "bob", "eve")
KEY = "c4ca4238a0b923820dcc509a6f75849b"
HOUR, DAY = 3_600_000, 86_400_000
SETTLED_S = 30.0

SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS;User:ann;OttlaNode:1",
    "delegation.token.secret.key": KEY,
    "delegation.token.expiry.time.ms": str(DAY),
}


def _logins(listener: str) -> dict[str, str]:
    users = " ".join(f'user_{name}="{name}-secret"' for name in USERS)
    prefix = f"listener.name.{listener}"
    return {
        f"{prefix}.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        f"{prefix}.plain.sasl.jaas.config": f"{_MODULE}.plain.PlainLoginModule required {users};",
        f"{prefix}.scram-sha-256.sasl.jaas.config": f"{_MODULE}.scram.ScramLoginModule required;",
        f"{prefix}.scram-sha-512.sasl.jaas.config": f"{_MODULE}.scram.ScramLoginModule required;",
    }


class Session:
    """A raw connection that has logged in."""

    def __init__(self, port: int, user: str) -> None:
        self.peer = Peer(port)
        self._handshake("PLAIN")
        self._send(f"\0{user}\0{user}-secret".encode())

    @classmethod
    def by_token(cls, port: int, token_id: str, secret: bytes, mechanism: str) -> Session:
        self = cls.__new__(cls)
        self.peer = Peer(port)
        self._handshake(mechanism)
        scram = ScramClient(
            SCRAM_MECHANISMS[mechanism], token_id, token_password(secret), "nonce", {"tokenauth": "true"}
        )
        self.lifetime_ms = 0
        scram.check(self._send(scram.final(self._send(scram.first()))))
        return self

    def _handshake(self, mechanism: str) -> None:
        assert not self.peer.ask(SaslHandshakeRequest(mechanism=mechanism), 1).error_code

    def _send(self, token: bytes) -> bytes:
        answer = self.peer.ask(SaslAuthenticateRequest(auth_bytes=token), 2, 20)
        if answer.error_code:
            raise PermissionError(answer.error_message)
        self.lifetime_ms = answer.session_lifetime_ms
        return bytes(answer.auth_bytes)

    def ask(self, message: Message, version: int = 3) -> Any:
        return self.peer.ask(message, version, 30)


def _create(
    owner: str | None = None, renewers: tuple[str, ...] = (), longest_ms: int = -1
) -> CreateDelegationTokenRequest:
    return CreateDelegationTokenRequest(
        owner_principal_type=None if owner is None else "User",
        owner_principal_name=owner,
        renewers=[_renewer(renewer) for renewer in renewers],
        max_lifetime_ms=longest_ms,
    )


def _renewer(text: str) -> CreatableRenewer:
    kind, _, name = text.rpartition(":")
    return CreatableRenewer(principal_type=kind or "User", principal_name=name)


class Story:
    """A recorder of requests and their answers."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.told: list[str] = []
        self._names: dict[str, str] = {}
        self.users = {name: Session(port, name) for name in USERS}

    def note(self, what: str, answer: Message) -> Any:
        self.told.append(f"{what}: {self._shown(answer)}")
        return answer

    def _shown(self, value: Any, name: str = "") -> str:
        if isinstance(value, Message):
            fields = (each.name for each in value.schema.fields)
            return (
                f"({', '.join(f'{field}={self._shown(getattr(value, field), field)}' for field in fields)})"
            )
        if isinstance(value, list):
            return f"[{', '.join(sorted(self._shown(part) for part in value))}]"
        if "timestamp" in name and value > 0:
            return f"now + {round((value - time.time() * 1000) / 60_000)} min"
        if name == "token_id" and value:
            assert re.fullmatch(r"[A-Za-z0-9_-]{22}", value)
            return self._names.setdefault(value, f"token {len(self._names)}")
        if name == "hmac" and value:
            (of,) = [
                known for token, known in self._names.items() if token_hmac(KEY.encode(), token) == value
            ]
            return f"the secret of {of}"
        return repr(value)

    def settled(self, ask: Callable[[], Any], is_so: Callable[[Any], bool]) -> Any:
        """Repeat a request until the answer fits, since Kafka applies a change some time after its answer."""
        deadline = time.monotonic() + SETTLED_S
        while not is_so(answer := ask()):
            assert time.monotonic() < deadline, answer
        return answer

    def known(self, token_id: str, expires_ms: int | None = None) -> None:
        """Check that the broker shows the token, with this expiry."""
        describe = DescribeDelegationTokenRequest(owners=None)

        def shows(answer: Any) -> bool:
            return any(
                token.token_id == token_id and expires_ms in (None, token.expiry_timestamp)
                for token in answer.tokens
            )

        self.settled(lambda: self.users["ann"].ask(describe), shows)

    def tell(self) -> list[str]:
        ann, bob = self.users["ann"], self.users["bob"]
        for version in (1, 2, 3):
            made = self.note(
                f"bob creates {version}", bob.ask(_create(renewers=("eve",), longest_ms=6 * HOUR), version)
            )
        self.note("of another", bob.ask(_create("ann")))
        self.note("of another, for a group", bob.ask(_create("ann", ("Group:x",))))
        self.note("for a group", bob.ask(_create(None, ("eve", "Group:x"))))
        self.note("of himself", bob.ask(_create("bob", longest_ms=0)))
        self.note("of nobody", bob.ask(_create("", longest_ms=2**63 - 1)))
        of_bob = self.note("ann creates for bob", ann.ask(_create("bob", ("ann", "ann"), 60_000)))
        self.known(made.token_id)
        self.known(of_bob.token_id)
        for version in (1, 2, 3):
            for name, session in self.users.items():
                described = session.ask(DescribeDelegationTokenRequest(owners=None), version)
                described.tokens = [token for token in described.tokens if token.token_id == made.token_id]
                self.note(f"{name} describes {version}", described)
        for asked in ([], ["eve"], ["ann"], ["joe"]):
            owners = [DescribedTokenOwner(principal_type="User", principal_name=name) for name in asked]
            described = bob.ask(DescribeDelegationTokenRequest(owners=owners))
            described.tokens = [
                token for token in described.tokens if token.token_id in (made.token_id, of_bob.token_id)
            ]
            self.note(f"of {asked}", described)
        for version in (1, 2):
            for period in (-1, 0, HOUR, 2**63 - 1):
                for name, session in self.users.items():
                    renew = RenewDelegationTokenRequest(hmac=made.hmac, renew_period_ms=period)
                    self.note(f"{name} renews {version} by {period}", session.ask(renew, version))
        self.note("none", bob.ask(RenewDelegationTokenRequest(hmac=b"none"), 2))
        self.note("none", bob.ask(ExpireDelegationTokenRequest(hmac=b"none", expiry_time_period_ms=-1), 2))
        self._log_in(made)
        self._end(made)
        for session in self.users.values():
            session.peer.close()
        return self.told

    def _log_in(self, made: Any) -> None:
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            session = Session.by_token(self.port, made.token_id, made.hmac, mechanism)
            self.told.append(f"a login for {round(session.lifetime_ms / 60_000)} min")
            self.note("by a token, create", session.ask(_create()))
            self.note("by a token, describe", session.ask(DescribeDelegationTokenRequest(owners=None)))
            self.note("by a token, renew", session.ask(RenewDelegationTokenRequest(hmac=made.hmac), 2))
            self.note("by a token, expire", session.ask(ExpireDelegationTokenRequest(hmac=made.hmac), 2))
            session.peer.close()
        for token_id, secret in ((made.token_id, b"x"), ("nobody", made.hmac)):
            with pytest.raises(PermissionError) as refused:
                Session.by_token(self.port, token_id, secret, "SCRAM-SHA-256")
            self.told.append(str(refused.value))

    def _end(self, made: Any) -> None:
        def expire(name: str, period: int, version: int = 2) -> Any:
            request = ExpireDelegationTokenRequest(hmac=made.hmac, expiry_time_period_ms=period)
            return self.note(f"{name} expires in {period}", self.users[name].ask(request, version))

        for version in (1, 2):
            for name in USERS:
                expire(name, HOUR, version)
        expire("bob", 2**63 - 1)
        self.known(made.token_id, expire("bob", 0).expiry_timestamp_ms)
        expire("ann", 0)
        expire("bob", 0)
        for name in USERS:
            self.note(
                f"{name} renews what has expired",
                self.users[name].ask(RenewDelegationTokenRequest(hmac=made.hmac), 2),
            )
        expire("ann", -1)
        expire("eve", -1)
        gone = ErrorCode.DELEGATION_TOKEN_NOT_FOUND
        renew = RenewDelegationTokenRequest(hmac=made.hmac)
        self.note(
            "gone",
            self.settled(lambda: self.users["bob"].ask(renew, 2), lambda answer: answer.error_code == gone),
        )


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("tokens")
    settings = (
        SETTINGS
        | _logins("sasl_plaintext")
        | {"sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"}
    )
    with kafka_cluster(
        folder, brokers=1, quorum=1, settings=settings, listeners=("SASL_PLAINTEXT",)
    ) as cluster:
        yield cluster


def _port(address: str) -> int:
    return int(address.rpartition(":")[2])


def test_each_answer_is_that_of_kafka(kafka: Any) -> None:
    theirs = Story(_port(kafka.listeners["SASL_PLAINTEXT"])).tell()
    settings = (
        SETTINGS | _logins("plaintext") | {"listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT"}
    )
    with LocalCluster(settings=settings) as ours:
        assert Story(_port(ours.bootstrap_servers)).tell() == theirs
    assert len(theirs) > 60
    assert sum("error_code=0" in line for line in theirs) > 20


def test_nobody_asks_without_a_login(kafka: Any) -> None:
    theirs, ours = Peer(_port(kafka.bootstrap)), None
    with LocalCluster(settings={"delegation.token.secret.key": KEY}) as cluster:
        ours = Peer(_port(cluster.bootstrap_servers))
        for message, versions in (
            (_create(), (1, 2, 3)),
            (RenewDelegationTokenRequest(), (1, 2)),
            (ExpireDelegationTokenRequest(), (1, 2)),
            (DescribeDelegationTokenRequest(owners=None), (1, 2, 3)),
        ):
            for version in versions:
                assert ours.ask(message, version, 20) == theirs.ask(message, version, 20)
        assert not ours.ask(DescribeClusterRequest(), 0).error_code
        ours.close()
    theirs.close()
