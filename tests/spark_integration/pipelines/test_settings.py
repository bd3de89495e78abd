"""The settings in a pipeline's file, and the messages about mistakes in them. No Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.cli.main import main
from ottla.cli.nodes.settings import parse_yaml
from ottla.spark_integration.pipelines.settings import WrongPipeline, read_pipeline
from ottla.spark_integration.pipelines.steps import find_steps, parameters_of

HERE = Path("/srv/pipelines")
SMALL = {"name": "p", "source.subscribe": "flights", "steps.use": "flight_delays", "topic.name": "delays"}
SMALL |= {"checkpoint": "here"}


def template(capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    assert main(["spark", "template"]) == 0
    return parse_yaml(capsys.readouterr().out, HERE / "template.yaml")


def test_the_template_is_a_pipeline(capsys: pytest.CaptureFixture[str]) -> None:
    found = read_pipeline(template(capsys), HERE, "broker:9092")
    assert found.source_options["kafka.bootstrap.servers"] == "broker:9092"
    assert found.checkpoint == "/srv/pipelines/checkpoint"
    assert found.topic is not None
    assert found.topic.key == ("carrier",)
    assert found.parquet is not None
    assert found.parquet.path == "/srv/pipelines/delays"
    assert found.spark == {"spark.sql.shuffle.partitions": "2", "spark.ui.enabled": "false"}
    assert found.interval == "0 seconds"
    steps = find_steps(found.steps, HERE)
    assert parameters_of(steps, found.parameters) == {
        "format": "csv",
        "window": "1 day",
        "watermark": "30 days",
    }


def test_defaults_and_other_spellings() -> None:
    given = SMALL | {"trigger": "available-now", "spark.spark.executor.memory": "1g", "bootstrap": "own:1"}
    found = read_pipeline(given | {"topic.kafka.linger.ms": "3", "checkpoint": "hdfs://n/c"}, HERE, "b:1")
    assert found.interval is None
    assert found.spark == {"spark.executor.memory": "1g"}
    assert (found.master, found.bootstrap, found.checkpoint) == ("local[*]", "own:1", "hdfs://n/c")
    assert found.topic is not None
    assert found.topic.options == {"kafka.linger.ms": "3"}
    assert found.parquet is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"nam": "p"}, "there is no key 'nam'; did you mean 'name'?"),
        ({"name": "a b"}, "name is 1 to 100 letters, digits, dots, dashes and underscores, not 'a b'"),
        ({"sauce.subscribe": "x"}, "there is no key 'sauce.subscribe'; did you mean 'source'?"),
        ({"source": "x"}, "source is a section: what belongs to it stands below, indented"),
        ({"source.subscibe": "x"}, "source: .*'subscibe'; did you mean 'subscribe'?"),
        ({"source.assign": "x"}, "source: what to read is named by one of the options"),
        ({"source.maxOffsetsPerTrigger": "0"}, "source: .*maxOffsetsPerTrigger"),
        ({"steps.use": ""}, "steps.use is missing"),
        ({"checkpoint": ""}, "checkpoint is missing"),
        ({"topic.key": "k", "topic.name": ""}, "topic.name is missing"),
        (
            {"topic.delivery": "at-least-once"},
            "topic.delivery cannot be given: a pipeline delivers exactly once",
        ),
        ({"topic.transactionTimeout": "1"}, "topic: .*did you mean 'transactionTimeoutMs'?"),
        ({"parquet.pat": "x"}, "there is no key 'parquet.pat'; did you mean 'path'?"),
        ({"parquet.compression": "zstd"}, "parquet.path is missing"),
        ({"parquet.path": "s3://b/t"}, "parquet: 's3://b/t' has the scheme 's3'"),
        (
            {"parquet.path": "t", "parquet.compression": "rar"},
            "parquet.compression is one of snappy, .*'rar'",
        ),
        ({"trigger": "often"}, "trigger is a time like '10 seconds', or available-now, not 'often'"),
    ],
)
def test_mistakes_are_named(change: dict[str, str], message: str) -> None:
    with pytest.raises(WrongPipeline, match=message.replace("?", r"\?")):
        read_pipeline(SMALL | change, HERE, "b:1")


def test_results_have_to_go_somewhere() -> None:
    with pytest.raises(WrongPipeline, match=r"results go nowhere: give topic.name, parquet.path, or both"):
        read_pipeline({key: value for key, value in SMALL.items() if key != "topic.name"}, HERE, "b:1")


OWN_STEPS = """
from __future__ import annotations
from typing import TYPE_CHECKING, Literal
if TYPE_CHECKING:
    from pyspark.sql import DataFrame

def counted(records: DataFrame, *, top: int, by: Literal["day", "hour"] = "day", all: bool = False) -> DataFrame:
    return records

def odd(records: DataFrame, *, share: float = 0.5) -> DataFrame:
    return records
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "own.py").write_text(OWN_STEPS)
    (tmp_path / "broken.py").write_text("1 / 0")
    return tmp_path


def test_own_steps_and_their_parameters(folder: Path) -> None:
    steps = find_steps("own.py:counted", folder)
    assert parameters_of(steps, {"top": "3", "by": "hour", "all": "true"}) == {
        "top": 3,
        "by": "hour",
        "all": True,
    }


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("flight_delay", {}, "steps.use has no 'flight_delay'; did you mean 'flight_delays'?"),
        ("own.py:cuonted", {}, "own.py has no function 'cuonted'; it has counted, odd"),
        ("none.py:counted", {}, "cannot read .*none.py: No such file"),
        ("broken.py:counted", {}, "broken.py fails when it is imported: ZeroDivisionError"),
        ("own.py:counted", {}, "steps.top is missing"),
        ("own.py:counted", {"top": "many"}, "'steps.top' is a whole number from 0 on, not 'many'"),
        ("own.py:counted", {"top": "1", "by": "week"}, "steps.by is one of day, hour, not 'week'"),
        ("own.py:counted", {"top": "1", "tap": "1"}, "there is no key 'steps.tap'; did you mean 'top'?"),
        ("own.py:odd", {"share": "1"}, "steps.share: a parameter is a str, int, bool or Literal, not"),
        ("flight_delays", {"format": "xml"}, "steps.format is one of csv, json, not 'xml'"),
    ],
)
def test_mistakes_in_steps_are_named(folder: Path, name: str, given: dict[str, str], message: str) -> None:
    with pytest.raises(WrongPipeline, match=message.replace("?", r"\?")):
        parameters_of(find_steps(name, folder), given)


def test_the_command_names_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "p.yaml"
    file.write_text("name: p\ncheckpiont: c\n")
    assert main(["spark", "run", str(file)]) == 1
    assert capsys.readouterr().err == (
        f"ottla spark: {file}: there is no key 'checkpiont'; did you mean 'checkpoint'?\n"
    )
