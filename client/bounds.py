"""Bounds of arguments beyond their types, for annotations such as `Annotated[int, Within(0, 9)]`.

`kinds.fitted` checks them. Each bound has the words that an error gives for the allowed values.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, Protocol

INT16_MAX: Final = (1 << 15) - 1
INT32_MAX: Final = (1 << 31) - 1
INT64_MAX: Final = (1 << 63) - 1
TEXT_BYTES_MAX: Final = INT16_MAX
"""The most bytes of a text that fit into every version of a request."""


def is_finite(value: float) -> bool:
    """Return whether a number is finite, and no int beyond the range of a float."""
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


class ArgumentBound(Protocol):
    """A bound of an argument, whose type fits already."""

    @property
    def words(self) -> str:
        """The allowed values, as the predicate of a sentence."""

    def allows(self, value: Any) -> bool:
        """Return whether the value is allowed."""


@dataclass(frozen=True, slots=True)
class Within:
    """A range of numbers from `least` to `most`, and single values besides, each with its meaning."""

    least: int
    most: int = INT64_MAX
    besides: tuple[tuple[int, str], ...] = ()

    @property
    def words(self) -> str:
        among = f"{self.least} or more" if self.most == INT64_MAX else f"{self.least} to {self.most}"
        return ", ".join((among, *(f"or {value} for {meaning}" for value, meaning in self.besides)))

    def allows(self, value: Any) -> bool:
        return bool(self.least <= value <= self.most) or any(value == number for number, _ in self.besides)


@dataclass(frozen=True, slots=True)
class NamedNumbers:
    """The values of named constants."""

    names: tuple[tuple[int, str], ...]

    @property
    def words(self) -> str:
        *first, last = (f"{name} ({value})" for value, name in self.names)
        return f"{', '.join(first)} or {last}"

    def allows(self, value: Any) -> bool:
        return any(value == number for number, _ in self.names)


@dataclass(frozen=True, slots=True)
class NotEmpty:
    """A text with at least one character."""

    words: str = "a text that is not empty"

    def allows(self, value: Any) -> bool:
        return bool(value)


@dataclass(frozen=True, slots=True)
class Positive:
    """A finite number above 0."""

    words: str = "a finite number above 0"

    def allows(self, value: Any) -> bool:
        return is_finite(value) and bool(value > 0)


@dataclass(frozen=True, slots=True)
class Finite:
    """A number that is neither infinite nor NaN."""

    words: str = "a finite number"

    def allows(self, value: Any) -> bool:
        return is_finite(value)


@dataclass(frozen=True, slots=True)
class Encodable:
    """A text that fits into requests: UTF-8 can encode it, and it is not too long."""

    words: str = f"at most {TEXT_BYTES_MAX} bytes long in UTF-8, without halves of surrogate pairs"

    def allows(self, value: Any) -> bool:
        try:
            return len(value) <= TEXT_BYTES_MAX and len(value.encode()) <= TEXT_BYTES_MAX
        except UnicodeEncodeError:
            return False


@dataclass(frozen=True, slots=True)
class Int64:
    """A whole number that fits into requests."""

    words: str = "a whole number of at most 64 bits"

    def allows(self, value: Any) -> bool:
        return bool(-INT64_MAX - 1 <= value <= INT64_MAX)


OF_EACH_KIND: Final[Mapping[Any, ArgumentBound]] = {int: Int64(), str: Encodable()}
"""The bound of all arguments of a type."""

Name = Annotated[str, NotEmpty()]
BrokerId = Annotated[int, Within(0, INT32_MAX)]
PartitionNumber = Annotated[int, Within(0, INT32_MAX)]
Count = Annotated[int, Within(1, INT32_MAX)]
TimeoutMs = Annotated[int, Within(1, INT32_MAX)]
Offset = Annotated[int, Within(0)]
NumberOfBytes = Annotated[int, Within(0)]
ProducerId = Annotated[int, Within(0)]
Epoch = Annotated[int, Within(0, INT16_MAX)]
AppVersion = Annotated[int, Within(0)]
Milliseconds = Annotated[int, Within(0)]
PositiveMilliseconds = Annotated[int, Within(1)]
