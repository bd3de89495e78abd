"""Commands to the controller about users who log in by SCRAM."""

from __future__ import annotations

from ..schema import Message, array, boolean, bytes_, data, int8, int16, int32, string
from .command import Command, CommandResult


@data()
class ScramCredentialChange(Message):
    """One credential to be set, or deleted."""

    name: str = string(about="Name of the user.")
    mechanism: int = int8(about="1 SCRAM-SHA-256, 2 SCRAM-SHA-512.")
    salt: bytes = bytes_(about="Random bytes that were hashed with the password.")
    sealed_keys: bytes = bytes_(
        about="Stored key and server key, encrypted by a broker; empty deletes the credential."
    )
    iterations: int = int32(about="How often the password was hashed.")
    replaces: bytes = bytes_(
        "0+",
        tag=0,
        about="Nothing is changed if the sealed keys are others than these; empty: whatever they are.",
    )


@data()
class AlteredCredential(Message):
    """How one change went."""

    error_code: int = int16(about="0 for success.")
    error_message: str = string(about="For people.")


@data()
class AlterScramCredentialsResult(CommandResult):
    """One result for each change, in order."""

    error_code: int = int16(about="About the whole command; 0 for success.")
    error_message: str = string(about="For people.")
    changes: list[AlteredCredential] = array(AlteredCredential, about="In the order of the command.")


@data()
class AlterScramCredentials(Command[AlterScramCredentialsResult]):
    """Change credentials, each on its own."""

    changes: list[ScramCredentialChange] = array(ScramCredentialChange, about="Credentials.")
    is_denied: bool = boolean(
        "0+",
        tag=0,
        about="The leader has found that whoever asked may not do it, and left out what it would change.",
    )
    removes_tokens: bool = boolean(
        "0+",
        tag=1,
        about="With the last credential of a user its delegation tokens are removed. Brokers from before leave them.",
    )
