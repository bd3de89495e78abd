"""The periodic removal of expired delegation tokens, in limited batches.

Pure. Such tokens permit no login, so the time of their removal does not matter.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..protocol.credentials.delegation_tokens import TokenState
from ..protocol.messages.token_commands import RemoveExpiredTokens

COMMAND_TOKENS_MAX = 1000
LOOKS_MAX = 20_000
"""Number of tokens that are checked in one tick; the rest waits for the next tick."""


class ExpiredTokens:
    """A periodic search for expired delegation tokens among all tokens, every `check_interval_s`, first when this node
    begins to lead."""

    def __init__(self, *, check_interval_s: float) -> None:
        self._check_interval_s = check_interval_s
        self._next_check = 0.0
        self._left: list[str] = []

    def begin(self, now: float) -> None:
        """Start a search, since this node leads from now on. `now` is in monotonic seconds."""
        self._next_check = now
        self._left = []

    def remove(
        self, tokens: Mapping[str, TokenState], now: float, wall_ms: int
    ) -> RemoveExpiredTokens | None:
        """Return a command for the expired tokens of the next batch; None if there are none. `wall_ms` is the time of
        day."""
        if not self._left:
            if now < self._next_check:
                return None
            self._next_check = now + self._check_interval_s
            self._left = list(tokens)
        looked_at, self._left = self._left[:LOOKS_MAX], self._left[LOOKS_MAX:]
        over = [
            token_id
            for token_id in looked_at
            if (token := tokens.get(token_id)) is not None and token.is_over(wall_ms)
        ]
        self._left += over[COMMAND_TOKENS_MAX:]
        over = over[:COMMAND_TOKENS_MAX]
        return RemoveExpiredTokens(token_ids=over, now_ms=wall_ms) if over else None
