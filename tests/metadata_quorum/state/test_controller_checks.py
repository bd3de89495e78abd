"""The controller notices when it contradicts itself."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ottla.metadata_quorum.state.sessions import CommandSession
from ottla.protocol.messages import quorum_commands as q
from ottla.protocol.messages.broker_commands import AllocateProducerIds

from .harness import ControllerWithBrokers


def _keep_what_is_to_come(session: CommandSession) -> None:
    session.keep(9, (1, b""))


def _keep_in_disorder(session: CommandSession) -> None:
    session.kept[1] = session.kept.pop(1)


def _miscount(session: CommandSession) -> None:
    session.kept_bytes += 1


def _keep_of_a_later_offset(session: CommandSession) -> None:
    session.kept[3] = (10_000, session.kept[3][1])


def _of_another_epoch(session: CommandSession) -> None:
    session.broker_epoch += 1


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (_keep_what_is_to_come, r"a session at 3 keeps results of \[1, 2, 3, 9\]"),
        (_keep_in_disorder, r"keeps results of \[2, 3, 1\]"),
        (_miscount, "bytes are not what the kept results"),
        (_keep_of_a_later_offset, "kept results are of the offsets"),
        (_of_another_epoch, "broker 1 has a session of epoch"),
    ],
)
def test_a_session_that_contradicts_itself(spoil: Callable[[CommandSession], None], said: str) -> None:
    cluster = ControllerWithBrokers(1)
    epoch = cluster.epoch(1)
    for sequence in (1, 2, 3):
        command = AllocateProducerIds(broker_id=1, broker_epoch=epoch)
        cluster.apply(command, q.Session(1, epoch, sequence, 0))
    cluster.machine.check()
    spoil(cluster.machine._sessions.sessions[1])
    with pytest.raises(AssertionError, match=said):
        cluster.machine.check()
