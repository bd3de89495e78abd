"""A store in moto, a server that speaks the protocol of S3."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from ottla.client.objects.opening import open_store
from tests.client.objects.store_servers import check_store, running

pytestmark = pytest.mark.cluster


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


async def test_a_server_creates_reads_lists_and_deletes_objects(s3: str) -> None:
    await check_store(open_store(s3, 20))
