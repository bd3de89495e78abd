"""A quorum node's memory of the brokers' commands in progress."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.metadata_quorum.command_intake import CommandIntake, CommandReplies
from ottla.metadata_quorum.feed import MetadataFeed
from ottla.metadata_quorum.raft.effects import Done, NotLeader, OutcomeUnknown, Overloaded
from ottla.protocol.cluster.cluster_image import ClusterImage
from ottla.protocol.messages.partition_commands import AlterPartition
from ottla.protocol.messages.quorum_commands import Session, encode_command
from ottla.protocol.messages.quorum_session import CommandReply, CommandStatus, SubmitCommand

BROKER = 1


class Intake:
    """The intake of a leader that has not taken the commands of its only broker yet."""

    def __init__(self) -> None:
        anything = cast(Any, SimpleNamespace)
        raft = anything(is_leader=True, leader_id=None)
        self.on_their_way: list[Done] = []
        self.decoded: dict[bytes, object] = {}
        self.replies: list[CommandReply] = []
        self._session = anything(broker_id=BROKER, reply=self.replies.append)
        self._intake = CommandIntake(
            raft,
            CommandReplies(100, raft),
            MetadataFeed(),
            anything(),
            anything(propose_behind=lambda _encoded, done: self.on_their_way.append(done)),
            anything(lacks=lambda *_: False),
            anything(check=lambda *_: True),
            ClusterImage,
            lambda _: None,
            self.decoded.__setitem__,
            lambda encoded: cast(None, self.decoded.pop(encoded, None)),
        )

    def submit(self, sequence: int, acknowledged: int) -> None:
        session = Session(BROKER, 7, sequence, acknowledged)
        command = encode_command(session, AlterPartition(broker_id=BROKER, broker_epoch=7))
        self._intake.submitted(self._session, SubmitCommand(sequence=sequence, command=command))


@pytest.mark.parametrize("error", [NotLeader(None), Overloaded("too much"), OutcomeUnknown("who knows")])
def test_what_was_decoded_ahead_is_not_kept_when_nothing_comes_of_it(error: Exception) -> None:
    """A broker repeats a command until it has an outcome, and states the results that have arrived meanwhile.

    So an overloaded leader gets the same ISR changes repeatedly, in different bytes.
    """
    intake = Intake()
    for acknowledged in range(3):
        intake.submit(9, acknowledged)
    assert len(intake.decoded) == 3
    for done in intake.on_their_way:
        done(None, error)
    assert intake.decoded == {}
    assert len(intake.replies) == 3
    assert CommandStatus.APPLIED not in {reply.status for reply in intake.replies}
