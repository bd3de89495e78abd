"""The build that `ottla version`, the log, the metrics and `config check` report: versions, and the codec in use."""

from __future__ import annotations

import ast
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.cli.build import EXTENSIONS, IN_C, IN_PYTHON, MIXED, Build, codec_of, this_build
from ottla.cli.main import main
from ottla.cli.nodes.logs import JsonFormatter, KeyValueFormatter
from ottla.cli.nodes.node import run_nodes
from ottla.protocol.records.record import CODEC

ROOT = Path(__file__).resolve().parents[2]


def test_all_extensions_of_the_setup_are_known() -> None:
    for statement in ast.parse((ROOT / "setup.py").read_text()).body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "SOURCES":
            assert ast.literal_eval(statement.value).keys() == {f"ottla.{name}" for name in EXTENSIONS}
            return
    raise AssertionError("setup.py has no SOURCES")


def test_the_codec_is_the_one_in_use() -> None:
    assert this_build().codec in (MIXED, CODEC)


@pytest.mark.parametrize(
    ("missing", "is_switched_off", "codec", "slower"),
    [
        ([], False, IN_C, ""),
        ([], True, IN_PYTHON, "OTTLA_PURE_PYTHON=1"),
        (EXTENSIONS, True, IN_PYTHON, "OTTLA_PURE_PYTHON=1"),
        (EXTENSIONS, False, IN_PYTHON, "no C compiler or no Python headers at installation"),
        (
            ["client.producing._appending"],
            False,
            MIXED,
            "not built at installation: client.producing._appending",
        ),
    ],
)
def test_the_reason_of_a_slower_codec_is_named(
    missing: list[str], is_switched_off: bool, codec: str, slower: str
) -> None:
    assert codec_of(missing, is_switched_off=is_switched_off) == (codec, slower)


def test_the_text_is_one_line() -> None:
    assert str(Build("0.1.0", "3.12.1", IN_C, "")) == "ottla 0.1.0, Python 3.12.1, codec: C"
    slower = Build("0.1.0", "3.12.1", IN_PYTHON, "OTTLA_PURE_PYTHON=1")
    assert str(slower) == "ottla 0.1.0, Python 3.12.1, codec: python (slower: OTTLA_PURE_PYTHON=1)"


def test_the_command_says_that_the_extensions_are_off() -> None:
    told = subprocess.check_output(
        [sys.executable, "-m", "ottla", "version"],
        env=os.environ | {"OTTLA_PURE_PYTHON": "1"},
        text=True,
        cwd=ROOT,
    )
    assert told.endswith(", codec: python (slower: OTTLA_PURE_PYTHON=1)\n")


def test_the_command_loads_no_extension(capsys: pytest.CaptureFixture[str]) -> None:
    program = "from ottla.cli.main import main; main(['version']); import sys; print([*sys.modules])"
    told = subprocess.check_output([sys.executable, "-c", program], text=True, cwd=ROOT)
    assert "_record_codec" not in told
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"{this_build()}\n"


class Failing:
    async def start(self) -> None:
        raise OSError("no disk")

    async def stop(self) -> None:
        pass


def test_a_node_logs_its_build_when_it_starts(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "ottla"), pytest.raises(OSError, match="no disk"):
        run_nodes([Failing()])
    (record,) = [record for record in caplog.records if record.getMessage() == "starting"]
    build = this_build()
    assert record.levelno == (logging.WARNING if build.slower else logging.INFO)
    line = KeyValueFormatter().format(record)
    assert f" msg=starting version={build.version} python={build.python} codec={build.codec}" in line
    assert f'"codec": "{build.codec}"' in JsonFormatter().format(record)
