"""A store that fails, is slow or loses answers: attempts are repeated within the patience, and each object is whole."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator

import pytest

from ottla.client.failures import (
    ObjectExists,
    ObjectMissing,
    ObjectStoreFailed,
    ObjectStoreUnavailable,
)
from ottla.client.objects import retrying
from ottla.client.objects.retrying import RetryingStore
from ottla.client.objects.store import StoredObject


class UnreliableStore:
    """A store in a dictionary, with a list of the failures to come."""

    url = "test://store"

    def __init__(self, *failures: str) -> None:
        self.failures = list(failures)
        self.objects: dict[str, bytes] = {}
        self.attempts = 0

    async def put_new(self, key: str, data: bytes) -> None:
        failure = await self._begin()
        if key in self.objects:
            raise ObjectExists("taken")
        self.objects[key] = data
        if failure == "lost":
            raise ObjectStoreUnavailable("the answer was lost")

    async def get(self, key: str, start: int, end: int) -> bytes:
        await self._begin()
        if key not in self.objects:
            raise ObjectMissing("none")
        return self.objects[key][start:end]

    async def pages(self, folder: str) -> AsyncIterator[list[StoredObject]]:
        for key, data in sorted(self.objects.items()):
            await self._begin()
            yield [StoredObject(key, len(data), 0)]

    async def delete(self, key: str) -> None:
        await self._begin()
        self.objects.pop(key, None)

    async def _begin(self) -> str:
        self.attempts += 1
        failure = self.failures.pop(0) if self.failures else ""
        if failure == "down":
            raise ObjectStoreUnavailable("503")
        if failure == "slow":
            await asyncio.sleep(3600)
        if failure == "denied":
            raise ObjectStoreFailed("403")
        return failure


async def test_an_object_whose_answer_was_lost_is_recognised() -> None:
    store = UnreliableStore("lost", "down")
    await RetryingStore(store, 5).put_new("a", b"x")
    assert store.objects == {"a": b"x"}


async def test_an_object_of_another_writer_is_not_taken_for_a_lost_answer() -> None:
    store = UnreliableStore("down")
    store.objects["a"] = b"other"
    with pytest.raises(ObjectExists):
        await RetryingStore(store, 5).put_new("a", b"x")
    same = UnreliableStore()
    same.objects["a"] = b"x"
    with pytest.raises(ObjectExists):
        await RetryingStore(same, 5).put_new("a", b"x")


async def test_a_store_that_hangs_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retrying, "ATTEMPT_S", 0.01)
    store = UnreliableStore("slow", "slow")
    store.objects["a"] = b"x"
    assert await RetryingStore(store, 5).get("a", 0, 5) == b"x"
    assert store.attempts == 3


async def test_patience_ends_with_the_reason() -> None:
    store = UnreliableStore(*["down"] * 1000)
    with pytest.raises(
        ObjectStoreUnavailable, match=r"the object a was not read within 0.2 s, .*503 .test://store"
    ):
        await RetryingStore(store, 0.2).get("a", 0, 1)
    assert 2 <= store.attempts < 20
    with pytest.raises(ObjectStoreUnavailable, match="no answer in time"):
        await RetryingStore(UnreliableStore("slow"), 0.05).delete("a")


async def test_a_refusal_is_not_repeated() -> None:
    store = UnreliableStore("denied")
    with pytest.raises(ObjectStoreFailed, match="the object a was not created: 403"):
        await RetryingStore(store, 5).put_new("a", b"x")
    assert store.attempts == 1


async def test_a_listing_that_hangs_is_asked_again_and_is_not_cut_short(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(retrying, "ATTEMPT_S", 0.01)
    store = UnreliableStore("", "slow", "", "slow")
    store.objects = {f"k{number}": b"x" for number in range(5)}
    found = [each.key async for each in RetryingStore(store, 30).list()]
    assert found == sorted(store.objects)


async def test_a_listing_that_failed_goes_on_with_each_object_once() -> None:
    for seed in range(20):
        chance = random.Random(seed)
        store = UnreliableStore(*("down" if chance.random() < 0.3 else "" for _ in range(12)))
        store.objects = {f"k{number}": b"x" for number in range(5)}
        found = [each.key async for each in RetryingStore(store, 30).list()]
        assert sorted(found) == sorted(store.objects)
        assert len(found) == 5
