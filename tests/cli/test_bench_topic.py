"""`ottla bench` deletes its topic if the topic may exist, and says nothing of a topic that was never created."""

from __future__ import annotations

import pytest

from ottla.cli.commands.bench import measurements
from ottla.cli.main import main
from ottla.client.failures import ConnectionLost
from ottla.protocol.errors import ErrorCode, KafkaError


class RefusingAdmin:
    """The admin client of a cluster that creates no topic, and deletes none."""

    failure: KafkaError
    deleted: list[str]

    def __init__(self, **connection: object) -> None:
        pass

    async def __aenter__(self) -> RefusingAdmin:
        return self

    async def __aexit__(self, *failure: object) -> None:
        pass

    async def create_topics(self, topics: object) -> None:
        raise self.failure

    async def delete_topics(self, topics: list[str]) -> None:
        self.deleted.extend(topics)
        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "DELETE is not allowed")


@pytest.mark.parametrize(
    ("failure", "may_exist"),
    [
        (KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "CREATE is not allowed"), False),
        (KafkaError(ErrorCode.REQUEST_TIMED_OUT, "the quorum has not answered"), True),
        (ConnectionLost("h:1 closed the connection"), True),
    ],
)
def test_a_topic_that_was_refused_is_not_called_left(
    failure: KafkaError,
    may_exist: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    deleted: list[str] = []
    facts = {"failure": failure, "deleted": deleted}
    monkeypatch.setattr(measurements, "Admin", type("Refusing", (RefusingAdmin,), facts))
    assert main(["bench", "produce", "-b", "h:1"]) == 1
    told = capsys.readouterr().err
    assert failure.message in told
    assert ("is left" in told) is may_exist
    assert len(deleted) == may_exist
