"""Bytes of keys, values and headers as pages show them: by their schema, JSON, text, or hex. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any, Final

from ...area import BadQuestion
from ...bounds import PAYLOAD_BYTES_MAX
from ...schemas.decoding import Decoded

FORMATS: Final = ("auto", "text", "json", "hex")
DECODED_AS: Final = ("auto", "json")
"""Those for which a schema registry is asked."""
HEX_BYTES_MAX: Final = 4096
"""Of more bytes a page of hex is of no use to people."""
_HEX_LINE: Final = 32


@dataclass(frozen=True, slots=True)
class Payload:
    """What is shown of some bytes. `text` is None where there were none at all; `hidden` bytes are left out. `schema`
    names the one that they were read by, or `trouble` says why that one did not help."""

    kind: str
    text: str | None
    size: int
    hidden: int = 0
    schema: str = ""
    trouble: str = ""


def payload(data: bytes | None, wanted: str = "auto", decoded: Decoded | None = None) -> Payload:
    """JSON and what was decoded is laid out as JSON, unless text or hex is wanted. Text is UTF-8, and all else is hex.
    Raises BadQuestion for a format that there is not."""
    if decoded is None or data is None or wanted not in DECODED_AS:
        return _as_bytes(data, wanted)
    if not decoded.trouble:
        try:
            text = json.dumps(decoded.document, indent=2, ensure_ascii=False)
        except RecursionError:
            return replace(_as_bytes(data, wanted), trouble=f"{decoded.label}: it is nested too deep")
        return replace(_cut("decoded", text, len(data)), schema=decoded.label)
    return replace(_as_bytes(data, wanted), trouble=f"{decoded.label}: {decoded.trouble}")


def _as_bytes(data: bytes | None, wanted: str) -> Payload:
    if wanted not in FORMATS:
        raise BadQuestion(f"'as' is one of {', '.join(FORMATS)}, not {wanted[:40]!r}")
    if data is None:
        return Payload("null", None, 0)
    if wanted in ("auto", "json"):
        laid_out = _laid_out(data)
        if laid_out is not None:
            return _cut("json", laid_out, len(data))
    if wanted != "hex":
        text = _text(data[:PAYLOAD_BYTES_MAX], is_whole=len(data) <= PAYLOAD_BYTES_MAX)
        if text is not None:
            return Payload("text", text, len(data), max(0, len(data) - PAYLOAD_BYTES_MAX))
        if wanted == "text":
            replaced = data[:PAYLOAD_BYTES_MAX].decode("utf-8", "backslashreplace")
            return Payload("text", replaced, len(data), max(0, len(data) - PAYLOAD_BYTES_MAX))
    head = data[:HEX_BYTES_MAX]
    lines = [head[at : at + _HEX_LINE].hex(" ") for at in range(0, len(head), _HEX_LINE)]
    return Payload("hex", "\n".join(lines), len(data), len(data) - len(head))


def _laid_out(data: bytes) -> str | None:
    if len(data) > PAYLOAD_BYTES_MAX or data.lstrip()[:1] not in (b"{", b"["):
        return None
    try:
        return json.dumps(parsed(data), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return None


def parsed(data: bytes) -> Any:
    """JSON. Raises ValueError, RecursionError."""
    return json.loads(data)


def _text(data: bytes, *, is_whole: bool) -> str | None:
    """Text, unless there are bytes in it that people cannot read. A character may be cut at the end."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        if is_whole or error.start < len(data) - 3:
            return None
        text = data[: error.start].decode()
    return None if any(ord(one) < 0x20 and one not in "\t\r\n" for one in text) else text


def _cut(kind: str, text: str, size: int) -> Payload:
    """Laid out it may be longer than the bytes were."""
    if len(text) <= PAYLOAD_BYTES_MAX:
        return Payload(kind, text, size)
    return Payload(kind, text[:PAYLOAD_BYTES_MAX], size, len(text) - PAYLOAD_BYTES_MAX)
