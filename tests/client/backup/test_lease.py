"""The lease of a store: one run at a time, and a dead run gives way."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ottla.client.backup import lease as leases
from ottla.client.backup.lease import take_lease
from ottla.client.backup.names import CutId, CutName
from ottla.client.failures import BackupRefused, ObjectStoreUnavailable
from ottla.client.objects.opening import open_store
from ottla.client.objects.store import ObjectStore


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store(tmp_path.as_uri(), 10)


class OutageStore:
    """A store that fails while it is down."""

    def __init__(self, store: ObjectStore) -> None:
        self.down = False
        self.failed: list[str] = []
        self._store = store
        self.url, self.get, self.list = store.url, store.get, store.list

    async def put_new(self, key: str, data: bytes) -> None:
        self._check(key)
        await self._store.put_new(key, data)

    async def delete(self, key: str) -> None:
        self._check(key)
        await self._store.delete(key)

    def _check(self, key: str) -> None:
        if self.down:
            self.failed.append(key)
            raise ObjectStoreUnavailable(f"the object {key}: 503")


def silent(text: str) -> None:
    """Ignore the text about the wait."""


async def test_a_run_that_ended_gives_way_at_once(store: ObjectStore) -> None:
    first, _ = await take_lease(store, silent, 30)
    await first.check()
    await store.put_new(CutName(CutId(1, 3), 5).key, b"")
    await first.release()
    second, catalog = await take_lease(store, silent, 30)
    assert (first.epoch, second.epoch, catalog.epoch.closed) == (1, 2, {1: 3})
    await second.release()
    assert [found.key async for found in store.list("alive/")] == []


async def test_a_living_run_is_not_disturbed(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "RENEWED_EVERY_S", 0.05)
    first, _ = await take_lease(store, silent, 30)
    await asyncio.sleep(0.06)  # It has shown its sign of life.
    with pytest.raises(BackupRefused, match=r"another backup into .* is running: .*, process "):
        await take_lease(store, silent, 30)
    await first.check()
    await first.release()


async def test_a_run_goes_on_once_its_store_answers_again(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "RENEWED_EVERY_S", 0.01)
    outage = OutageStore(store)
    lease, _ = await take_lease(outage, silent, 30)
    outage.down = True
    async with asyncio.timeout(10):
        while len(outage.failed) < 3:
            await asyncio.sleep(0.01)
    with pytest.raises(ObjectStoreUnavailable, match="503"):
        await lease.check()
    outage.down = False
    async with asyncio.timeout(10):
        while True:
            try:
                await lease.check()
                break
            except ObjectStoreUnavailable:
                await asyncio.sleep(0.01)
    with pytest.raises(BackupRefused, match="is running"):
        await take_lease(store, silent, 30)
    outage.down = True
    await lease.release()  # A store that fails does not hide the failure that ended the run.


async def test_a_dead_run_loses_the_store_and_notices_it(store: ObjectStore) -> None:
    texts: list[str] = []
    dead, _ = await take_lease(store, silent, 30)
    while not [found async for found in store.list("alive/")]:
        await asyncio.sleep(0.01)
    second, _ = await take_lease(store, texts.append, 0.2)
    assert "still alive" in texts[0]
    with pytest.raises(BackupRefused, match="has taken over"):
        await dead.check()
    await second.check()
    await dead.release()
    await second.check()
    await second.release()


async def test_of_two_runs_that_begin_at_once_one_is_refused(store: ObjectStore) -> None:
    outcomes = await asyncio.gather(
        *(take_lease(store, silent, 0.1) for _ in range(4)), return_exceptions=True
    )
    taken = [outcome for outcome in outcomes if not isinstance(outcome, BaseException)]
    assert taken
    held = max((lease for lease, _ in taken), key=lambda lease: lease.epoch)
    await held.check()
    assert len({lease.epoch for lease, _ in taken}) == len(taken)
    for outcome in outcomes:
        assert not isinstance(outcome, BaseException) or isinstance(outcome, BackupRefused)
    for lease, _ in taken:
        await lease.release()
