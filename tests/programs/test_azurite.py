"""A store in Azurite, a server that speaks the protocol of Azure Blob Storage."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from ottla.client.failures import ObjectStoreFailed
from ottla.client.objects.opening import open_store
from tests.client.objects.store_servers import check_store, running
from tests.integration.foreign_builds import azurite, needs_node

pytestmark = needs_node

ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The account and the key that Azurite has by default."""


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


async def test_a_server_creates_reads_lists_and_deletes_objects(az: str) -> None:
    await check_store(open_store(az, 20))


async def test_a_wrong_key_is_refused_at_once_and_not_shown(az: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = base64.b64encode(b"another key").decode()
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", wrong)
    with pytest.raises(ObjectStoreFailed) as caught:
        await open_store(az, 20).put_new("a", b"x")
    assert wrong not in str(caught.value)
