"""The address and the token of `ottla up --console`: they stay from run to run, and only their owner may read them."""

from __future__ import annotations

import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.cli.failures import CommandFailed, UsageError
from ottla.cli.local_cluster import console_address as module
from ottla.cli.local_cluster.console import CHANGES, LocalConsole
from ottla.cli.local_cluster.console_address import ConsoleAddress, console_address, token_file
from ottla.cli.local_cluster.layout import CONSOLE_FILES, open_layout
from ottla.cli.main import main


@pytest.fixture(autouse=True)
def no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PATIENCE_S", 0.0)


@pytest.fixture
def reserved() -> Iterator[list[socket.socket]]:
    held: list[socket.socket] = []
    yield held
    for reservation in held:
        reservation.close()


def taken(address: ConsoleAddress) -> socket.socket:
    return socket.create_server((address.listen.host, address.listen.port))


def test_address_and_token_stay(tmp_path: Path, reserved: list[socket.socket]) -> None:
    address, token = console_address(tmp_path, None, reserved), token_file(tmp_path).read_text()
    assert str(address).startswith("127.0.0.1:")
    assert len(token.strip()) >= 32
    assert console_address(tmp_path, None, reserved) == address
    assert token_file(tmp_path).read_text() == token
    for name in CONSOLE_FILES:
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600


def test_a_port_that_is_taken_is_replaced_and_reported(
    tmp_path: Path, reserved: list[socket.socket], capsys: pytest.CaptureFixture[str]
) -> None:
    first = console_address(tmp_path, None, reserved)
    with taken(first):
        second = console_address(tmp_path, None, reserved)
    assert second != first
    assert capsys.readouterr().err == (
        f"ottla up: {first}, the console's address of the last run, is in use: it gets another port\n"
    )
    assert console_address(tmp_path, None, reserved) == second


def test_a_port_that_the_user_chose_is_never_replaced(tmp_path: Path, reserved: list[socket.socket]) -> None:
    free = str(console_address(tmp_path, None, reserved))
    chosen = console_address(tmp_path, free, reserved)
    assert chosen.is_chosen
    with taken(chosen):
        for asked in (free, None):
            with pytest.raises(CommandFailed, match=f"cannot listen at {free}: Address already in use"):
                console_address(tmp_path, asked, reserved)
    assert console_address(tmp_path, None, reserved) == chosen
    other = console_address(tmp_path, "[::1]:0", reserved)
    assert (other.listen.host, other.is_chosen) == ("::1", False)
    assert console_address(tmp_path, None, reserved) == other


@pytest.mark.parametrize("asked", ["here", "127.0.0.1:99999", "0.0.0.0:9280"])
def test_an_address_that_is_none_is_refused(
    tmp_path: Path, reserved: list[socket.socket], asked: str
) -> None:
    with pytest.raises(UsageError, match="--console-listen: "):
        console_address(tmp_path, asked, reserved)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, reserved: list[socket.socket]) -> None:
    (tmp_path / CONSOLE_FILES[0]).write_text("{}")
    with pytest.raises(CommandFailed, match=f"cannot use {tmp_path / CONSOLE_FILES[0]}: 'listen'"):
        console_address(tmp_path, None, reserved)


def test_the_console_gets_both_and_its_folder_forgets_them(tmp_path: Path) -> None:
    layout = open_layout(tmp_path, quorum=1, brokers=1, base_port=None)
    layout.write({})
    words = LocalConsole(layout, CHANGES).argv
    listen, token = words[words.index("--listen") + 1], words[words.index("--token-file") + 1]
    assert LocalConsole(layout, CHANGES).argv == words
    assert "--show-token" in words
    assert (listen.startswith("127.0.0.1:"), token) == (True, str(tmp_path / CONSOLE_FILES[1]))
    layout.remove()
    assert not tmp_path.exists()


def test_options_that_do_not_go_together_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["up", "--console-listen", "127.0.0.1:9280"]) == 2
    assert "--console-listen goes with --console" in capsys.readouterr().err
    assert main(["console", "--show-token"]) == 2
    assert "--show-token goes with --token-file" in capsys.readouterr().err
