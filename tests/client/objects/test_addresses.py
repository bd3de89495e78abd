"""Keys and URLs of stores: no key names a place outside of its store, and no URL has credentials."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from ottla.client.failures import ObjectExists, ObjectMissing, ObjectStoreFailed
from ottla.client.objects.opening import open_store
from ottla.client.objects.store import check_key, is_key
from ottla.client.objects.urls import parsed

ESCAPES = [
    "..",
    "../x",
    "a/../../x",
    "a/..",
    "/etc/passwd",
    "a//b",
    "a/",
    "",
    ".",
    "./a",
    "a\0b",
    "a\nb",
    "a\\..\\b",
    "~incoming/x",
    "a/%2e%2e/b",
    "http://169.254.169.254/latest",
    "s3://other/x",
    "a?x=1",
    "a#b",
    "ü",
    "a b",
    "x" * 256,
    "x/" * 600 + "x",
]


@pytest.mark.parametrize("key", ESCAPES)
async def test_a_key_that_names_another_place_is_refused(key: str, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "x").write_text("secret")
    store = open_store((tmp_path / "outside").as_uri(), 1)
    for call in (store.put_new(key, b""), store.get(key, 0, 1), store.delete(key)):
        with pytest.raises(ValueError, match="key"):
            await call
    assert not is_key(key)
    assert sorted(os.listdir(tmp_path)) == ["outside", "x"]
    assert os.listdir(tmp_path / "outside") == []


def test_an_error_about_a_key_is_short() -> None:
    with pytest.raises(ValueError, match="at most 1024") as caught:
        check_key("x" * 100_000)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("folder", ["a", "/", "../", "a/../", "~incoming/"])
async def test_a_folder_of_keys_is_checked(folder: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"folder|key"):
        [found async for found in open_store(tmp_path.as_uri(), 1).list(folder)]


@pytest.mark.parametrize(("start", "end"), [(-1, 3), (3, 3), (4, 3)])
async def test_a_range_is_checked(start: int, end: int, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="range"):
        await open_store(tmp_path.as_uri(), 1).get("a", start, end)


async def test_symbolic_links_and_special_files_in_a_store_are_not_followed(tmp_path: Path) -> None:
    root = tmp_path / "store"
    root.mkdir()
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret")
    (root / "folder").symlink_to(outside)
    (root / "file").symlink_to(outside / "secret")
    os.mkfifo(root / "pipe")
    (root / "not a key").write_bytes(b"x")
    store = open_store(root.as_uri(), 1)
    for key in ("folder/secret", "file"):
        with pytest.raises(ObjectStoreFailed):
            await store.get(key, 0, 10)
    with pytest.raises(ObjectStoreFailed):
        await store.put_new("folder/new", b"x")
    with pytest.raises(ObjectExists):
        await store.put_new("file", b"x")
    with pytest.raises(ObjectMissing):
        await store.get("pipe", 0, 10)
    assert [found.key async for found in store.list()] == []
    assert (outside / "secret").read_bytes() == b"secret"
    assert os.listdir(outside) == ["secret"]


async def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    store = open_store((tmp_path / "not-mounted").as_uri(), 1)
    with pytest.raises(
        ObjectStoreFailed, match=r"the object a was not created: the folder .*not-mounted .* exist"
    ):
        await store.put_new("a", b"x")
    assert not (tmp_path / "not-mounted").exists()


def test_urls_name_a_folder_or_a_bucket() -> None:
    assert parsed("file:///srv/my%20objects") == ("file", "", "/srv/my objects")
    assert parsed("s3://bucket") == ("s3", "bucket", "")
    assert parsed("s3://bucket/a/b/") == ("s3", "bucket", "a/b")
    assert parsed("gs://bucket/a") == ("gs", "bucket", "a")
    assert parsed("az://container/a") == ("az", "container", "a")


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("s3://key:password@bucket/a", "no credentials"),
        ("https://bucket.s3.amazonaws.com/a", "scheme is not 'https'"),
        ("/srv/objects", "scheme is not ''"),
        ("file://srv/objects", "three slashes"),
        ("file:///", "not the URL of a folder"),
        ("file:///srv/../etc", "not the URL of a folder"),
        ("file:///srv/%2e%2e/etc", "not the URL of a folder"),
        ("s3://bucket:9000/a", "does not name a bucket"),
        ("s3:///a", "does not name a bucket"),
        ("s3://bucket/a/../b", "invalid part"),
        ("s3://bucket/a?endpoint=http://elsewhere", "no [?]"),
        ("s3://bucket/a#b", "no [?] and no #"),
    ],
)
def test_an_invalid_url_is_refused(url: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        open_store(url, 1)
    assert "password" not in str(caught.value)


def test_without_obstore_the_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(ModuleNotFoundError, match=r"need obstore: pip install '.*\[objects\]'"):
        open_store("s3://bucket/a", 1)
    open_store("file:///srv/objects", 1)
