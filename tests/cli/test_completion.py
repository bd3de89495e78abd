"""Completion: the candidates of the bash script, and that the scripts of other shells name the same."""

from __future__ import annotations

import argparse
import shutil
import subprocess
from importlib import import_module
from pathlib import Path

import pytest

from ottla.cli.commands.completion import SHELLS, script
from ottla.cli.main import COMMANDS


@pytest.fixture(scope="module")
def bash() -> str:
    return script("bash")


def completed(bash: str, line: str, directory: Path) -> list[str]:
    """Return bash's candidates for the last word of the line."""
    words = ["ottla", *line.split(" ")]
    quoted = " ".join(f"'{word}'" for word in words)
    program = f"""{bash}
registered=$(complete -p ottla)
function=${{registered#* -F }}
COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}
"${{function% ottla}}" ottla '{words[-1]}' '{words[-2]}'
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=True, cwd=directory)
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("top", {"topic"}),
        ("topic a", {"alter", "add-partitions"}),
        ("topic -b host:1 a", {"alter", "add-partitions"}),
        ("topic alter --se", {"--set"}),
        ("topic list -o ", {"table", "wide", "json"}),
        ("topic list -b ", set()),
        ("group seek --to-", {"--to-group", "--to-file"}),
        ("config get ", {"topic", "broker", "group", "client-metrics", "broker-logger"}),
        ("completion f", {"fish"}),
        ("mirror re", {"resume", "reconnect"}),
        ("mirror create west --sta", {"--start"}),
    ],
)
def test_what_bash_offers(bash: str, line: str, offered: set[str], tmp_path: Path) -> None:
    found = completed(bash, line, tmp_path)
    asked_for_flags = line.rpartition(" ")[2].startswith("-")
    assert {word for word in found if asked_for_flags or not word.startswith("-")} == offered


@pytest.mark.parametrize(
    "line", ["broker -c ", "produce orders ", "spark run ", "mirror create west --source-options-file "]
)
def test_bash_offers_files_where_a_command_takes_one(bash: str, line: str, tmp_path: Path) -> None:
    (tmp_path / "broker.yaml").touch()
    assert "broker.yaml" in completed(bash, line, tmp_path)


@pytest.mark.parametrize("shell", SHELLS)
def test_every_command_and_action_is_named(shell: str) -> None:
    text = script(shell)
    for name, module in COMMANDS.items():
        assert name in text
        command = import_module(f"ottla.cli.{module}").parser(name)
        for action in command._actions:
            if isinstance(action, argparse._SubParsersAction):
                for chosen, parser in action.choices.items():
                    assert chosen in text
                    assert all(flag.lstrip("-") in text for flag in parser._option_string_actions)


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_shells_that_are_here_can_read_their_script(shell: str) -> None:
    found = shutil.which(shell)
    if found is None:
        pytest.skip(f"{shell} is not installed")
    done = subprocess.run([found, "-n"], input=script(shell), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
