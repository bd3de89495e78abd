"""JAAS configurations, the text in which Kafka's `sasl.jaas.config` names login modules and their options.

    org.apache.kafka.common.security.plain.PlainLoginModule required username="admin" password="secret";

Only known modules and their options are accepted, since an unknown one would be silently without effect.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

FLAGS: Final = ("required", "requisite", "sufficient", "optional")
TEXT_CHARACTERS_MAX: Final = 1024 * 1024


class JaasMalformed(ValueError):
    """A text that is no JAAS configuration. The message gives the position and no value, which may be a password."""


@dataclass(frozen=True, slots=True)
class LoginModule:
    """An entry of a JAAS configuration: the class name of a login module, with its options."""

    class_name: str
    flag: str
    options: Mapping[str, str] = field(repr=False)

    @property
    def name(self) -> str:
        """The name of the class without its package."""
        return self.class_name.rpartition(".")[2]


def parse_jaas(text: str) -> list[LoginModule]:
    """Parse the entries of a JAAS configuration. Raises JaasMalformed."""
    if len(text) > TEXT_CHARACTERS_MAX:
        raise JaasMalformed(f"it has {len(text)} characters, allowed are {TEXT_CHARACTERS_MAX}")
    tokens = _Tokens(text)
    modules: list[LoginModule] = []
    while not tokens.at_end():
        modules.append(_module(tokens))
    if not modules:
        raise JaasMalformed("it names no login module")
    return modules


def _module(tokens: _Tokens) -> LoginModule:
    class_name = tokens.word("the class of a login module")
    flag = tokens.word("a control flag").lower()
    if flag not in FLAGS:
        raise JaasMalformed(f"{class_name} is followed by no control flag; there are {', '.join(FLAGS)}")
    options: dict[str, str] = {}
    while not tokens.take(";"):
        option = tokens.word(f"an option of {class_name} or ';'")
        if not tokens.take("="):
            # The message does not contain the word: it may be the rest of a password with a blank and without quotes.
            raise JaasMalformed(
                f"option {len(options) + 1} of {class_name} has no '='; values with blanks stand between quotes"
            )
        if option in options:
            raise JaasMalformed(f"option {option!r} of {class_name} stands twice")
        options[option] = tokens.value(f"the value of option {option!r}")
    return LoginModule(class_name, flag, options)


class _Tokens:
    """A tokenizer for the text of a JAAS configuration."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def at_end(self) -> bool:
        self._skip_blank()
        return self._at >= len(self._text)

    def take(self, symbol: str) -> bool:
        """Consume the symbol if it is the next token, and return whether it was."""
        self._skip_blank()
        found = self._text.startswith(symbol, self._at)
        if found:
            self._at += len(symbol)
        return found

    def word(self, expected: str) -> str:
        """Read a word: letters, digits and `_ . - $`."""
        self._skip_blank()
        start = self._at
        while self._at < len(self._text) and (
            self._text[self._at].isalnum() or self._text[self._at] in "_.-$"
        ):
            self._at += 1
        if start == self._at:
            raise self._missing(expected)
        return self._text[start : self._at]

    def value(self, expected: str) -> str:
        """Read a word, or text between double quotes, in which `\\` makes the next character literal."""
        if not self.take('"'):
            return self.word(expected)
        characters: list[str] = []
        while self._at < len(self._text):
            character = self._text[self._at]
            self._at += 1
            if character == '"':
                return "".join(characters)
            if character == "\\" and self._at < len(self._text):
                character = _ESCAPES.get(self._text[self._at], self._text[self._at])
                self._at += 1
            characters.append(character)
        raise JaasMalformed(f"{expected} begins with a quote that never ends")

    def _skip_blank(self) -> None:
        while self._at < len(self._text) and self._text[self._at].isspace():
            self._at += 1

    def _missing(self, expected: str) -> JaasMalformed:
        line = self._text.count("\n", 0, self._at) + 1
        column = self._at - (self._text.rfind("\n", 0, self._at) + 1) + 1
        return JaasMalformed(f"line {line}, column {column}: {expected} is missing")


_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f"}
