"""Unknown users besides existing ones: the information that a login discloses, and its changes with the other users."""

from __future__ import annotations

import asyncio
from collections import Counter

from ottla.dataplane.security.sasl.scram import ScramCredentials, ScramLogins, sealed_credential
from ottla.dataplane.security.sasl.unknown_users import UnknownUsers
from ottla.dataplane.security.sealing import Sealer
from ottla.protocol.cluster.cluster_image import ScramKey, SealedCredential
from ottla.protocol.credentials.scram import (
    SCRAM_SHA_256,
    SCRAM_SHA_512,
    ScramClient,
    ScramCredential,
    ScramMechanism,
)

SEALER = Sealer([b"cluster secret"])
KEYS = bytes(32)


class Users:
    """The credentials of an image, and the substitutes for unknown users."""

    def __init__(self) -> None:
        self.sealed: dict[ScramKey, SealedCredential] = {}
        self.unknown_users = UnknownUsers(b"key", lambda: self.sealed)

    def set(
        self, name: str, iterations: int, salt: bytes = b"salt", mechanism: ScramMechanism = SCRAM_SHA_256
    ) -> None:
        """Set a credential like an image."""
        key = (name, mechanism.code)
        self.sealed.pop(key, None)
        self.sealed[key] = sealed_credential(SEALER, key, ScramCredential(salt, KEYS, KEYS, iterations))

    def iterations(self, names: int, mechanism: ScramMechanism = SCRAM_SHA_256) -> Counter[int]:
        """Return how often each iteration count is reported for `names` unknown users."""
        return Counter(
            self.unknown_users.credential(mechanism, f"nobody-{number}").iterations for number in range(names)
        )


def test_the_first_answer_looks_like_that_of_a_user() -> None:
    users = Users()
    users.set("ann", 8192, salt=bytes(30))
    logins = ScramLogins(SCRAM_SHA_256, ScramCredentials(SEALER, lambda: users.sealed), users.unknown_users)
    answers = []
    for name in ("ann", "bob", "bob"):
        client = ScramClient(SCRAM_SHA_256, name, "guess", "nonce")
        answer = asyncio.run(logins.begin().receive(client.first())).decode()
        answers.append(dict(part.split("=", 1) for part in answer.split(",")))
    assert [each["i"] for each in answers] == ["8192"] * 3
    assert len({len(each["s"]) for each in answers}) == 1
    assert answers[1]["s"] == answers[2]["s"] != answers[0]["s"]


def test_numbers_are_as_frequent_as_among_users() -> None:
    users = Users()
    for number in range(30):
        users.set(f"user-{number}", 4096 if number < 10 else 8192)
    counts = users.iterations(3000)
    assert counts.keys() == {4096, 8192}
    assert 800 < counts[4096] < 1200


def test_a_user_more_changes_few_answers() -> None:
    users = Users()
    for number in range(30):
        users.set(f"user-{number}", 4096 if number < 10 else 8192)
    before = [users.unknown_users.credential(SCRAM_SHA_256, f"nobody-{number}") for number in range(500)]
    users.set("another", 8192)
    after = [users.unknown_users.credential(SCRAM_SHA_256, f"nobody-{number}") for number in range(500)]
    assert sum(a != b for a, b in zip(before, after, strict=True)) < 30


def test_what_changes_is_counted_anew() -> None:
    users = Users()
    users.set("ann", 4096)
    users.set("bob", 4096)
    assert users.iterations(20).keys() == {4096}
    users.set("ann", 8192)
    users.set("bob", 8192)
    assert users.iterations(20).keys() == {8192}
    users.set("ann", 16384)
    del users.sealed[("bob", SCRAM_SHA_256.code)]
    assert users.iterations(20).keys() == {16384}
    users.sealed.clear()
    assert users.iterations(20).keys() == {4096}


def test_mechanisms_are_apart_and_passwords_are_checked_by_the_first_of_each_user() -> None:
    users = Users()
    users.set("ann", 8192, mechanism=SCRAM_SHA_512)
    users.set("bob", 16384, mechanism=SCRAM_SHA_512)
    users.set("bob", 5000, mechanism=SCRAM_SHA_256)
    assert users.iterations(100, SCRAM_SHA_512).keys() == {8192, 16384}
    assert users.iterations(100).keys() == {5000}
    found = {users.unknown_users.for_password(f"nobody-{number}") for number in range(100)}
    assert {(mechanism.name, credential.iterations) for mechanism, credential in found} == {
        ("SCRAM-SHA-256", 5000),
        ("SCRAM-SHA-512", 8192),
    }


def test_all_brokers_tell_the_same() -> None:
    users, others = Users(), Users()
    for number in range(20):
        users.set(f"user-{number}", 4096 + number % 3)
    for number in reversed(range(20)):
        others.set(f"user-{number}", 4096 + number % 3)
    for name in ("a", "b", "c"):
        assert users.unknown_users.credential(SCRAM_SHA_256, name) == others.unknown_users.credential(
            SCRAM_SHA_256, name
        )
