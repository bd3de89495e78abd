"""Delegation tokens that have ended are forgotten now and then, some at a time.

Pure. Nobody can log in with such a token, so nothing depends on when it is forgotten.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..protocol.credentials.delegation_tokens import TokenState
from ..protocol.messages.token_commands import RemoveExpiredTokens

COMMAND_TOKENS_MAX = 1000
LOOKS_MAX = 20_000
"""Tokens that are looked at in one tick; what is behind them waits for the next one."""


class ExpiredTokens:
    """Looks through all tokens each `check_interval_s`, first when this node begins to lead."""

    def __init__(self, *, check_interval_s: float) -> None:
        self._check_interval_s = check_interval_s
        self._next_check = 0.0
        self._left: list[str] = []

    def begin(self, now: float) -> None:
        """This node leads from now on. `now`: monotonic seconds."""
        self._next_check = now
        self._left = []

    def remove(
        self, tokens: Mapping[str, TokenState], now: float, wall_ms: int
    ) -> RemoveExpiredTokens | None:
        """Removes those of the next tokens that have ended; None if none has. `wall_ms`: the time of day."""
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
