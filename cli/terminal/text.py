"""Output that is safe for a terminal: names of topics, groups and clients, and records may come from any client.

A terminal obeys what it prints: an escape sequence in a group's name could recolour, retitle or rewrite the screen. So
control characters appear as escapes (`\\x1b`) wherever the output is a terminal. Files and pipes get the exact text.
"""

from __future__ import annotations

import re
import sys

from .shades import Shaded, has_colours, painted

_DIRECTIONS = "\u200e\u200f\u202a-\u202e\u2066-\u2069"
"""Characters that reverse the direction of text, so that it appears in another order."""
_LINES = "\u2028\u2029"
_CONTROLS = re.compile(f"[\x00-\x1f\x7f-\x9f\ud800-\udfff{_DIRECTIONS}{_LINES}]")
_CONTROLS_IN_TEXT = re.compile(f"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff{_DIRECTIONS}{_LINES}]")
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def visible(text: str) -> str:
    """Return one line of text in which no character moves the cursor or affects the terminal otherwise."""
    return _CONTROLS.sub(_escape, text)


def visible_lines(text: str) -> str:
    """Return text of several lines, made safe like `visible`; newlines and tabs stay."""
    return _CONTROLS_IN_TEXT.sub(_escape, text)


def visible_bytes(data: bytes) -> bytes:
    """Return bytes made safe like `visible_lines`; bytes that are no UTF-8 also appear as escapes."""
    return visible_lines(data.decode("utf-8", "backslashreplace")).encode()


def json_escaped(text: str) -> str:
    """Escape the control characters in the text of a JSON document that JSON permits; the document keeps its
    meaning."""
    return _CONTROLS_IN_TEXT.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun in singular or plural: `1 partition`, `1,204 records`."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def shown(value: object) -> str:
    """Return a value as standard output has it: on a terminal made safe, and in its colour."""
    text = visible(str(value)) if sys.stdout.isatty() else str(value)
    return painted(text, value.shade) if isinstance(value, Shaded) and has_colours(sys.stdout) else text


def say(text: object = "", *, flush: bool = False) -> None:
    """Print a line on standard output, made safe for a terminal."""
    sys.stdout.write(shown(text) + "\n")
    if flush:
        sys.stdout.flush()


def say_lines(text: str) -> None:
    """Print a text of several lines, such as a JSON document, on standard output, made safe for a terminal."""
    sys.stdout.write(visible_lines(text) if sys.stdout.isatty() else text)


def note(text: object, *, end: str = "\n") -> None:
    """Print a line on standard error, made safe for a terminal, beside the result of the command on standard output."""
    sys.stderr.write((visible(str(text)) if sys.stderr.isatty() else str(text)) + end)
    sys.stderr.flush()


def show_progress(text: str, *, last: bool = False) -> None:
    """Replace the progress line of a command, if standard error is a terminal; `last` ends the line."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{visible(text)}" + ("\n" if last else ""))
        sys.stderr.flush()


def _escape(found: re.Match[str]) -> str:
    character = found[0]
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:  # Python keeps an undecodable byte in a string as such a surrogate.
        code -= 0xDC00
    return _SHORT.get(character) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")
