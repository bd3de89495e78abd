"""A driver in a virtual environment that says nothing of PYSPARK_PYTHON: its workers run the driver's Python."""

from __future__ import annotations

import sys

import pytest
from pyspark.sql import SparkSession

from ottla import spark_integration
from ottla.spark_integration.workers import choose_python

from .reading import Topics

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(170)]
SPARKS_CHOICE = "python-without-pyarrow"


@pytest.fixture
def undecided(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> SparkSession:
    """Start the session like Spark without PYSPARK_PYTHON: workers run the interpreter that is found by a name."""
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", SPARKS_CHOICE)
    return spark


def test_a_local_session_reads_with_the_drivers_python(undecided: SparkSession, topics: Topics) -> None:
    spark_integration.register(undecided)
    assert undecided.sparkContext.pythonExec == sys.executable
    topic = topics.create("workers-python")
    topics.write(topic, "x")
    assert topics.batch(subscribe=topic).count() == 1


def test_what_the_user_has_set_stays(undecided: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", SPARKS_CHOICE)
    choose_python(undecided)
    assert undecided.sparkContext.pythonExec == SPARKS_CHOICE


def test_for_workers_elsewhere_a_warning_says_what_to_set(
    undecided: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(undecided.sparkContext, "master", "spark://127.0.0.1:7077")
    with pytest.warns(UserWarning, match="set PYSPARK_PYTHON"):
        choose_python(undecided)
    assert undecided.sparkContext.pythonExec == SPARKS_CHOICE
