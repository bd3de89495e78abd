"""A store in S3: the requests it sends, its failures, and the credentials and endpoint from the environment."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla.client.failures import (
    ObjectExists,
    ObjectMissing,
    ObjectStoreFailed,
    ObjectStoreUnavailable,
)
from ottla.client.objects.opening import open_store

from .s3_server import S3Server, s3_server


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    """Run a server whose address and credentials are in the environment."""
    with s3_server() as running:
        monkeypatch.setenv("AWS_ENDPOINT_URL", running.address)
        monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "some-key")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "some-secret")
        monkeypatch.setenv("AWS_REGION", "eu-west-1")
        yield running


async def test_objects_are_created_read_listed_and_deleted_below_the_prefix(server: S3Server) -> None:
    store = open_store("s3://bucket/some/prefix", 20)
    keys = [f"orders/{day}/{number}" for day in ("2026-11-28", "2026-11-29") for number in range(4)]
    for key in keys:
        await store.put_new(key, key.encode() * 3)
    server.objects["/bucket/some/other"] = b"of another program"
    server.objects["/bucket/some/prefix/not a key"] = b"of another program"
    with pytest.raises(ObjectExists, match=keys[0]):
        await store.put_new(keys[0], b"other")
    assert await store.get(keys[0], 0, 1000) == keys[0].encode() * 3
    assert await store.get(keys[0], 3, 9) == (keys[0].encode() * 3)[3:9]
    assert await store.get(keys[0], 1000, 2000) == b""
    found = [each async for each in store.list()]
    assert sorted(each.key for each in found) == keys
    assert {each.modified_ms for each in found} == {1_795_953_600_000}
    assert [each.key async for each in store.list("orders/2026-11-29/")] == keys[4:]
    await store.delete(keys[0])
    await store.delete(keys[0])
    with pytest.raises(ObjectMissing, match=r"there is no object .*s3://bucket/some/prefix"):
        await store.get(keys[0], 0, 10)
    assert len(server.objects) == 9


async def test_requests_that_fail_for_the_moment_are_repeated(server: S3Server) -> None:
    store = open_store("s3://bucket/p", 30)
    server.failures = ["503", "500", "lost"]
    await store.put_new("a", b"x")
    assert server.objects == {"/bucket/p/a": b"x"}
    server.failures = ["lost", "503"]
    await store.put_new("b", b"y")
    for number in range(5):
        await store.put_new(f"c/{number}", b"z")
    server.failures = ["lost", "500", "503"]
    assert await store.get("b", 0, 10) == b"y"
    server.failures = ["503", "", "500"]
    assert len([each async for each in store.list()]) == 7
    server.failures = ["lost", "503"]
    await store.delete("a")
    assert "/bucket/p/a" not in server.objects


async def test_a_refusal_is_not_repeated_and_shows_no_secret(server: S3Server) -> None:
    store = open_store("s3://bucket/p", 30)
    server.failures = ["403"]
    with pytest.raises(ObjectStoreFailed) as caught:
        await store.put_new("a", b"x")
    assert not isinstance(caught.value, ObjectStoreUnavailable)
    assert len(server.asked) == 1
    assert "some-secret" not in str(caught.value)
    assert "Debug source" not in str(caught.value)
    assert "s3://bucket/p" in str(caught.value)


async def test_a_server_that_is_away_ends_the_patience(server: S3Server) -> None:
    store = open_store("s3://bucket/p", 1)
    server.failures = ["503"] * 1000
    with pytest.raises(ObjectStoreUnavailable, match="the object a was not read within 1 s"):
        await store.get("a", 0, 1)


async def test_an_endpoint_without_tls_needs_a_word_in_the_environment(
    server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ALLOW_HTTP")
    with pytest.raises(ObjectStoreFailed, match="AWS_ALLOW_HTTP=true"):
        await open_store("s3://bucket/p", 5).put_new("a", b"x")
    assert server.asked == []


def test_a_store_that_the_environment_does_not_describe_is_refused_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    with pytest.raises(ObjectStoreFailed, match=r"how to reach az://container/p: .*[Aa]ccount") as caught:
        open_store("az://container/p", 5)
    assert not isinstance(caught.value, ObjectStoreUnavailable)
