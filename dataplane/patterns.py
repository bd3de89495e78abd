"""Regular expressions of clients: RE2's, whose matching takes time linear in the text whatever the pattern."""

from __future__ import annotations

from typing import Protocol

from ..protocol.errors import ErrorCode, KafkaError

_PATTERN_BYTES_MAX = 16 * 1024


class Pattern(Protocol):
    """A compiled pattern."""

    def fullmatch(self, text: str) -> object | None:
        """Something if all of the text matches."""


def compile_pattern(regex: str, what: str) -> Pattern:
    """An RE2 pattern; `what` it is, for people. Raises KafkaError INVALID_REGULAR_EXPRESSION."""
    import re2  # loaded late: with its C++ library it takes megabytes, and most clusters have no patterns

    options = re2.Options()
    options.log_errors = False
    try:
        if len(regex) > _PATTERN_BYTES_MAX:
            raise re2.error(f"it is longer than {_PATTERN_BYTES_MAX} characters")
        compiled: Pattern = re2.compile(regex, options)
    except re2.error as error:
        reason = error.args[0] if error.args else "unknown"
        text = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        raise KafkaError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"{what} `{regex[:200]}` is not a valid regular expression: {text}.",
        ) from None
    return compiled
