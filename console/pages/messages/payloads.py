"""Bytes of keys, values and headers as pages show them: decoded by a schema, or as JSON, text, or hex. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from ...area import BadQuestion
from ...bounds import PAYLOAD_BYTES_MAX
from ...documents.layout import document_laid_out, text_laid_out
from ...formats import size as size_text
from ...schemas.decoding import Decoded

FORMATS: Final = ("auto", "text", "json", "hex")
DECODED_AS: Final = ("auto", "json")
"""The formats for which a schema registry is asked."""
HEX_BYTES_MAX: Final = 4096
"""The maximum number of bytes shown as hex."""
PREVIEW_CHARACTERS_MAX: Final = 160
"""The most characters of a key or value in the row of a record."""
_HEX_LINE: Final = 32


@dataclass(frozen=True, slots=True)
class Payload:
    """The shown part of a record's key, value or header.

    `text` is None for null; `size` is the number of bytes, of which `hidden` are left out. `note` says that a document
    is cut or not indented. `schema` names the schema that decoded the bytes, or `trouble` says why decoding failed.
    """

    kind: str
    text: str | None
    size: int
    hidden: int = 0
    schema: str = ""
    trouble: str = ""
    note: str = ""

    @property
    def preview(self) -> str | None:
        """The beginning of the text in one line; None for null."""
        if self.text is None:
            return None
        lines = self.text[: 4 * PREVIEW_CHARACTERS_MAX].splitlines()
        line = " ".join(filter(None, (line.strip() for line in lines)))
        is_cut = len(line) > PREVIEW_CHARACTERS_MAX or len(self.text) > 4 * PREVIEW_CHARACTERS_MAX
        return f"{line[:PREVIEW_CHARACTERS_MAX]}…" if is_cut else line

    @property
    def has_download(self) -> bool:
        """True if a file with the bytes is offered: the text is hex, decoded, cut or not indented."""
        return self.kind in ("hex", "decoded") or bool(self.hidden or self.note)

    @property
    def described(self) -> str:
        """The size and the format of the bytes as text, such as `310 B, json`; empty for null."""
        return "" if self.text is None else f"{size_text(self.size)}, {self.schema or self.kind}"


def payload(data: bytes | None, wanted: str = "auto", decoded: Decoded | None = None) -> Payload:
    """Format the bytes of a key, value or header for a page; `wanted` is one of FORMATS.

    JSON and decoded documents are indented, unless text or hex is wanted; other text is UTF-8, and other bytes are hex.
    Raises BadQuestion for an unknown format.
    """
    if decoded is None or data is None or wanted not in DECODED_AS:
        return _as_bytes(data, wanted)
    if decoded.trouble:
        return replace(_as_bytes(data, wanted), trouble=f"{decoded.label}: {decoded.trouble}")
    try:
        if decoded.text is not None:
            laid_out = text_laid_out(decoded.text, PAYLOAD_BYTES_MAX)
        else:
            laid_out = document_laid_out(decoded.document, PAYLOAD_BYTES_MAX)
    except RecursionError:
        return replace(_as_bytes(data, wanted), trouble=f"{decoded.label}: it is nested too deep")
    return Payload("decoded", laid_out.text, len(data), schema=decoded.label, note=laid_out.note)


def _as_bytes(data: bytes | None, wanted: str) -> Payload:
    if wanted not in FORMATS:
        raise BadQuestion(f"'as' is one of {', '.join(FORMATS)}, not {wanted[:40]!r}")
    if data is None:
        return Payload("null", None, 0)
    if wanted not in ("auto", "json") or not _may_be_json(data):
        return _as_text(data, wanted)
    try:
        laid_out = text_laid_out(data, PAYLOAD_BYTES_MAX)
    except ValueError:
        return _as_text(data, wanted)
    except RecursionError:
        return replace(_as_text(data, wanted), note="not indented: it is nested too deep to be read as JSON")
    return Payload("json", laid_out.text, len(data), note=laid_out.note)


def _may_be_json(data: bytes) -> bool:
    """Return whether the bytes, if they are JSON, are an object or list that is short enough to be shown whole."""
    return len(data) <= PAYLOAD_BYTES_MAX and data.lstrip()[:1] in (b"{", b"[")


def _as_text(data: bytes, wanted: str) -> Payload:
    """Return bytes as UTF-8 if they are valid, else as hex."""
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


def _text(data: bytes, *, is_whole: bool) -> str | None:
    """Return bytes as UTF-8 text, or None if they are no text or contain control characters.

    If not `is_whole`, the last character may be cut and is then left out.
    """
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        if is_whole or error.start < len(data) - 3:
            return None
        text = data[: error.start].decode()
    return None if any(ord(character) < 0x20 and character not in "\t\r\n" for character in text) else text
