"""Stores behave as a dictionary whose entries never change: in a folder, and in a bucket."""

from __future__ import annotations

import asyncio
import os
import secrets
from pathlib import Path
from tempfile import mkdtemp

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from ottla.client.failures import ObjectExists, ObjectMissing
from ottla.client.objects.opening import open_store
from ottla.client.objects.store import ObjectStore

KEYS = st.sampled_from(["a/1", "a/2", "a/b/3", "a-b", "a.b/1", "b/c/d/e", ".hidden/x=1", "c"])
FOLDERS = ["", "a/", "a/b/", "b/", "zz/", "a.b/"]
DATA = st.binary(max_size=40)


def in_folder() -> str:
    return Path(mkdtemp(prefix="ottla-objects-")).as_uri()


def in_memory() -> str:
    return f"memory://test-{secrets.token_hex(8)}/some/prefix"


class StoreModel(RuleBasedStateMachine):
    """A store beside a dictionary."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.store: ObjectStore = open_store(url, 10)
        self.model: dict[str, bytes] = {}

    def teardown(self) -> None:
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()

    @rule(key=KEYS, data=DATA)
    def put_new(self, key: str, data: bytes) -> None:
        made = self.store.put_new(key, data)
        if key in self.model:
            with pytest.raises(ObjectExists, match=key):
                self.loop.run_until_complete(made)
        else:
            self.loop.run_until_complete(made)
            self.model[key] = data

    @rule(key=KEYS, start=st.integers(0, 50), size=st.integers(1, 50))
    def get(self, key: str, start: int, size: int) -> None:
        found = self.store.get(key, start, start + size)
        if key in self.model:
            assert self.loop.run_until_complete(found) == self.model[key][start : start + size]
        else:
            with pytest.raises(ObjectMissing, match=key):
                self.loop.run_until_complete(found)

    @rule(key=KEYS)
    def delete(self, key: str) -> None:
        self.loop.run_until_complete(self.store.delete(key))
        self.model.pop(key, None)

    @invariant()
    def listings_are_those_of_the_model(self) -> None:
        async def listed(folder: str) -> dict[str, int]:
            return {found.key: found.size async for found in self.store.list(folder)}

        for folder in FOLDERS:
            assert self.loop.run_until_complete(listed(folder)) == {
                key: len(data) for key, data in self.model.items() if key.startswith(folder)
            }


@pytest.mark.parametrize("place", [in_folder, in_memory])
def test_a_store_is_a_dictionary_whose_entries_never_change(place: object) -> None:
    assert callable(place)
    run_state_machine_as_test(
        lambda: StoreModel(place()), settings=settings(max_examples=15, stateful_step_count=25, deadline=None)
    )


async def test_of_many_writers_of_a_key_exactly_one_creates_the_object(tmp_path: Path) -> None:
    stores = [open_store(tmp_path.as_uri(), 10) for _ in range(4)]
    for round_ in range(20):
        key = f"lease/{round_}"
        tries = [store.put_new(key, b"%d" % number) for number, store in enumerate(stores)]
        results = await asyncio.gather(*tries, return_exceptions=True)
        (winner,) = [number for number, result in enumerate(results) if result is None]
        assert sum(isinstance(result, ObjectExists) for result in results) == 3
        assert await stores[0].get(key, 0, 10) == b"%d" % winner


async def test_folders_that_become_empty_disappear_while_others_are_written(tmp_path: Path) -> None:
    store = open_store(tmp_path.as_uri(), 30)

    async def write_and_delete(worker: int) -> None:
        for number in range(40):
            await store.put_new(f"topic/day/{worker}-{number}", b"x")
            await store.delete(f"topic/day/{worker}-{number}")

    await asyncio.gather(*map(write_and_delete, range(4)))
    assert os.listdir(tmp_path) == ["~incoming"]
    assert os.listdir(tmp_path / "~incoming") == []
