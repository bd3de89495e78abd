"""Values with a schema registry: framing, Avro, Protobuf, JSON, the registry's answers, and the cache."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

import pytest

from ottla.client.records import ConsumerRecord
from ottla.console.area import Area, Rendered, View, Visit
from ottla.console.pages.messages.filters import filters_of
from ottla.console.pages.messages.page import MessagesPage, message_row
from ottla.console.pages.messages.question import WHERE, question_of
from ottla.console.schemas import decoding, registry
from ottla.console.schemas.decoding import DECODED_BYTES_MAX, Decoded, Decoder
from ottla.console.schemas.framing import Framed, Undecodable, framed, message_of
from ottla.console.schemas.registry import (
    AVRO,
    JSON,
    PROTOBUF,
    NoSchema,
    RegisteredSchema,
    SchemaRegistry,
    registry_address,
)
from tests.console.fakes import HOSTILE, Browser, FakeAdmin, seen
from tests.console.schema_values import ORDER_BYTES, Shelf, file_of, frame, serialized
from tests.oauth_issuer import in_thread

# ------------------------------------------------------------ bytes


def test_which_bytes_name_a_schema() -> None:
    assert framed(b"\0\0\0\0\x07abc") == Framed(7, b"abc")
    for other in (None, b"", b"\0\0\0\7", b"{}{}{}", b"\0\0\0\0\0\0\0\x07", b"\0\xff\xff\xff\xff"):
        assert framed(other) is None


def test_which_message_a_value_is() -> None:
    assert message_of(b"\x00rest") == ([0], b"rest")
    assert message_of(b"\x04\x02\x00rest") == ([1, 0], b"rest")
    for broken in (b"", b"\x04\x02", b"\x80\x80\x80\x80\x80\x80", b"\x01", b"\xff\x7f"):
        with pytest.raises(Undecodable):
            message_of(broken)


# ------------------------------------------------------------ pages


def test_a_row_shows_what_was_decoded_and_why_not() -> None:
    record = ConsumerRecord("t", 0, 7, 1_000, frame(8, b"k"), frame(7, ORDER_BYTES))
    value, key = Decoded("Avro, schema 7: shop.Order", {"id": 7}), Decoded("schema 8", trouble="gone")
    row = message_row(record, "auto", "", key=key, value=value)
    assert (row.value.text, row.value.schema) == ('{\n  "id": 7\n}', "Avro, schema 7: shop.Order")
    assert (row.key.kind, row.key.trouble) == ("hex", "schema 8: gone")
    as_hex = message_row(record, "hex", "", value=value).value
    assert (as_hex.kind, as_hex.schema) == ("hex", "")
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    too_deep = message_row(record, "auto", "", value=Decoded("schema 7", deep)).value
    assert (too_deep.kind, too_deep.trouble) == ("hex", "schema 7: it is nested too deep")


def test_what_a_schema_names_is_text_of_strangers() -> None:
    record = ConsumerRecord("t", 0, 7, 1_000, frame(8, b"k"), frame(7, b""))
    value, key = Decoded(HOSTILE, {"id": HOSTILE}), Decoded("schema 8", trouble=HOSTILE)

    async def show(visit: Visit) -> Rendered:
        rows = [message_row(record, "auto", "", key=key, value=value)]
        model = MessagesPage(
            topics=(), question=question_of(visit), where=WHERE, formats=(), rows=rows, undecoded=1,
            first_undecoded=HOSTILE,
        )  # fmt: skip
        return Rendered("Messages", "messages.html", model)

    area = Area(name="messages", title="Messages", place=1, parts=(View(path="/messages", show=show),))
    page = Browser(FakeAdmin(), areas=[area]).enter().read("/messages?topic=t")
    assert "<script>alert" not in page
    assert seen(page).count(HOSTILE) == 3
    assert "1 values were not decoded" in seen(page)


def test_a_json_path_looks_into_what_was_decoded() -> None:
    record = ConsumerRecord("t", 0, 7, 1_000, None, frame(7, ORDER_BYTES))
    (passes,) = filters_of({"json": "$.id = 7"})
    assert passes(record, Decoded("", {"id": 7}))
    assert passes(record, Decoded("", {"id": "7"}))
    assert not passes(record, Decoded("", {"id": 8}))
    assert not passes(record, Decoded("", trouble="gone"))
    assert not passes(record, None)


# ------------------------------------------------------------ caches


async def test_a_schema_is_asked_for_once_and_a_failure_again_later(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 0.0
    shelf = Shelf(_7=RegisteredSchema(JSON, "{}"))
    decoder = Decoder(shelf, now=lambda: now_s)
    for _ in range(3):
        assert (await decoder.decoded(frame(7, b"1"))) == Decoded("JSON, schema 7", 1)
        assert (await decoder.decoded(frame(8, b"1"))) == Decoded(
            "schema 8", trouble="the registry does not know it"
        )
    assert shelf.asked == [7, 8]
    assert await decoder.decoded(b"text") is None
    now_s = decoding.FAILED_S
    shelf.schemas[8] = RegisteredSchema(JSON, "{}")
    found = await asyncio.gather(*(decoder.decoded(frame(8, b"2")) for _ in range(3)))
    assert found == [Decoded("JSON, schema 8", 2)] * 3
    assert shelf.asked == [7, 8, 8]


async def test_a_silent_registry_is_left_alone_for_a_while() -> None:
    now_s = 0.0
    shelf = Shelf(_7=NoSchema("nobody there", is_silent=True), _8=RegisteredSchema(JSON, "{}"))
    decoder = Decoder(shelf, now=lambda: now_s)
    for schema_id in (7, 8, 9):
        assert await decoder.decoded(frame(schema_id, b"1")) == Decoded(
            f"schema {schema_id}", trouble="nobody there"
        )
    assert shelf.asked == [7]
    now_s = decoding.SILENT_S
    assert await decoder.decoded(frame(8, b"1")) == Decoded("JSON, schema 8", 1)


async def test_strangers_cannot_have_the_registry_asked_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "ASKED_MAX", 5)
    now_s = 0.0
    shelf = Shelf()
    decoder = Decoder(shelf, now=lambda: now_s)
    found = await decoder.all_decoded([frame(schema_id, b"") for schema_id in range(1, 10)], 60.0)
    assert len(shelf.asked) == 5
    assert found[-1] is not None
    assert "5 schemas were asked for within 60 s already" in found[-1].trouble
    now_s = decoding.ASKED_S + decoding.FAILED_S + 1
    await decoder.decoded(frame(9, b""))
    assert shelf.asked[5:] == [9]


async def test_few_and_small_schemas_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "SCHEMAS_MAX", 2)
    shelf = Shelf(**{f"_{schema_id}": RegisteredSchema(JSON, "{}") for schema_id in range(1, 5)})
    decoder = Decoder(shelf)
    for schema_id in (1, 2, 1, 3, 1, 2):
        await decoder.decoded(frame(schema_id, b"1"))
    assert shelf.asked == [1, 2, 3, 2]
    monkeypatch.setattr(decoding, "SCHEMAS_BYTES_MAX", 3)
    await decoder.decoded(frame(4, b"1"))
    await decoder.decoded(frame(4, b"1"))
    await decoder.decoded(frame(2, b"1"))
    assert shelf.asked[4:] == [4, 2]
    large = await decoder.decoded(frame(1, bytes(DECODED_BYTES_MAX + 1)))
    assert large == Decoded("schema 1", trouble="larger than 256 KiB, so it is not decoded")


async def test_a_page_waits_so_long_for_its_schemas() -> None:
    class Slow(Shelf):
        async def schema(self, schema_id: int) -> RegisteredSchema:
            if schema_id == 7:
                return RegisteredSchema(JSON, "{}")
            return await asyncio.Future()

    found = await Decoder(Slow()).all_decoded([frame(7, b"1"), frame(8, b"1"), None], 0.05)
    assert found == [
        Decoded("JSON, schema 7", 1),
        Decoded("schema 8", trouble="not decoded: the schemas of this page took longer than 0.05 s"),
        None,
    ]


# ------------------------------------------------------------ the registry


@pytest.mark.parametrize(
    "address",
    [
        "registry:8081",
        "ftp://registry",
        "http://",
        "http://me:secret@registry",
        "http://r/?a=secret",
        "http://r:x",
    ],
)
def test_an_address_that_is_none(address: str) -> None:
    with pytest.raises(ValueError, match=r"registry|[Pp]ort") as caught:
        registry_address(address)
    assert "secret" not in str(caught.value)


class Served:
    """A server that answers by path, over HTTP."""

    def __init__(self) -> None:
        self.answers: dict[str, object] = {}
        self.heads: list[str] = []

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
        except asyncio.IncompleteReadError:  # a connection that was given up before its request
            writer.close()
            return
        self.heads.append(head)
        path = unquote(head.split(" ")[1])
        status, answer = "200 OK", self.answers.get(path)
        if answer is None:
            status, answer = "404 Not Found", {"error_code": 40403}
        elif isinstance(answer, int):
            status, answer = f"{answer} No", {}
        body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        writer.write(f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        await writer.drain()
        writer.close()


@pytest.fixture
def served() -> Served:
    return Served()


@pytest.fixture
def address(served: Served, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with in_thread(served) as port:
        yield f"http://127.0.0.1:{port}"


async def test_a_schema_comes_with_all_that_it_refers_to(served: Served, address: str) -> None:
    def reference(name: str) -> dict[str, object]:
        return {"name": name, "subject": f"{name}/value", "version": 2}

    served.answers = {
        "/r/schemas/ids/1": {"schema": "A", "references": [reference("b"), reference("c")]},
        "/r/subjects/b/value/versions/2": {"schema": "B", "references": [reference("c")]},
        "/r/subjects/c/value/versions/2": {"schema": "C"},
        "/r/schemas/ids/2": {"schema": 'syntax = "proto3";', "schemaType": "PROTOBUF"},
        "/r/schemas/ids/2?format=serialized": {"schema": "AAAA", "schemaType": "PROTOBUF"},
    }
    asked = SchemaRegistry(f"{address}/r/", login="me:secret")
    assert await asked.schema(1) == RegisteredSchema(AVRO, "A", (("c", "C"), ("b", "B")))
    assert await asked.schema(2) == RegisteredSchema(PROTOBUF, "AAAA")
    login = b64encode(b"me:secret").decode()
    assert all(f"\r\nAuthorization: Basic {login}\r\n" in head for head in served.heads)


async def test_protobuf_that_is_serialized_already_is_not_asked_for_again(
    served: Served, address: str
) -> None:
    """Apicurio answers 500 when it should serialise a file that is serialised already."""
    kept, imported = serialized(file_of("shop", "line.proto")), serialized(file_of("line"))
    references = [{"name": name, "subject": name, "version": 1} for name in ("line.proto", "text.proto")]
    served.answers = {
        "/schemas/ids/5": {"schema": kept, "schemaType": PROTOBUF, "references": references},
        "/schemas/ids/5?format=serialized": 500,
        "/subjects/line.proto/versions/1": {"schema": imported, "schemaType": PROTOBUF},
        "/subjects/line.proto/versions/1?format=serialized": 500,
        "/subjects/text.proto/versions/1": {"schema": 'syntax = "proto3";', "schemaType": PROTOBUF},
        "/subjects/text.proto/versions/1?format=serialized": {"schema": "AAAA", "schemaType": PROTOBUF},
    }
    wanted = (("line.proto", imported), ("text.proto", "AAAA"))
    assert await SchemaRegistry(address).schema(5) == RegisteredSchema(PROTOBUF, kept, wanted)


async def test_a_registry_may_answer_anything(
    served: Served, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "SCHEMA_BYTES_MAX", 10 * 1024)
    itself = {"schema": "A", "references": [{"name": "b", "subject": "b", "version": 1}]}
    served.answers = {
        "/schemas/ids/2": b"<html>",
        "/schemas/ids/3": [],
        "/schemas/ids/4": {"schema": 5},
        "/schemas/ids/5": {"schema": "x", "schemaType": "XML"},
        "/schemas/ids/6": {"schema": "x" * 20_000},
        "/schemas/ids/7": itself,
        "/subjects/b/versions/1": itself,
        "/schemas/ids/8": {"schema": "A", "references": ["b"]},
        "/schemas/ids/9": 500,
        "/schemas/ids/10": 401,
        "/schemas/ids/11": 302,
    }
    asked = SchemaRegistry(address, login="me:secret")
    answers = {}
    for schema_id in range(1, 12):
        with pytest.raises(NoSchema) as caught:
            await asked.schema(schema_id)
        answers[schema_id] = (str(caught.value), caught.value.is_silent)
    assert answers == {
        1: ("the registry does not know it", False),
        2: ("the registry's answer is no JSON object", False),
        3: ("the registry's answer is no JSON object", False),
        4: ("the registry's answer has no schema in it", False),
        5: ("it is of type 'XML', which the console does not know", False),
        6: ("it has more than 10 KiB with all that it refers to", False),
        7: ("it refers to more than 50 others, or to itself", False),
        8: ("the registry's answer does not say what it refers to", False),
        9: ("the registry: it answers with status 500", False),
        10: ("the registry: it answers with status 401", True),
        11: ("the registry: it answers with status 302", False),
    }


async def test_a_registry_that_is_down_or_dawdles(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NoSchema, match=r"the registry: .*[Cc]onnect") as caught:
        await SchemaRegistry("http://127.0.0.1:1", login="me:secret").schema(1)
    assert caught.value.is_silent
    assert "secret" not in str(caught.value)
    monkeypatch.setattr(registry, "SCHEMA_S", 0.0)
    with pytest.raises(NoSchema, match="longer than 0 s") as late:
        await SchemaRegistry(address).schema(1)
    assert late.value.is_silent
