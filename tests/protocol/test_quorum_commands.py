"""Commands to the quorum: one list of them, and results that state their outcome."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import pytest

from ottla.protocol import messages
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.broker_commands import AllocateProducerIds, AllocateProducerIdsResult
from ottla.protocol.messages.command import Command, CommandRefused, accepted, refusal, result_type
from ottla.protocol.messages.quorum_commands import (
    COMMANDS,
    Session,
    decode_command,
    decode_result,
    encode_command,
    encode_result,
    refused,
)
from ottla.protocol.wire.codec import MalformedMessage

NUMBERS = {
    1: "RegisterBroker",
    2: "UnfenceBroker",
    3: "FenceBroker",
    4: "BeginControlledShutdown",
    5: "UnregisterBroker",
    6: "CreateTopics",
    7: "DeleteTopics",
    8: "CreatePartitions",
    9: "AlterPartition",
    10: "AlterConfigs",
    11: "AllocateProducerIds",
    12: "ElectLeaders",
    13: "FormCluster",
    14: "AlterPartitionReassignments",
    18: "ReportOfflineReplicas",
    20: "AlterClientQuotas",
    21: "UpdateFeatures",
    22: "RenewReplicas",
    23: "ElectLastKnown",
    24: "InitTransactionalId",
    25: "AddToTransaction",
    26: "EndTransaction",
    27: "JoinTransaction",
    28: "ReportMarkers",
    29: "ExpireTransactions",
    30: "ForgetTransactionalIds",
    31: "AbortTransaction",
    32: "VerifyTransaction",
    33: "DeleteTransactionalId",
    34: "FindOrBegin",
    35: "DeclareRestored",
    36: "CreateAcls",
    37: "DeleteAcls",
    38: "AlterScramCredentials",
    39: "CreateDelegationToken",
    40: "RenewDelegationToken",
    41: "ExpireDelegationToken",
    42: "RemoveExpiredTokens",
    43: "CreateMirror",
    44: "AlterMirror",
    45: "DeleteMirror",
    46: "FollowTopics",
    47: "ReportMirrorPartitions",
    48: "AcceptMirrorFaults",
    49: "ReconnectMirror",
    50: "AnnounceMirrorCut",
    51: "ReportMirrorCuts",
    52: "PromoteMirrorAtCut",
    56: "FailBackMirror",
    57: "LimitMirror",
    58: "FollowAcls",
    59: "TellMirrorOffsets",
    60: "ReportOffsetsTaken",
    61: "ReportWritability",
}
"""Numbers of commands in journals and snapshots. Add a line for a new command; change none."""


def declared() -> set[type[Command[Any]]]:
    """Return every command that a module declares."""
    found: set[type[Command[Any]]] = set()
    for info in iter_modules(messages.__path__):
        module = import_module(f"{messages.__name__}.{info.name}")
        found |= {
            each
            for each in vars(module).values()
            if isinstance(each, type) and issubclass(each, Command) and each is not Command
        }
    return found


def test_numbers_stay() -> None:
    named = {number: command.__name__ for number, command in COMMANDS.items()}
    assert named == NUMBERS, "a command keeps its number, and a new one has a line above"
    assert not {15, 16, 17, 19, 53, 54, 55} & named.keys(), "a number that was free is not used again"


def test_every_command_that_is_declared_has_a_number() -> None:
    assert declared() == set(COMMANDS.values())


@pytest.mark.parametrize("command", COMMANDS.values(), ids=lambda command: command.__name__)
def test_a_command_and_its_refusal_are_read_back(command: type[Command[Any]]) -> None:
    session = Session(3, 17, 4, 2)
    sent = command()
    assert decode_command(encode_command(session, sent)) == (session, sent)
    assert decode_command(encode_command(None, sent)) == (None, sent)
    result = refused(sent, ErrorCode.POLICY_VIOLATION, "not today")
    assert type(result) is result_type(command)
    read = decode_result(sent, encode_result(result))
    with pytest.raises(CommandRefused, match="not today") as raised:
        accepted(read)
    assert raised.value.code is ErrorCode.POLICY_VIOLATION


def test_a_result_that_is_no_refusal_is_passed_on() -> None:
    result = AllocateProducerIdsResult(first=1000, count=1000)
    assert refusal(result) is None
    assert accepted(result) is result


def test_bytes_that_are_no_whole_command_are_refused() -> None:
    encoded = encode_command(None, AllocateProducerIds())
    for broken in (b"", b"\x0f" + encoded[1:], encoded[:-1], encoded + b"\0"):
        with pytest.raises(MalformedMessage):
            decode_command(broken)
