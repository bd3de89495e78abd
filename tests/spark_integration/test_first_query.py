"""The first program of docs/SPARK.md, run with the commands before it; the test gives its own address and folder."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ottla.testing.local_cluster import LocalCluster
from tests.commands import run_ottla

PAGE = Path(__file__).resolve().parents[2] / "docs" / "SPARK.md"


def test_the_first_program_of_the_page_works(
    spark: SparkSession,
    spark_cluster: LocalCluster,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    commands, program = re.findall(r"^```(?:python)?\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)[
        1:3
    ]
    assert "SparkSession.builder" in program
    address = spark_cluster.bootstrap_servers
    for command in commands.splitlines():
        done = run_ottla(*command.split()[1:], environ=os.environ | {"OTTLA_BOOTSTRAP": address})
        assert done.returncode == 0, done.stderr
    # Spark's Java, which the tests share, has another working folder than the test.
    here = program.replace("localhost:9092", address).replace(
        '"checkpoint"', repr(str(tmp_path / "checkpoint"))
    )
    exec(here, {})
    printed = capsys.readouterr().out
    assert re.search(r"\| *ann\| *34\|", printed)
    assert re.search(r"\| *bob\| *60\|", printed)
