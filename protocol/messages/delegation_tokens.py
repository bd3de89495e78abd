"""CreateDelegationToken (38), RenewDelegationToken (39), ExpireDelegationToken (40), DescribeDelegationToken (41).

Programs log in for a user by delegation tokens (KIP-48, KIP-373).
"""

from __future__ import annotations

from ..wire.schema import (
    Message,
    Request,
    array,
    bytes_,
    data,
    int16,
    int32,
    int64,
    request,
    response,
    string,
)


@response(38, "1-3", flexible="2+")
class CreateDelegationTokenResponse(Message):
    """Answer to CreateDelegationTokenRequest."""

    error_code: int = int16(about="Error code, 0 for success.")
    principal_type: str = string(about="Type of the owner.")
    principal_name: str = string(about="Name of the owner.")
    token_requester_principal_type: str = string(
        "3+", ignorable=True, about="Type of the principal that asked for the token."
    )
    token_requester_principal_name: str = string(
        "3+", ignorable=True, about="Name of the principal that asked for the token."
    )
    issue_timestamp_ms: int = int64(about="Time at which the token was made, in ms since 1970.")
    expiry_timestamp_ms: int = int64(
        about="Time at which the token expires unless it is renewed, in ms since 1970."
    )
    max_timestamp_ms: int = int64(about="Latest time at which the token can expire, in ms since 1970.")
    token_id: str = string(about="Name of the token.")
    hmac: bytes = bytes_(secret=True, about="The secret of the token.")
    throttle_time_ms: int = int32(about="How long a quota delayed the request, in ms.")


@data()
class CreatableRenewer(Message):
    """A principal who may renew the new delegation token."""

    principal_type: str = string(about="Type of the principal.")
    principal_name: str = string(about="Name of the principal.")


@request(38, "1-3", flexible="2+", response=CreateDelegationTokenResponse)
class CreateDelegationTokenRequest(Request[CreateDelegationTokenResponse]):
    """Request to create a delegation token, by which programs log in for its owner."""

    owner_principal_type: str | None = string(
        "3+", nullable="3+", default=None, about="Type of the owner; null: the requester is the owner."
    )
    owner_principal_name: str | None = string(
        "3+", nullable="3+", default=None, about="Name of the owner; null: the requester is the owner."
    )
    renewers: list[CreatableRenewer] = array(
        CreatableRenewer, about="Principals who may renew and expire the token besides its owner."
    )
    max_lifetime_ms: int = int64(
        about="Lifetime of the token, in ms; 0 or less: the longest that the cluster allows."
    )


@response(39, "1-2", flexible="2+")
class RenewDelegationTokenResponse(Message):
    """Answer to RenewDelegationTokenRequest."""

    error_code: int = int16(about="Error code, 0 for success.")
    expiry_timestamp_ms: int = int64(about="Time at which the token expires now, in ms since 1970.")
    throttle_time_ms: int = int32(about="How long a quota delayed the request, in ms.")


@request(39, "1-2", flexible="2+", response=RenewDelegationTokenResponse)
class RenewDelegationTokenRequest(Request[RenewDelegationTokenResponse]):
    """Request to let a delegation token expire later."""

    hmac: bytes = bytes_(secret=True, about="The secret of the token.")
    renew_period_ms: int = int64(
        about="Time from now until the token expires, in ms; 0 or less: the longest that the cluster allows."
    )


@response(40, "1-2", flexible="2+")
class ExpireDelegationTokenResponse(Message):
    """Answer to ExpireDelegationTokenRequest."""

    error_code: int = int16(about="Error code, 0 for success.")
    expiry_timestamp_ms: int = int64(about="Time at which the token expires now, in ms since 1970.")
    throttle_time_ms: int = int32(about="How long a quota delayed the request, in ms.")


@request(40, "1-2", flexible="2+", response=ExpireDelegationTokenResponse)
class ExpireDelegationTokenRequest(Request[ExpireDelegationTokenResponse]):
    """Request to set the time at which a delegation token expires, or to remove the token."""

    hmac: bytes = bytes_(secret=True, about="The secret of the token.")
    expiry_time_period_ms: int = int64(
        about="Time from now until the token expires, in ms; below 0: the token is removed at once."
    )


@data()
class DescribedRenewer(Message):
    """A principal who may renew the token."""

    principal_type: str = string(about="Type of the principal.")
    principal_name: str = string(about="Name of the principal.")


@data()
class DescribedDelegationToken(Message):
    """A delegation token with its owner, requester, times and renewers."""

    principal_type: str = string(about="Type of the owner.")
    principal_name: str = string(about="Name of the owner.")
    token_requester_principal_type: str = string(
        "3+", ignorable=True, about="Type of the principal that asked for the token."
    )
    token_requester_principal_name: str = string(
        "3+", ignorable=True, about="Name of the principal that asked for the token."
    )
    issue_timestamp: int = int64(about="Time at which the token was made, in ms since 1970.")
    expiry_timestamp: int = int64(
        about="Time at which the token expires unless it is renewed, in ms since 1970."
    )
    max_timestamp: int = int64(about="Latest time at which the token can expire, in ms since 1970.")
    token_id: str = string(about="Name of the token.")
    hmac: bytes = bytes_(secret=True, about="The secret of the token.")
    renewers: list[DescribedRenewer] = array(
        DescribedRenewer, about="Principals who may renew and expire the token besides its owner."
    )


@response(41, "1-3", flexible="2+")
class DescribeDelegationTokenResponse(Message):
    """Answer to DescribeDelegationTokenRequest."""

    error_code: int = int16(about="Error code, 0 for success.")
    tokens: list[DescribedDelegationToken] = array(DescribedDelegationToken, about="Tokens that were found.")
    throttle_time_ms: int = int32(about="How long a quota delayed the request, in ms.")


@data()
class DescribedTokenOwner(Message):
    """A principal whose delegation tokens are asked for."""

    principal_type: str = string(about="Type of the owner.")
    principal_name: str = string(about="Name of the owner.")


@request(41, "1-3", flexible="2+", response=DescribeDelegationTokenResponse)
class DescribeDelegationTokenRequest(Request[DescribeDelegationTokenResponse]):
    """Request for the delegation tokens that concern the sender, or that the sender may see."""

    owners: list[DescribedTokenOwner] | None = array(
        DescribedTokenOwner, nullable="0+", about="Owners of the wanted tokens; null for all."
    )
