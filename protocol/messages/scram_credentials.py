"""DescribeUserScramCredentials (50), AlterUserScramCredentials (51): users and their passwords (KIP-554).

Mechanisms are numbers here: 1 SCRAM-SHA-256, 2 SCRAM-SHA-512.
"""

from __future__ import annotations

from ..wire.schema import Message, Request, array, bytes_, data, int8, int16, int32, request, response, string


@data()
class CredentialInfo(Message):
    """A SCRAM mechanism by which a user can log in, with the number of iterations."""

    mechanism: int = int8(about="Number of the mechanism.")
    iterations: int = int32(about="Number of iterations with which the password was hashed.")


@data()
class DescribedUser(Message):
    """A user with the mechanisms of its credentials."""

    user: str = string(about="Name of the user.")
    error_code: int = int16(about="Error code, 0 for success.")
    error_message: str | None = string(nullable="0+", about="Explanation for people; null without one.")
    credential_infos: list[CredentialInfo] = array(
        CredentialInfo, about="Mechanisms by which the user can log in."
    )


@response(50, "0", flexible="0+")
class DescribeUserScramCredentialsResponse(Message):
    """Answer to DescribeUserScramCredentialsRequest. It never contains salts or keys."""

    throttle_time_ms: int = int32(about="How long a quota delayed the request, in ms.")
    error_code: int = int16(about="Error code about all users, 0 for success.")
    error_message: str | None = string(nullable="0+", about="Explanation for people; null without one.")
    results: list[DescribedUser] = array(DescribedUser, about="Users that were found.")


@data()
class NamedUser(Message):
    """A user to describe."""

    name: str = string(about="Name of the user.")


@request(50, "0", flexible="0+", response=DescribeUserScramCredentialsResponse)
class DescribeUserScramCredentialsRequest(Request[DescribeUserScramCredentialsResponse]):
    """Request for the users that can log in by SCRAM."""

    users: list[NamedUser] | None = array(
        NamedUser, nullable="0+", about="Users to show; null or empty for all."
    )


@data()
class AlteredUser(Message):
    """Result of the changes of one user's SCRAM credentials."""

    user: str = string(about="Name of the user.")
    error_code: int = int16(about="Error code, 0 for success.")
    error_message: str | None = string(nullable="0+", about="Explanation for people; null without one.")


@response(51, "0", flexible="0+")
class AlterUserScramCredentialsResponse(Message):
    """Answer to AlterUserScramCredentialsRequest."""

    throttle_time_ms: int = int32(about="How long a quota delayed the request, in ms.")
    results: list[AlteredUser] = array(AlteredUser, about="Results, one for each user.")


@data()
class CredentialDeletion(Message):
    """A SCRAM credential to delete: user and mechanism."""

    name: str = string(about="Name of the user.")
    mechanism: int = int8(about="Number of the mechanism.")


@data()
class CredentialUpsertion(Message):
    """A SCRAM credential to set: user, mechanism, iterations, salt and salted password."""

    name: str = string(about="Name of the user.")
    mechanism: int = int8(about="Number of the mechanism.")
    iterations: int = int32(about="Number of iterations with which the password was hashed.")
    salt: bytes = bytes_(about="Random bytes that were hashed with the password.")
    salted_password: bytes = bytes_(secret=True, about="Hash of the password and the salt.")


@request(51, "0", flexible="0+", response=AlterUserScramCredentialsResponse)
class AlterUserScramCredentialsRequest(Request[AlterUserScramCredentialsResponse]):
    """Request to set or delete passwords of users."""

    deletions: list[CredentialDeletion] = array(CredentialDeletion, about="Passwords to delete.")
    upsertions: list[CredentialUpsertion] = array(CredentialUpsertion, about="Passwords to set.")
