"""Commands to the controller about delegation tokens. Principals are texts, like User:ann.

Commands carry the time of the broker's clock, so that the same command has the same effect on every node.
"""

from __future__ import annotations

from ..wire.schema import array, boolean, bytes_, data, int16, int64, string
from .command import Command, CommandResult, PlainResult


@data()
class CreateDelegationToken(Command[PlainResult]):
    """Command to store a new delegation token. Its secret is derived from its id and a key that only brokers have."""

    token_id: str = string(about="Id of the token, chosen by the broker and never used again.")
    owner: str = string(about="Principal that a login with the token acts as.")
    requester: str = string(about="Principal that asked for the token.")
    renewers: list[str] = array(
        string, about="Principals who may renew and expire the token besides its owner."
    )
    issued_at_ms: int = int64(
        about="Time at which the token was made, by the broker's clock, in ms since 1970."
    )
    expires_at_ms: int = int64(
        about="Time at which the token expires unless it is renewed, in ms since 1970."
    )
    ends_at_ms: int = int64(about="Latest time at which the token can expire, in ms since 1970.")
    key_id: bytes = bytes_(about="Short name of the key from which the token's secret is derived.")
    is_denied: bool = boolean(
        "0+",
        tag=0,
        about="Whether the leader has found that the requester lacks the right; the leader then left out the token's "
        "id.",
    )
    user: str = string(
        "0+",
        tag=1,
        about="User by whose SCRAM credential the requester logged in, which must still exist; empty: the requester "
        "logged in by something else.",
    )


@data()
class TokenExpiryResult(CommandResult):
    """Result of the renewal or expiry of a delegation token: the time at which the token now expires, in ms since
    1970."""

    error_code: int = int16(about="Error code, 0 for success.")
    error_message: str = string(about="Explanation for people.")
    expires_at_ms: int = int64(about="Time at which the token expires now, in ms since 1970.")


@data()
class RenewDelegationToken(Command[TokenExpiryResult]):
    """Command to let a delegation token expire later."""

    token_id: str = string(about="Id of the token.")
    principal: str = string(about="Principal that asks.")
    now_ms: int = int64(about="Time by the broker's clock, in ms since 1970.")
    period_ms: int = int64(about="Time from now until the token expires, in ms.")


@data()
class ExpireDelegationToken(Command[TokenExpiryResult]):
    """Command to set the time at which a delegation token expires, or to remove the token."""

    token_id: str = string(about="Id of the token.")
    principal: str = string(about="Principal that asks.")
    now_ms: int = int64(about="Time by the broker's clock, in ms since 1970.")
    period_ms: int = int64(
        about="Time from now until the token expires, in ms; below 0: the token is removed at once."
    )


@data()
class RemoveExpiredTokens(Command[PlainResult]):
    """Command of the quorum's leader to remove expired delegation tokens."""

    token_ids: list[str] = array(
        string, about="Ids of the tokens. A token that was renewed meanwhile remains."
    )
    now_ms: int = int64(about="Time by the leader's clock, in ms since 1970.")
