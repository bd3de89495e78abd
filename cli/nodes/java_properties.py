"""The syntax of .properties files, as `java.util.Properties` reads them.

Comments, continued lines and backslashes work as in Java. One rule is stricter: an entry needs its `=` or `:`. Java
takes a lone word for a key, and so hides typing mistakes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

_ENDS_LINE = re.compile(r"\r\n|\r|\n")
"""The line ends that Java knows. `str.splitlines` splits at more characters, which passwords may contain."""
_ENDS_KEY = re.compile(r"((?:\\.|[^\\=:])*)[=:](.*)", re.DOTALL)
_ESCAPED = re.compile(r"\\(u[0-9a-fA-F]{4}|.?)", re.DOTALL)
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_WRITTEN = str.maketrans({"\\": "\\\\"} | {control: f"\\{letter}" for letter, control in _CONTROLS.items()})


def entries(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield line number, key and value of each entry in the text of a .properties file.

    Raises ValueError with the number of a line that is neither entry nor comment.
    """
    for number, line in _logical_lines(text):
        found = _ENDS_KEY.fullmatch(line)
        if found is None or not found[1].strip():
            # The error does not show the line, which may be the rest of a secret.
            raise ValueError(f"line {number}: expected key=value")
        yield number, _unescaped(found[1].strip(), number), _unescaped(found[2].strip(), number)


def written(settings: Mapping[str, str]) -> str:
    """Return the text of a .properties file that Java, and `entries`, read as these settings.

    Blanks at the ends of values are lost.
    """
    return "".join(f"{key}={value.translate(_WRITTEN)}\n" for key, value in settings.items())


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield each logical line of a .properties file, made of continued lines, with the number of its first line."""
    pending, begun = "", 0
    for number, raw in enumerate(_ENDS_LINE.split(text), 1):
        stripped = raw.lstrip()
        if not pending and (not stripped or stripped[0] in "#!"):
            continue
        begun = begun or number
        pending += stripped
        if (len(stripped) - len(stripped.rstrip("\\"))) % 2:
            pending = pending[:-1]
            continue
        yield begun, pending
        pending, begun = "", 0
    if pending:
        yield begun, pending


def _unescaped(text: str, number: int) -> str:
    def meant(found: re.Match[str]) -> str:
        escaped = found[1]
        if len(escaped) > 1:
            return chr(int(escaped[1:], 16))
        if escaped == "u":
            raise ValueError(
                f"line {number}: \\u is followed by four hexadecimal digits; a backslash is \\\\"
            )
        return _CONTROLS.get(escaped, escaped)

    return _ESCAPED.sub(meant, text)
