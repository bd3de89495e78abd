"""Credentials that are called for: shared, used to their end, and not asked for again and again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from ottla.client.security import called_for
from ottla.client.security.called_for import CalledFor, CredentialsUnavailable, Given


class Server:
    """Gives credentials with numbers, lasting `life_s` by its clock; or is away."""

    def __init__(self, life_s: float | None) -> None:
        self.now_s = 1_000.0
        self.life_s = life_s
        self.is_away = False
        self.calls: list[float] = []
        self.held: asyncio.Event | None = None
        self.credential = CalledFor("token", self.give, clock=self.clock, monotonic=self.clock)

    def clock(self) -> float:
        return self.now_s

    async def give(self) -> Given[int]:
        self.calls.append(self.now_s)
        if self.held is not None:
            await self.held.wait()
        await asyncio.sleep(0)
        if self.is_away:
            raise CredentialsUnavailable("away")
        return Given(len(self.calls), None if self.life_s is None else self.now_s + self.life_s)

    async def logins(self, until_s: float, step_s: float = 0.01) -> list[int | None]:
        """Log in every so often. Return the credentials, None where there was none."""
        used: list[int | None] = []
        while self.now_s < until_s:
            self.now_s += step_s
            try:
                used.append(await self.credential.current())
            except CredentialsUnavailable:
                used.append(None)
        return used


async def test_one_that_counts_is_used_to_its_end_while_no_other_is_given() -> None:
    server = Server(life_s=100)
    assert await server.credential.current() == 1
    server.is_away = True
    assert {*await server.logins(1_099.9)} == {1}, "to its end"
    server.now_s = 1_100
    assert {*await server.logins(1_130)} == {None}
    pauses = [later - before for before, later in zip(server.calls[1:], server.calls[2:], strict=False)]
    assert 1_075 <= server.calls[1] < 1_076, "another one is asked for after three quarters of its life"
    assert all(0.24 < pause < 10.1 for pause in pauses), pauses
    assert all(pause > 2.4 for pause in pauses[4:]), f"they grow: {pauses}"
    server.is_away = False
    assert (await server.logins(1_145))[-1] == len(server.calls)


async def test_one_that_was_renewed_in_time_is_never_missed() -> None:
    server = Server(life_s=100)
    await server.credential.current()
    server.is_away = True
    await server.logins(1_090)
    server.is_away = False
    assert None not in await server.logins(1_160, step_s=0.1)


async def test_connections_share_a_call_and_its_failure() -> None:
    for life_s in (100, None):
        server = Server(life_s)
        assert await asyncio.gather(*(server.credential.current() for _ in range(50))) == [1] * 50
        assert len(server.calls) == 1
        server = Server(life_s)
        server.is_away = True
        failed = await asyncio.gather(
            *(server.credential.current() for _ in range(50)), return_exceptions=True
        )
        assert {type(failure) for failure in failed} == {CredentialsUnavailable}
        assert len(server.calls) == 1


async def test_one_that_waits_for_a_call_may_give_up_and_others_wait_on() -> None:
    server = Server(life_s=100)
    server.held = asyncio.Event()
    first, second = (asyncio.ensure_future(server.credential.current()) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    server.held.set()
    assert await second == 1
    assert first.cancelled()


async def test_a_server_that_hangs_does_not_hold_up_who_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(called_for, "WAIT_S", 0.01)
    server = Server(life_s=100)
    await server.credential.current()
    server.now_s += 80
    server.held = asyncio.Event()
    assert [await server.credential.current() for _ in range(3)] == [1] * 3
    assert len(server.calls) == 2
    server.held.set()
    async with asyncio.timeout(10):
        while await server.credential.current() != 2:
            await asyncio.sleep(0)


async def test_without_an_end_each_login_asks_and_the_last_one_is_used_meanwhile() -> None:
    server = Server(life_s=None)
    assert [await server.credential.current() for _ in range(3)] == [1, 2, 3]
    server.is_away = True
    assert {*await server.logins(1_060)} == {3}
    assert len(server.calls) < 3 + 20
    missing = server.credential.refused(3)
    assert missing is not None
    assert str(missing) == "away"
    with pytest.raises(CredentialsUnavailable, match="away"):
        await server.credential.current()
    server.is_away = False
    assert (await server.logins(1_080))[-1] == len(server.calls)


@pytest.mark.parametrize("life_s", [100, None])
async def test_brokers_that_refuse_each_one_do_not_wear_the_server_out(life_s: float | None) -> None:
    server = Server(life_s)

    async def log_in() -> None:
        value = await server.credential.current()
        if refuses:
            assert server.credential.refused(value) is None
        else:
            server.credential.accepted(value)

    refuses = True
    failures: list[CredentialsUnavailable] = []
    for _ in range(3_000):
        server.now_s += 0.01
        try:
            await log_in()
        except CredentialsUnavailable as error:
            failures.append(error)
    assert all(failure.is_final for failure in failures)
    assert 3 < len(server.calls) < 15, "30 seconds"
    assert server.calls[1] - server.calls[0] < 0.1, "the first refusal is cured by another one at once"
    refuses = False
    server.now_s += 10
    await log_in()


async def test_what_is_no_credential_at_all_is_final() -> None:
    async def give() -> Given[int]:
        raise CredentialsUnavailable("nonsense", is_final=True)

    calls: list[Callable[[], Awaitable[int]]] = [CalledFor("token", give).current] * 2
    for call in calls:
        with pytest.raises(CredentialsUnavailable, match="nonsense") as failed:
            await call()
        assert failed.value.is_final
