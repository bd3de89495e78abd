"""Regular expressions of clients. All patterns of requests and of settings are compiled here.

RE2 matches in time that is linear in the text, whatever the pattern. The factor is the size of the pattern's program,
and a few characters make a large program: `(.?){1000}` has 11,000 instructions. So the program is bounded, and the
work of matching is counted as instructions times characters. Many names are matched in turns of the event loop, each of
`TURN_WORK_MAX`, and one long name in a thread.
"""

from __future__ import annotations

from typing import Any, Final

from ..protocol.errors import ErrorCode, KafkaError

PATTERN_CHARACTERS_MAX: Final = 16 * 1024
EXPANSIONS_MAX: Final = 64
"""Maximum number of counted repetitions and Unicode classes, which take up to 100 us each to compile."""
PROGRAM_MAX: Final = 4_000
"""Maximum number of instructions. An alternative of a hundred names of 30 characters has some 3,000."""
TURN_WORK_MAX: Final = 500_000
"""Maximum work in one turn of the event loop, in instructions times characters: 4 ms at worst, 0.1 ms for almost all
patterns."""
_MEMORY_BYTES_MAX: Final = 1024 * 1024
"""RE2's limit for the memory of a compiled pattern and of its matching."""
_STORED_MEMORY_BYTES_MAX: Final = 8 * 1024 * 1024
_EXPANSIONS: Final = ("{", "\\p", "\\P")


class Pattern:
    """A compiled RE2 pattern of a client, which matches whole texts."""

    __slots__ = ("_compiled", "program_size", "regex")

    turn_work_max: Final = TURN_WORK_MAX

    def __init__(self, regex: str, compiled: Any) -> None:
        self.regex = regex
        self._compiled = compiled
        self.program_size: int = compiled.programsize
        """Number of instructions of the compiled program."""

    def fullmatch(self, text: str) -> bool:
        """Return whether all of the text matches."""
        return self._compiled.fullmatch(text) is not None

    def work(self, text: str) -> int:
        """Return the maximum work of a match of the text, in instructions times characters."""
        return self.program_size * (len(text) + 1)


def compile_pattern(regex: str, what: str) -> Pattern:
    """Return a compiled RE2 pattern. `what` names the pattern in errors.

    Raises KafkaError INVALID_REGULAR_EXPRESSION if it is not a valid pattern, or takes too long to compile or to match.
    """
    expansions = sum(map(regex.count, _EXPANSIONS))
    if len(regex) > PATTERN_CHARACTERS_MAX:
        raise _refusal(regex, what, f"it is longer than {PATTERN_CHARACTERS_MAX} characters")
    if expansions > EXPANSIONS_MAX:
        raise _refusal(
            regex,
            what,
            f"it has {expansions} repetitions in braces and Unicode classes, at most {EXPANSIONS_MAX} are allowed",
        )
    pattern = _compiled(regex, what, _MEMORY_BYTES_MAX)
    if pattern.program_size > PROGRAM_MAX:
        raise _refusal(
            regex,
            what,
            f"it compiles to {pattern.program_size} instructions, at most {PROGRAM_MAX} are allowed",
        )
    return pattern


def compile_stored_pattern(regex: str, what: str) -> Pattern:
    """Return a compiled RE2 pattern of an operator that the cluster stores. `what` names the pattern in errors.

    An earlier release without such limits may have accepted it. Raises KafkaError INVALID_REGULAR_EXPRESSION.
    """
    return _compiled(regex, what, _STORED_MEMORY_BYTES_MAX)


def _compiled(regex: str, what: str, memory_bytes: int) -> Pattern:
    import re2  # loaded late: with its C++ library it takes megabytes, and most clusters have no patterns

    options = re2.Options()
    options.log_errors = False
    options.max_mem = memory_bytes
    # Callers need only a yes or no. Finding each capturing group would multiply the time by the number of groups.
    options.never_capture = True
    try:
        return Pattern(regex, re2.compile(regex, options))
    except re2.error as error:
        reason = error.args[0] if error.args else "unknown"
        text = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        raise _refusal(regex, what, text) from None


def _refusal(regex: str, what: str, reason: str) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_REGULAR_EXPRESSION,
        f"{what} `{regex[:200]}` is not a valid regular expression: {reason}.",
    )
