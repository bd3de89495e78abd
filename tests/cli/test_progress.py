"""Progress on standard error: one line on a terminal, few lines in a pipe, none for a short command."""

from __future__ import annotations

import asyncio
import io
import socket
import sys

import pytest

from ottla.cli.commands.cluster import health
from ottla.cli.commands.mirror import create
from ottla.cli.main import main
from ottla.cli.run_client import run_client
from ottla.cli.terminal import progress
from ottla.cli.terminal.progress import ProgressLine, progress_bar, renewed_line, waiting, waiting_text


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def shown_each_half_second(seconds: float) -> str:
    """Return the output of an operation that shows its progress each half second for so long."""
    clock = Clock()
    with ProgressLine(clock) as line:
        for half in range(int(seconds * 2) + 1):
            clock.now_s = 100 + half / 2
            line.show(f"{half / 2:g} s")
        line.end("done")
    assert isinstance(sys.stderr, io.StringIO)
    return sys.stderr.getvalue()


def test_a_pipe_gets_few_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert shown_each_half_second(1.5) == ""
    assert shown_each_half_second(13) == "2 s\n7 s\n12 s\ndone\n"


def test_a_terminal_has_one_line_which_goes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert shown_each_half_second(1) == "\r\x1b[K0 s\r\x1b[K0.5 s\r\x1b[K1 s\r\x1b[Kdone\n"
    monkeypatch.setattr(sys, "stderr", Terminal())
    with pytest.raises(OSError, match="no disk"), ProgressLine() as line:
        line.show("reading")
        raise OSError("no disk")
    assert isinstance(sys.stderr, Terminal)
    assert sys.stderr.getvalue() == "\r\x1b[Kreading\r\x1b[K"


async def test_a_wait_is_told_once_it_is_long(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async with waiting("nobody"):
        await asyncio.sleep(0)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(progress, "FIRST_AFTER_S", 0.0)
    told = asyncio.get_running_loop().create_future()
    monkeypatch.setattr(progress, "note", told.set_result)
    async with waiting("somebody"), asyncio.timeout(10):
        assert await told == "waiting for somebody, 0 s"
    assert waiting_text("somebody", 61.7) == "waiting for somebody, 62 s"


async def test_the_line_of_a_wait_goes_away_before_other_output(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setattr(progress, "FIRST_AFTER_S", 0.0)
    assert isinstance(sys.stderr, Terminal)
    async with waiting("broker-1"), asyncio.timeout(10):
        while not sys.stderr.getvalue():
            await asyncio.sleep(0)
    assert sys.stderr.getvalue() == "\r\x1b[Kwaiting for broker-1, 0 s\r\x1b[K"


async def test_a_line_changes_while_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FIRST_AFTER_S", "LINE_EVERY_S", "_LOOK_EVERY_S"):
        monkeypatch.setattr(progress, name, 0.0)
    told: list[str] = []
    monkeypatch.setattr(progress, "note", told.append)
    async with renewed_line(lambda passed_s: f"copying, {passed_s:.4f} s"), asyncio.timeout(10):
        while len(set(told)) < 3:
            await asyncio.sleep(0)


def test_commands_say_that_a_cluster_is_silent(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "FIRST_AFTER_S", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        where = f"127.0.0.1:{silent.getsockname()[1]}"
        # Once the notice is out, the server resets the connection.
        monkeypatch.setattr(progress, "note", lambda text: (print(text, file=sys.stderr), silent.close()))
        assert main(["topic", "list", "-b", where]) == 1
    told = capsys.readouterr().err.splitlines()
    assert told[0] == "waiting for the cluster, 0 s"
    assert "no broker answers" in told[-1]


def test_a_new_mirror_waits_for_its_source(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "FIRST_AFTER_S", 0.0)
    told: list[str] = []
    monkeypatch.setattr(progress, "note", told.append)

    async def creation(*_: object) -> str:
        async with asyncio.timeout(10):
            while not told:
                await asyncio.sleep(0)
        return "source-id"

    monkeypatch.setattr(create, "_create", creation)
    assert main(["mirror", "create", "west", "--from", "west:9092", "--topics", ".*"]) == 0
    assert told == ["waiting for the source at west:9092, which a broker of the cluster asks, 0 s"]
    assert "source-id" in capsys.readouterr().out


def test_a_wait_for_health_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "FIRST_AFTER_S", 0.0)
    monkeypatch.setattr(progress, "LINE_EVERY_S", 0.0)
    found = iter([None, health.Health(quorum_leader=101, brokers_down=[2]), health.Health(quorum_leader=101)])

    async def look(_: object) -> health.Health | None:
        return next(found)

    monkeypatch.setattr(health, "_look_if_reachable", look)
    assert main(["cluster", "health", "--exit-when-healthy", "--interval", "0.001"]) == 0
    told = capsys.readouterr()
    assert told.out == "healthy\n"
    lines = [line for line in told.err.splitlines() if not line.startswith("waiting for")]
    assert lines == ["not healthy yet: no broker answers", "not healthy yet: brokers offline: 1 (2)"]


def test_a_client_that_shows_its_own_progress_has_no_other(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "FIRST_AFTER_S", 0.0)
    run_client(asyncio.sleep(0.05), waits_for=None)
    assert capsys.readouterr().err == ""


def test_a_bar_is_lines_in_a_pipe(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "FIRST_AFTER_S", 0.0)
    with progress_bar("moving", 12_000) as update:
        update(5_000)
        update(6_000)
    assert capsys.readouterr().err == "moving: 5,000 of 12,000\n"
