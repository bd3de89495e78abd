"""The report of `ottla up` about a node that died while it started: the node's own log lines, of this run."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest

from ottla.cli.local_cluster import forked_node
from ottla.cli.local_cluster.layout import open_layout
from ottla.cli.local_cluster.supervisor import Supervisor


@pytest.mark.parametrize(
    ("says", "expected"), [("", ""), ("first\nthe reason\n\n", "the reason"), ("x" * 100_000, "x" * 65_536)]
)
def test_words_of_another_run_are_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str, expected: str
) -> None:
    layout = open_layout(tmp_path, quorum=1, brokers=1, base_port=None)
    layout.write({})
    node = layout.quorum[0]
    log = layout.log_file(node)
    log.write_text("the port was in use, a week ago\n")

    def fork(*_: object, **__: object) -> multiprocessing.context.ForkProcess:
        def speak() -> None:
            with log.open("a") as file:
                file.write(says)

        process = multiprocessing.get_context("fork").Process(target=speak)
        process.start()
        return process

    monkeypatch.setattr(forked_node, "load", lambda role: None)
    monkeypatch.setattr(forked_node, "fork", fork)
    supervisor = Supervisor(layout)
    supervisor.start([node])
    (child,) = supervisor.wait(60)
    assert child.member == node
    assert supervisor.last_words(node) == expected
