"""`ottla acl list` without a result says whether options have narrowed the choice."""

from __future__ import annotations

from types import TracebackType

import pytest

from ottla.cli.commands import acl
from ottla.cli.main import main
from ottla.protocol.cluster.acls import Acl, AclFilter


class NoAcls:
    """The admin client of a cluster in which no ACL matches."""

    async def __aenter__(self) -> NoAcls:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    async def describe_acls(self, wanted: AclFilter) -> list[Acl]:
        return []


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        ((), "There are no ACLs."),
        (("--deny",), "There are no such ACLs."),
        (("--allow",), "There are no such ACLs."),
        (("--prefixed",), "There are no such ACLs."),
        (("--literal",), "There are no such ACLs."),
        (("--host", "10.0.0.7"), "There are no such ACLs."),
        (("--topic", "orders"), "There are no such ACLs."),
    ],
)
def test_no_acls(
    words: tuple[str, ...], answer: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(acl, "_admin", lambda arguments: NoAcls())
    assert main(["acl", "list", *words]) == 0
    told = capsys.readouterr()
    assert answer in (told.out + told.err).splitlines()
