"""`ottla spark`: runs a pipeline that a YAML file describes, and prints a template of such a file."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from ..arguments.options import (
    DEFAULT_BOOTSTRAP,
    Actions,
    CommandParser,
    add_bootstrap,
    add_connection,
    add_output,
    carry_out,
    command_parser,
)
from ..connection.precedence import connection_of
from ..failures import CommandFailed
from ..run_client import run_client
from ..terminal.output import print_json
from ..terminal.text import note, say, say_lines

if TYPE_CHECKING:
    from ...spark_integration.pipelines.running import Pipeline, RunningPipeline

TEMPLATE = "flight_delays.yaml"


def parser(name: str) -> CommandParser:
    """Return the parser of `ottla spark`."""
    options = command_parser(
        f"ottla {name}",
        "Run pipelines in Spark: read records of topics, compute results, and write them exactly once.",
        "  ottla spark template > delays.yaml\n  ottla spark run delays.yaml",
    )
    actions = Actions(options, __package__ or "")
    running = actions.add(
        "run",
        "spark:run_pipeline",
        "Run a pipeline until Ctrl-C, from its checkpoint on.",
        "  ottla spark run delays.yaml\n"
        "  ottla spark run delays.yaml --once -o json\n"
        "  ottla spark run delays.yaml --master spark://10.0.0.7:7077 --set spark.executor.memory=2g",
    )
    running.add_argument(
        "file",
        type=Path,
        metavar="FILE",
        help="the pipeline in YAML; 'ottla spark template' prints an example",
    )
    running.add_argument("--master", metavar="URL", help="where it runs: local[*], spark://HOST:PORT, ...")
    running.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="override a setting of the file; may be repeated",
    )
    running.add_argument("--once", action="store_true", help="end when all present records are processed")
    add_bootstrap(running, repeats=True)
    add_output(running, "-o")
    actions.add(
        "template",
        "spark:print_template",
        "Print the pipeline of the demo: a file to copy and edit.",
        "  ottla spark template > delays.yaml",
    )
    taking = actions.add(
        "take-over",
        "spark:take_over_checkpoint",
        "Continue a query with a cluster that was promoted at a cut, or restored from a backup. Batches that the "
        "cluster does not have run again.",
        "  ottla spark take-over /data/checkpoint -b east:9092 --dry-run\n"
        "  ottla spark take-over s3://bucket/checkpoint -b east:9092 --transactional-id delays",
    )
    taking.add_argument("checkpoint", metavar="CHECKPOINT", help="path or URI; its query must not be running")
    taking.add_argument(
        "--transactional-id", metavar="NAME", help="the sink's option 'transactionalId', if it has one"
    )
    taking.add_argument(
        "--batch",
        type=int,
        metavar="NUMBER",
        help="for a query that does not write to this cluster: the last batch that its target has",
    )
    taking.add_argument("--dry-run", action="store_true", help="only report what would be done")
    add_connection(taking)
    add_output(taking, "-o")
    return options


run = carry_out


def print_template(arguments: argparse.Namespace) -> None:
    """Print the template of a pipeline file, unchanged."""
    package = f"{__package__.removesuffix('.cli.commands')}.spark_integration.pipelines"
    say_lines((files(package) / TEMPLATE).read_text(encoding="utf-8"))


def take_over_checkpoint(arguments: argparse.Namespace) -> None:
    """Remove the batches from a Spark query's checkpoint that the new cluster does not have, so that they run again."""
    from ...spark_integration.checkpoints import take_over
    from ...spark_integration.source.position import WrongCheckpoint

    try:
        taken = run_client(
            asyncio.to_thread(
                take_over,
                arguments.checkpoint,
                connection_of(arguments),
                transactional_id=arguments.transactional_id,
                batch=arguments.batch,
                only_look=arguments.dry_run,
            )
        )
    except WrongCheckpoint as error:
        raise CommandFailed(f"{arguments.checkpoint}: {error}") from None
    if arguments.output == "json":
        print_json(
            {
                "query": taken.query,
                "batch": taken.batch,
                "removed": list(taken.removed),
                "replayed": taken.replayed,
                "cluster": taken.cluster,
                "done": not arguments.dry_run,
            }
        )
        return
    word = "would be" if arguments.dry_run else "were"
    say(f"query {taken.query} continues after batch {taken.batch} in cluster {taken.cluster}")
    say(f"{len(taken.removed)} later batches {word} removed from the checkpoint, and run again")
    if taken.replayed:
        say(f"batch {taken.batch} runs again with the same records; sinks that have it skip it")


def run_pipeline(arguments: argparse.Namespace) -> None:
    """Start the Spark pipeline that a YAML file describes, and print a line for each micro-batch."""
    from ...spark_integration.requirements import need_pyspark

    try:
        need_pyspark()
    except ImportError as error:
        raise CommandFailed(str(error)) from None
    from ...spark_integration.pipelines.java import NoJava
    from ...spark_integration.pipelines.running import PipelineFailed
    from ...spark_integration.pipelines.session import open_session
    from ...spark_integration.pipelines.settings import WrongPipeline

    pipeline = _described(arguments)
    settings = pipeline.settings
    note(f"{settings.name}: starting Spark on {settings.master}")
    try:
        spark = open_session(settings.name, settings.master, settings.spark)
    except NoJava as error:
        raise CommandFailed(str(error)) from None
    try:
        running = pipeline.start(spark)
        note(f"{settings.name}: on {settings.master}, checkpoint {settings.checkpoint}")
        _follow(running, as_json=arguments.output == "json")
    except WrongPipeline as error:
        raise CommandFailed(f"{arguments.file}: {error}") from None
    except PipelineFailed as error:
        raise CommandFailed(str(error)) from None
    finally:
        spark.stop()


def _described(arguments: argparse.Namespace) -> Pipeline:
    from ...spark_integration.pipelines.running import Pipeline
    from ...spark_integration.pipelines.settings import AVAILABLE_NOW, WrongPipeline, read_pipeline
    from ..nodes.settings import parse_overrides, read_settings

    given = {**read_settings(arguments.file), **parse_overrides(arguments.set)}
    if arguments.master is not None:
        given["master"] = arguments.master
    if arguments.once:
        given["trigger"] = AVAILABLE_NOW
    if hasattr(arguments, "bootstrap"):
        given["bootstrap"] = arguments.bootstrap
    folder = arguments.file.absolute().parent
    try:
        settings = read_pipeline(given, folder, os.environ.get("OTTLA_BOOTSTRAP") or DEFAULT_BOOTSTRAP)
        return Pipeline(settings, folder)
    except WrongPipeline as error:
        raise CommandFailed(f"{arguments.file}: {error}") from None


def _follow(running: RunningPipeline, *, as_json: bool) -> None:
    """Print the progress of a running pipeline until it ends.

    The first Ctrl-C or SIGTERM lets the running micro-batch finish; the second interrupts it.
    """

    def stop(number: int, frame: object) -> None:
        running.ask_to_stop()
        signal.signal(number, signal.default_int_handler)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    for progress in running.progress():
        say(progress.to_json() if as_json else progress, flush=True)
