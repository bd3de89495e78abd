"""Kerberos logins, message by message: the order, the layer, the name, and refusals."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterator

import pytest

from ottla.dataplane.security.kerberos_mapping import KerberosMapping
from ottla.dataplane.security.sasl.kerberos import KerberosLogin, KerberosLogins, KerberosThreads
from ottla.dataplane.security.sasl.kerberos_acceptor import KerberosAcceptor, KerberosSettings
from ottla.dataplane.security.sasl.login import LoggedIn, LoginRefused, LoginUndecided
from ottla.protocol.settings.config_key import ConfigError

MAPPING = KerberosMapping("DEFAULT", "R")
NO_LAYER = bytes([1, 0, 0, 0])
NOW_MS = 1_000_000


class Library:
    """A context that is complete after a number of tokens; its signed messages are in brackets."""

    def __init__(self, answers: list[bytes], principal: str = "ann@R", seconds: int | None = 60) -> None:
        self._answers = answers
        self._peer = (principal, seconds)

    @property
    def complete(self) -> bool:
        return not self._answers

    def step(self, token: bytes) -> bytes:
        if token == b"bad":
            raise LoginRefused("the token is bad")
        return self._answers.pop(0)

    def wrap(self, message: bytes) -> bytes:
        return b"[" + message + b"]"

    def unwrap(self, message: bytes) -> bytes:
        if not message.startswith(b"["):
            raise LoginRefused("it is not signed")
        return message[1:-1]

    def peer(self) -> tuple[str, int | None]:
        return self._peer


@pytest.fixture
def threads() -> Iterator[KerberosThreads]:
    made = KerberosThreads(threads=1, waiting_max=1)
    yield made
    made.close()


def login(threads: KerberosThreads, library: Library) -> KerberosLogin:
    return KerberosLogins(lambda: library, MAPPING, threads, lambda: NOW_MS).begin()


async def test_a_login_with_proof_of_the_broker(threads: KerberosThreads) -> None:
    attempt = login(threads, Library([b"more", b"proof"]))
    assert await attempt.receive(b"token") == b"more"
    assert await attempt.receive(b"token") == b"proof"
    assert await attempt.receive(b"") == b"[" + NO_LAYER + b"]"
    assert attempt.outcome is None
    assert attempt.claimed == "ann@R"
    assert await attempt.receive(b"[" + NO_LAYER + b"]") is None
    assert attempt.outcome == LoggedIn("ann", NOW_MS + 60_000)


async def test_a_login_without_it_has_the_offer_at_once(threads: KerberosThreads) -> None:
    attempt = login(threads, Library([b""], seconds=None))
    assert await attempt.receive(b"token") == b"[" + NO_LAYER + b"]"
    await attempt.receive(b"[" + NO_LAYER + b"]")
    assert attempt.outcome == LoggedIn("ann", None)


async def test_whoever_wants_to_act_as_another_acts_as_itself(threads: KerberosThreads) -> None:
    """kafka-python names the service there, and Kafka ignores it."""
    attempt = login(threads, Library([b""]))
    await attempt.receive(b"token")
    await attempt.receive(b"[" + NO_LAYER + b"admin]")
    assert attempt.outcome is not None
    assert attempt.outcome.user == "ann"


@pytest.mark.parametrize(
    ("messages", "complaint"),
    [
        ([b""], "an empty token of Kerberos"),
        ([b"bad"], "the token is bad"),
        ([b"x" * 65537], "a message of 65537 bytes, allowed are 65536"),
        ([b"token", b"x"], "1 bytes where it has nothing more to say"),
        ([b"token", b"", NO_LAYER], "it is not signed"),
        ([b"token", b"", b"[\x04\0\x10\0]"], "the layer 0x04, offered is none"),
        ([b"token", b"", b"[\x01\0]"], "a choice of layers of 2 bytes"),
        ([b"token", b"", b"[" + NO_LAYER + b"]", b""], "a message after the last one"),
    ],
)
async def test_what_ends_a_login(threads: KerberosThreads, messages: list[bytes], complaint: str) -> None:
    attempt = login(threads, Library([b"proof"]))
    with pytest.raises(LoginRefused, match=complaint):
        for message in messages:
            await attempt.receive(message)
    assert attempt.outcome is None or "after the last" in complaint


async def test_a_principal_of_another_realm_is_refused(threads: KerberosThreads) -> None:
    attempt = login(threads, Library([b""], principal="ann@OTHER"))
    await attempt.receive(b"token")
    with pytest.raises(LoginRefused, match="no rule applies to 'ann@OTHER'"):
        await attempt.receive(b"[" + NO_LAYER + b"]")


def test_a_broker_without_the_library_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", None)
    settings = KerberosSettings("listener.name.l.gssapi.sasl.jaas.config", "/k", "kafka/h@R", "")
    with pytest.raises(
        ConfigError, match=r"^listener\.name\.l\.gssapi.*: .* pip install '\.\[gssapi\]' in a checkout"
    ):
        KerberosAcceptor(settings)


async def test_a_storm_of_logins_is_bounded(threads: KerberosThreads) -> None:
    go_on = threading.Event()

    def slow(_: bytes) -> str:
        assert go_on.wait(20)
        return "done"

    first = asyncio.ensure_future(threads.run(slow, b""))
    second = asyncio.ensure_future(threads.run(slow, b""))
    await asyncio.sleep(0)
    with pytest.raises(LoginUndecided, match="2 messages of Kerberos are waiting"):
        await threads.run(slow, b"")
    first.cancel()  # its thread is still at it
    await asyncio.gather(first, return_exceptions=True)
    with pytest.raises(LoginUndecided):
        await threads.run(slow, b"")
    go_on.set()
    assert await second == "done"
    assert await threads.run(slow, b"") == "done"
