"""Commands to the controller about users who log in by SCRAM."""

from __future__ import annotations

from ..wire.schema import Message, array, boolean, bytes_, data, int8, int16, int32, string
from .command import Command, CommandResult


@data()
class ScramCredentialChange(Message):
    """A user's SCRAM credential for one mechanism, to set or delete."""

    name: str = string(about="Name of the user.")
    mechanism: int = int8(about="1 SCRAM-SHA-256, 2 SCRAM-SHA-512.")
    salt: bytes = bytes_(about="Random bytes that were hashed with the password.")
    sealed_keys: bytes = bytes_(
        about="Stored key and server key, encrypted by a broker; empty deletes the credential."
    )
    iterations: int = int32(about="Number of iterations with which the password was hashed.")
    replaces: bytes = bytes_(
        "0+",
        tag=0,
        about="Sealed keys that the credential must have now, otherwise nothing changes; empty: any keys.",
    )


@data()
class AlteredCredential(Message):
    """Result of the change of one SCRAM credential."""

    error_code: int = int16(about="Error code, 0 for success.")
    error_message: str = string(about="Explanation for people.")


@data()
class AlterScramCredentialsResult(CommandResult):
    """Results of AlterScramCredentials, one for each change in the order of the command."""

    error_code: int = int16(about="Error code of the whole command, 0 for success.")
    error_message: str = string(about="Explanation for people.")
    changes: list[AlteredCredential] = array(AlteredCredential, about="Results, in the order of the command.")


@data()
class AlterScramCredentials(Command[AlterScramCredentialsResult]):
    """Command to change SCRAM credentials, each independently of the others."""

    changes: list[ScramCredentialChange] = array(ScramCredentialChange, about="Credentials to set or delete.")
    is_denied: bool = boolean(
        "0+",
        tag=0,
        about="Whether the leader has found that the requester lacks the right; the leader then left out the changes.",
    )
    removes_tokens: bool = boolean(
        "0+",
        tag=1,
        about="Whether the delegation tokens of a user are removed with the user's last credential. Older brokers do "
        "not set it, and keep the tokens.",
    )
