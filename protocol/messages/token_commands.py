"""Commands to the controller about delegation tokens. Principals are texts, like User:ann.

Brokers tell the time, so that the same command does the same everywhere.
"""

from __future__ import annotations

from ..schema import array, boolean, bytes_, data, int16, int64, string
from .command import Command, CommandResult, PlainResult


@data()
class CreateDelegationToken(Command[PlainResult]):
    """Keep a new token. Its secret follows from its id and a key that only brokers have."""

    token_id: str = string(about="Chosen by the broker, never used again.")
    owner: str = string(about="Whom a login with the token acts as.")
    requester: str = string(about="Who asked for it.")
    renewers: list[str] = array(string, about="Who may renew and expire it besides the owner.")
    issued_at_ms: int = int64(about="When it was made, by the broker's clock.")
    expires_at_ms: int = int64(about="When it ends unless it is renewed.")
    ends_at_ms: int = int64(about="When it ends at the latest.")
    key_id: bytes = bytes_(about="Which key its secret follows from.")
    is_denied: bool = boolean(
        "0+",
        tag=0,
        about="The leader has found that whoever asked may not do it, and left out its id.",
    )
    user: str = string(
        "0+",
        tag=1,
        about="Who asks logged in by a SCRAM credential of this user, which must be there; empty: by something else.",
    )


@data()
class TokenExpiryResult(CommandResult):
    """When a token ends now."""

    error_code: int = int16(about="0 for success.")
    error_message: str = string(about="For people.")
    expires_at_ms: int = int64(about="When it ends.")


@data()
class RenewDelegationToken(Command[TokenExpiryResult]):
    """Have a token end later."""

    token_id: str = string(about="Which.")
    principal: str = string(about="Who asks.")
    now_ms: int = int64(about="The time, by the broker's clock.")
    period_ms: int = int64(about="How long from now on.")


@data()
class ExpireDelegationToken(Command[TokenExpiryResult]):
    """Say when a token ends, or remove it."""

    token_id: str = string(about="Which.")
    principal: str = string(about="Who asks.")
    now_ms: int = int64(about="The time, by the broker's clock.")
    period_ms: int = int64(about="How long from now on; below 0: it is removed at once.")


@data()
class RemoveExpiredTokens(Command[PlainResult]):
    """Forget tokens that have ended."""

    token_ids: list[str] = array(string, about="Which. One that has been renewed meanwhile stays.")
    now_ms: int = int64(about="The time, by the leader's clock.")
