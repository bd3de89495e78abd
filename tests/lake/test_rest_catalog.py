"""The catalog over HTTP, as engines read it: pyiceberg's client, and requests that are refused."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError, RESTError
from pyiceberg.schema import Schema

from ottla.cli.main import main
from ottla.lake.iceberg.catalogs import LakePlace, open_catalog
from tests.lake.served_catalog import served_catalog
from tests.lake.small_tables import append, opened


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Serve a lake with one table."""
    folder = tmp_path_factory.mktemp("served")
    append(opened(open_catalog(LakePlace(folder=folder), create=True)), 0, 3)
    with served_catalog(folder) as address:
        yield address


def answer(address: str, path: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, object]]:
    """Return the code and the body of an answer."""
    request = urllib.request.Request(address + path, method=method, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=30) as got:
            code, body = got.status, got.read()
    except urllib.error.HTTPError as error:
        code, body = error.code, error.read()
    return code, json.loads(body) if body else {}


def test_pyiceberg_reads_through_the_catalog(address: str) -> None:
    catalog = load_catalog("ottla", type="rest", uri=address)
    assert catalog.list_namespaces() == [("lake",)]
    assert catalog.list_tables("lake") == [("lake", "t")]
    assert catalog.table_exists("lake.t")
    assert not catalog.table_exists("lake.none")
    assert catalog.namespace_exists("lake")
    table = catalog.load_table("lake.t")
    assert sorted({row["ottla"]["offset"] for row in table.scan().to_arrow().to_pylist()}) == [0, 1, 2]
    with pytest.raises(NoSuchTableError):
        catalog.load_table("lake.none")
    with pytest.raises(NoSuchNamespaceError):
        catalog.list_tables("nowhere")


def test_writes_are_refused(address: str) -> None:
    catalog = load_catalog("ottla", type="rest", uri=address)
    with pytest.raises(NotImplementedError):
        catalog.create_table("lake.new", Schema())
    table = catalog.load_table("lake.t")
    with pytest.raises((RESTError, NotImplementedError)):
        table.append(table.scan().to_arrow())
    for path, method in (
        ("/v1/namespaces", "POST"),
        ("/v1/namespaces/lake/tables/t", "DELETE"),
        ("/v1/x", "PUT"),
    ):
        code, body = answer(address, path, method)
        assert code == 406
        assert body["error"] == {
            "message": f"{method} {path}: this catalog is read-only; `ottla lake run` writes its tables",
            "type": "UnsupportedOperationException",
            "code": 406,
        }


def test_other_answers_have_the_form_of_the_api(address: str) -> None:
    code, body = answer(address, "/v1/config?warehouse=x")
    assert code == 200
    assert "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}" in body["endpoints"]  # type: ignore[operator]
    assert answer(address, "/v1/namespaces/lake/tables/t", "HEAD") == (204, {})
    assert answer(address, "/v1/namespaces/lake/tables/none", "HEAD")[0] == 404
    assert answer(address, "/v1/namespaces/lake/tables/t/metrics", "POST") == (204, {})
    assert answer(address, "/v1/namespaces?parent=lake") == (200, {"namespaces": []})
    code, body = answer(address, "/elsewhere")
    assert (code, body["error"]["type"]) == (404, "NoSuchEndpointException")  # type: ignore[index]


def test_a_request_by_another_name_is_refused(address: str) -> None:
    code, body = answer(address, "/v1/config", Host="evil.example")
    assert code == 403
    assert "does not name this machine" in str(body)
    assert answer(address, "/v1/config", Host="localhost:1")[0] == 200


def test_a_head_of_a_request_is_bounded(address: str) -> None:
    try:
        code, _ = answer(address, "/v1/config", X="x" * 1_000_000)
    except OSError:  # The server has closed the connection before all was sent.
        return
    assert code == 400


@pytest.mark.parametrize(
    ("words", "code", "reason"),
    [
        (("--lake", "/nowhere", "--listen", "x"), 2, "an address to listen at is HOST:PORT"),
        (("--lake", "/nowhere"), 1, "/nowhere is no lake"),
    ],
)
def test_wrong_usage_is_told(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], code: int, reason: str
) -> None:
    assert main(["lake", "catalog", *words]) == code
    assert reason in capsys.readouterr().err
