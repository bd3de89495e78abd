"""Completion: what the script of bash offers, and that the others name the same."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from ottla.cli.commands.completion import all_words
from ottla.cli.completion_scripts import SHELLS, bash
from ottla.cli.main import COMMANDS


@pytest.fixture(scope="module")
def script() -> str:
    return bash(all_words())


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("to", {"topic"}),
        ("topic a", {"alter", "add-partitions"}),
        ("topic -b host:1 a", {"alter", "add-partitions"}),
        ("topic alter --se", {"--set"}),
        ("topic list -o ", {"table", "json"}),
        ("topic list -b ", set()),
        ("group seek --to-", {"--to-group", "--to-file"}),
        ("config get ", {"topic", "broker", "group", "client-metrics", "broker-logger"}),
        ("completion f", {"fish"}),
    ],
)
def test_what_bash_offers(script: str, line: str, offered: set[str]) -> None:
    words = ["ottla", *line.split(" ")]
    quoted = " ".join(f"'{word}'" for word in words)
    ask = f"COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _ottla"
    program = f"{script}\n{ask}; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    asked_for_flags = words[-1].startswith("-")
    assert {word for word in done.stdout.split() if asked_for_flags or not word.startswith("-")} == offered


@pytest.mark.parametrize("shell", SHELLS)
def test_every_command_and_action_is_named(shell: str) -> None:
    words = all_words()
    text = SHELLS[shell](words)
    assert {word.name for word in words} == {*COMMANDS, "version"}
    for word in words:
        assert word.name in text
        for action in word.following:
            assert action.name in text
            assert all(option.flags[-1].lstrip("-") in text for option in action.options)


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_shells_that_are_here_can_read_their_script(shell: str) -> None:
    found = shutil.which(shell)
    if found is None:
        pytest.skip(f"{shell} is not installed")
    done = subprocess.run(
        [found, "-n"], input=SHELLS[shell](all_words()), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
