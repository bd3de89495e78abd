"""CreateDelegationToken (38), RenewDelegationToken (39), ExpireDelegationToken (40), DescribeDelegationToken (41): by
tokens programs log in for a user (KIP-48, KIP-373).
"""

from __future__ import annotations

from ..schema import Message, Request, array, bytes_, data, int16, int32, int64, request, response, string


@response(38, "1-3", flexible="2+")
class CreateDelegationTokenResponse(Message):
    """Answer to CreateDelegationTokenRequest."""

    error_code: int = int16(about="Error code, 0 for success.")
    principal_type: str = string(about="Type of the owner.")
    principal_name: str = string(about="Name of the owner.")
    token_requester_principal_type: str = string(
        "3+", ignorable=True, about="Type of who asked for the token."
    )
    token_requester_principal_name: str = string(
        "3+", ignorable=True, about="Name of who asked for the token."
    )
    issue_timestamp_ms: int = int64(about="When the token was made.")
    expiry_timestamp_ms: int = int64(about="When it ends unless it is renewed.")
    max_timestamp_ms: int = int64(about="When it ends at the latest.")
    token_id: str = string(about="Name of the token.")
    hmac: bytes = bytes_(secret=True, about="The secret of the token.")
    throttle_time_ms: int = int32(about="How long a quota delayed the request, in ms.")


@data()
class CreatableRenewer(Message):
    """One of the `renewers` of CreateDelegationTokenRequest."""

    principal_type: str = string(about="Type of the principal.")
    principal_name: str = string(about="Name of the principal.")


@request(38, "1-3", flexible="2+", response=CreateDelegationTokenResponse)
class CreateDelegationTokenRequest(Request[CreateDelegationTokenResponse]):
    """Make a token."""

    owner_principal_type: str | None = string(
        "3+", nullable="3+", default=None, about="Type of the owner; null: who asks is the owner."
    )
    owner_principal_name: str | None = string(
        "3+", nullable="3+", default=None, about="Name of the owner; null: who asks is the owner."
    )
    renewers: list[CreatableRenewer] = array(
        CreatableRenewer, about="Who may renew and expire the token besides its owner."
    )
    max_lifetime_ms: int = int64(
        about="How long the token may live; not above 0: as long as the cluster allows."
    )


@response(39, "1-2", flexible="2+")
class RenewDelegationTokenResponse(Message):
    """Answer to RenewDelegationTokenRequest."""

    error_code: int = int16(about="Error code, 0 for success.")
    expiry_timestamp_ms: int = int64(about="When the token ends now.")
    throttle_time_ms: int = int32(about="How long a quota delayed the request, in ms.")


@request(39, "1-2", flexible="2+", response=RenewDelegationTokenResponse)
class RenewDelegationTokenRequest(Request[RenewDelegationTokenResponse]):
    """Have a token end later."""

    hmac: bytes = bytes_(secret=True, about="The secret of the token.")
    renew_period_ms: int = int64(about="How long from now on; not above 0: as long as the cluster allows.")


@response(40, "1-2", flexible="2+")
class ExpireDelegationTokenResponse(Message):
    """Answer to ExpireDelegationTokenRequest."""

    error_code: int = int16(about="Error code, 0 for success.")
    expiry_timestamp_ms: int = int64(about="When the token ends now.")
    throttle_time_ms: int = int32(about="How long a quota delayed the request, in ms.")


@request(40, "1-2", flexible="2+", response=ExpireDelegationTokenResponse)
class ExpireDelegationTokenRequest(Request[ExpireDelegationTokenResponse]):
    """Say when a token ends, or remove it."""

    hmac: bytes = bytes_(secret=True, about="The secret of the token.")
    expiry_time_period_ms: int = int64(about="How long from now on; below 0: it is removed at once.")


@data()
class DescribedRenewer(Message):
    """One of the `renewers` of DescribedDelegationToken."""

    principal_type: str = string(about="Type of the principal.")
    principal_name: str = string(about="Name of the principal.")


@data()
class DescribedDelegationToken(Message):
    """One of the `tokens` of DescribeDelegationTokenResponse."""

    principal_type: str = string(about="Type of the owner.")
    principal_name: str = string(about="Name of the owner.")
    token_requester_principal_type: str = string(
        "3+", ignorable=True, about="Type of who asked for the token."
    )
    token_requester_principal_name: str = string(
        "3+", ignorable=True, about="Name of who asked for the token."
    )
    issue_timestamp: int = int64(about="When the token was made.")
    expiry_timestamp: int = int64(about="When it ends unless it is renewed.")
    max_timestamp: int = int64(about="When it ends at the latest.")
    token_id: str = string(about="Name of the token.")
    hmac: bytes = bytes_(secret=True, about="The secret of the token.")
    renewers: list[DescribedRenewer] = array(
        DescribedRenewer, about="Who may renew and expire the token besides its owner."
    )


@response(41, "1-3", flexible="2+")
class DescribeDelegationTokenResponse(Message):
    """Answer to DescribeDelegationTokenRequest."""

    error_code: int = int16(about="Error code, 0 for success.")
    tokens: list[DescribedDelegationToken] = array(DescribedDelegationToken, about="The tokens.")
    throttle_time_ms: int = int32(about="How long a quota delayed the request, in ms.")


@data()
class DescribedTokenOwner(Message):
    """One of the `owners` of DescribeDelegationTokenRequest."""

    principal_type: str = string(about="Type of the owner.")
    principal_name: str = string(about="Name of the owner.")


@request(41, "1-3", flexible="2+", response=DescribeDelegationTokenResponse)
class DescribeDelegationTokenRequest(Request[DescribeDelegationTokenResponse]):
    """Show tokens that concern the sender, or that it may see."""

    owners: list[DescribedTokenOwner] | None = array(
        DescribedTokenOwner, nullable="0+", about="Whose tokens; null for all."
    )
