"""Stores in servers that others wrote: moto with the protocol of S3, and Azurite with that of Azure Blob Storage."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from ottla.client.failures import ObjectExists, ObjectMissing, ObjectStoreFailed
from ottla.client.objects.opening import open_store
from tests.integration.foreign_builds import azurite, needs_node

pytestmark = pytest.mark.cluster

ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The account and the key that Azurite has by default."""


@contextmanager
def running(log: Path, command: Sequence[str], said: str) -> Iterator[str]:
    """Run a server until the end of the block, and yield the address that it prints after the text `said`."""
    with log.open("w") as file, subprocess.Popen(command, stdout=file, stderr=file) as process:
        try:
            deadline = time.monotonic() + 60
            while (found := re.search(rf"{said}.*?(http://127\.0\.0\.1:\d+)", log.read_text())) is None:
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.02)
            yield found[1]
        finally:
            process.kill()


@pytest.fixture
def s3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Return the URL of a store in moto."""
    pytest.importorskip("moto.server", reason="make venv installs moto")
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
    with running(tmp_path / "log", command, "Running on") as address:
        urlopen(Request(f"{address}/bucket", method="PUT"), timeout=20).close()
        monkeypatch.setenv("AWS_ENDPOINT_URL", address)
        monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "some-key")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "some-secret")
        monkeypatch.setenv("AWS_REGION", "us-east-1")
        yield "s3://bucket/some/prefix"


@pytest.fixture
def az(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Return the URL of a store in Azurite."""
    options = ("--blobHost", "127.0.0.1", "--blobPort", "0", "--inMemoryPersistence", "--skipApiVersionCheck")
    with running(tmp_path / "log", [*azurite(), *options], "successfully listen") as address:
        create_container(address)
        monkeypatch.setenv("AZURE_STORAGE_USE_EMULATOR", "true")
        monkeypatch.setenv("AZURITE_BLOB_STORAGE_URL", address)
        monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
        monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", ACCOUNT)
        monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", KEY)
        yield "az://bucket/some/prefix"


def create_container(address: str) -> None:
    """Create the container `bucket`, which no store does."""
    headers = {
        "x-ms-date": datetime.now(UTC).strftime("%a, %d %b %Y %H:%M:%S GMT"),
        "x-ms-version": "2021-12-02",
    }
    signed = "PUT" + "\n" * 12 + "".join(f"{name}:{value}\n" for name, value in headers.items())
    signed += f"/{ACCOUNT}/{ACCOUNT}/bucket\nrestype:container"
    mac = hmac.new(base64.b64decode(KEY), signed.encode(), hashlib.sha256).digest()
    headers["Authorization"] = f"SharedKey {ACCOUNT}:{base64.b64encode(mac).decode()}"
    url = f"{address}/{ACCOUNT}/bucket?restype=container"
    headers["Content-Length"] = "0"
    urlopen(Request(url, headers=headers, method="PUT"), timeout=20).close()


@pytest.mark.parametrize("server", ["s3", pytest.param("az", marks=needs_node)])
async def test_a_server_creates_reads_lists_and_deletes_objects(
    server: str, request: pytest.FixtureRequest
) -> None:
    store = open_store(request.getfixturevalue(server), 20)
    keys = [f"orders/{day}/{number}" for day in ("2026-11-28", "2026-11-29") for number in range(4)]
    for key in keys:
        await store.put_new(key, key.encode() * 3)
    with pytest.raises(ObjectExists, match=keys[0]):
        await store.put_new(keys[0], b"other")
    assert await store.get(keys[0], 0, 1000) == keys[0].encode() * 3
    assert await store.get(keys[0], 3, 9) == (keys[0].encode() * 3)[3:9]
    assert await store.get(keys[0], 1000, 2000) == b""
    found = [each async for each in store.list()]
    assert sorted(each.key for each in found) == keys
    assert {each.size for each in found} == {len(keys[0]) * 3}
    assert all(abs(each.modified_ms / 1000 - time.time()) < 600 for each in found)
    assert sorted([each.key async for each in store.list("orders/2026-11-29/")]) == keys[4:]
    await store.delete(keys[0])
    await store.delete(keys[0])
    with pytest.raises(ObjectMissing, match="there is no object"):
        await store.get(keys[0], 0, 10)


@needs_node
async def test_a_wrong_key_is_refused_at_once_and_not_shown(az: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = base64.b64encode(b"another key").decode()
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", wrong)
    with pytest.raises(ObjectStoreFailed) as caught:
        await open_store(az, 20).put_new("a", b"x")
    assert wrong not in str(caught.value)
