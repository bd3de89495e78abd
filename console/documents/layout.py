"""JSON formatted for pages: only white space between tokens changes. Time and size are linear. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from ...protocol.exact_json import Number, parsed

DEPTH_MAX: Final = 64
"""The deepest level that is indented. Each level adds two spaces to each line, so size grows with the square of
depth."""
NESTED_MAX: Final = 1_000
"""The deepest level of a document that is formatted. Python's JSON parser has a similar limit."""
_TOKEN: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[^][{},:" \t\r\n]+|[][{},:]', re.DOTALL)
_OPEN: Final = frozenset("[{")
_CLOSE: Final = frozenset("]}")
_BEFORE_LINES: Final = frozenset("[{,")
_OF_NUMBERS: Final = "0123456789+-.eE"
_SPACED: Final = {",": ", ", ":": ": "}
_LINES: Final = tuple("\n" + "  " * depth for depth in range(DEPTH_MAX + 1))


@dataclass(frozen=True, slots=True)
class LaidOut:
    """A JSON document formatted for a page.

    `note` says why it is cut or not indented; empty if it is whole and indented.
    """

    text: str
    note: str = ""


class _Written(str):
    """A token of JSON that is already in its final form: a bracket, comma or colon."""


def text_laid_out(data: bytes, size_max: int) -> LaidOut:
    """Return JSON with a line for each value, or unchanged if that would be too deep or too long.

    Raises ValueError for invalid JSON, RecursionError for a document nested too deep to parse.
    """
    parsed(data)
    text = data.decode(json.detect_encoding(data), "surrogatepass")  # as `json.loads` does
    indented = _indented((found[0] for found in _TOKEN.finditer(text)), size_max)
    if isinstance(indented, LaidOut):
        return indented
    if len(text) <= size_max:
        return LaidOut(text, indented)
    # Half the digits of a number would be another number.
    return LaidOut(text[:size_max].rstrip(_OF_NUMBERS), f"{indented}; cut after {size_max:,} characters")


def document_laid_out(document: Any, size_max: int) -> LaidOut:
    """Format a parsed JSON document like `text_laid_out`.

    The text is cut at `size_max` characters while it is built. Raises RecursionError beyond NESTED_MAX levels.
    """
    indented = _indented(_tokens_of(document), size_max)
    if isinstance(indented, LaidOut):
        return indented
    parts: list[str] = []
    size = 0
    for token in _tokens_of(document):
        piece = _SPACED.get(token, token)
        size += len(piece)
        if size > size_max:
            if piece.startswith('"'):
                parts.append(piece[: size_max - size])
            return LaidOut("".join(parts), f"{indented}; cut after {size_max:,} characters")
        parts.append(piece)
    return LaidOut("".join(parts), indented)


def _indented(tokens: Iterable[str], size_max: int) -> LaidOut | str:
    """Return the JSON tokens as indented text, or the reason why it would be too deep or longer than `size_max`
    characters."""
    parts: list[str] = []
    size, depth, before = 0, 0, ""
    for token in tokens:
        if token in _CLOSE:
            depth -= 1
            space = "" if before in _OPEN else _LINES[depth]
        elif before in _BEFORE_LINES:
            space = _LINES[depth]
        else:
            space = " " if before == ":" else ""
        if token in _OPEN:
            depth += 1
            if depth > DEPTH_MAX:
                return f"not indented: it is nested deeper than {DEPTH_MAX} levels"
        size += len(space) + len(token)
        if size > size_max:
            return f"not indented: that would be more than {size_max:,} characters"
        parts += (space, token)
        before = token
    return LaidOut("".join(parts))


def _tokens_of(document: Any) -> Iterator[str]:
    """Yield the JSON tokens of a parsed document.

    A stack holds the remaining parts of each open list and object, so that deep documents need no recursion.
    """
    left: list[Iterator[Any]] = [iter((document,))]
    while left:
        if len(left) > NESTED_MAX:
            raise RecursionError
        for part in left[-1]:
            if isinstance(part, _Written):
                yield part
            elif isinstance(part, dict):
                left.append(_parts_of_object(part.items()))
                break
            elif isinstance(part, tuple):
                left.append(_parts_of_object(part))
                break
            elif isinstance(part, list):
                left.append(_parts_of_list(part))
                break
            else:
                yield _scalar(part)
        else:
            left.pop()


def _parts_of_list(values: list[Any]) -> Iterator[Any]:
    yield _Written("[")
    for place, value in enumerate(values):
        if place:
            yield _Written(",")
        yield value
    yield _Written("]")


def _parts_of_object(pairs: Iterable[tuple[str, Any]]) -> Iterator[Any]:
    yield _Written("{")
    for place, (name, value) in enumerate(pairs):
        if place:
            yield _Written(",")
        yield name
        yield _Written(":")
        yield value
    yield _Written("}")


def _scalar(value: Any) -> str:
    if isinstance(value, Number):
        return f'"{value.text}"' if value.is_text else value.text
    return json.dumps(value, ensure_ascii=False)
