"""The names of `ottla.spark_integration` exist, and are loaded on first use."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import ottla.spark_integration as package

SOURCE = Path(package.__file__)


def test_type_checkers_see_what_there_is() -> None:
    block = next(
        statement
        for statement in ast.parse(SOURCE.read_text()).body
        if isinstance(statement, ast.If) and ast.unparse(statement.test) == "TYPE_CHECKING"
    )
    shown = {
        alias.name: statement.module
        for statement in block.body
        if isinstance(statement, ast.ImportFrom) and statement.level == 1
        for alias in statement.names
    }
    assert sorted({*shown, "register"}) == sorted(package.__all__)
    assert shown == {name: module for module, names in package._HOMES.items() for name in names}
    for name in package.__all__:
        assert name in dir(package)
        assert callable(getattr(package, name))


def test_an_unknown_name_is_told_with_the_nearest_one() -> None:
    with pytest.raises(AttributeError, match="no 'sql_sinc'; did you mean 'sql_sink'"):
        _ = package.sql_sinc


def test_sinks_can_be_made_without_pyspark_and_without_drivers() -> None:
    script = (
        "import sys; sys.modules['pyspark'] = sys.modules['psycopg'] = sys.modules['pyarrow'] = None\n"
        "from ottla.spark_integration import SqlProgress, exactly_once, parquet_sink, sql_sink\n"
        "exactly_once(print, SqlProgress(print)), sql_sink(print, 'orders'), parquet_sink('orders')"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
