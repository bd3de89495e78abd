"""The settings in a pipeline's file, read and checked once. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ...protocol.nearest import nearest
from ..options import BOOTSTRAP, WrongOption
from ..outside.numbering import QUERY_NAME
from ..outside.parquet_sink import COMPRESSIONS, parquet_sink
from ..sink.options import TOPIC, of_stream
from ..source.settings import read_settings

AVAILABLE_NOW = "available-now"
PLAIN = ("name", "bootstrap", "checkpoint", "trigger", "master")
SECTIONS = ("source", "steps", "topic", "parquet", "spark")
PARQUET = ("path", "partition_by", "compression")
SAID_BY_PIPELINES = {
    "transactionalId": "the query names its transactions itself",
    "appVersion": "batches have their numbers as versions",
    "delivery": "a pipeline delivers exactly once",
}
"""Sink options that a pipeline sets itself, with the reason why a file must not."""
_INTERVAL = re.compile(r"\d+ (millisecond|second|minute|hour|day)s?")


class WrongPipeline(ValueError):
    """An invalid description of a pipeline. The message names the key and the allowed values."""


@dataclass(frozen=True, slots=True)
class TopicSink:
    """A topic that receives results. `key`: the columns that form the records' keys."""

    name: str
    key: tuple[str, ...]
    options: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ParquetTable:
    """A Parquet table that receives results."""

    path: str
    partition_by: tuple[str, ...]
    compression: str


@dataclass(frozen=True, slots=True)
class PipelineSettings:
    """All settings of a pipeline, with at least one of the two sinks.

    `interval` is None for a pipeline that ends after it has read the records available at its start.
    """

    name: str
    bootstrap: str
    source: Mapping[str, str]
    steps: str
    parameters: Mapping[str, str]
    topic: TopicSink | None
    parquet: ParquetTable | None
    checkpoint: str
    interval: str | None
    master: str
    spark: Mapping[str, str]

    @property
    def source_options(self) -> dict[str, str]:
        """Options of `format("ottla")` for reading."""
        return {**self.source, BOOTSTRAP: self.bootstrap}


def read_pipeline(given: Mapping[str, str], folder: Path, bootstrap: str) -> PipelineSettings:
    """Return the pipeline described by these keys. Nested keys are joined with dots.

    `folder`: the base of relative paths. `bootstrap`: the brokers to use if the file names none. Raises WrongPipeline.
    """
    plain, sections = _sorted_out(given)
    name = plain.get("name", "")
    if not QUERY_NAME.fullmatch(name):
        raise WrongPipeline(f"name is 1 to 100 letters, digits, dots, dashes and underscores, not {name!r}")
    parameters = dict(sections["steps"])
    settings = PipelineSettings(
        name=name,
        bootstrap=plain.get("bootstrap") or bootstrap,
        source=sections["source"],
        steps=_needed("steps.use", parameters.pop("use", "")),
        parameters=parameters,
        topic=_topic(sections["topic"]),
        parquet=_parquet(sections["parquet"], folder),
        checkpoint=_path(folder, _needed("checkpoint", plain.get("checkpoint", ""))),
        interval=_interval(plain.get("trigger", "0 seconds")),
        master=plain.get("master") or "local[*]",
        spark={f"spark.{key.removeprefix('spark.')}": value for key, value in sections["spark"].items()},
    )
    _check_options(settings)
    return settings


def _sorted_out(given: Mapping[str, str]) -> tuple[dict[str, str], dict[str, dict[str, str]]]:
    plain: dict[str, str] = {}
    sections: dict[str, dict[str, str]] = {section: {} for section in SECTIONS}
    for key, value in given.items():
        section, dot, rest = key.partition(".")
        if key in PLAIN:
            plain[key] = value
        elif section in SECTIONS and dot:
            sections[section][rest] = value
        elif section in SECTIONS:
            raise WrongPipeline(f"{key} is a section: what belongs to it stands below, indented")
        else:
            raise WrongPipeline(_unknown(key, section, (*PLAIN, *SECTIONS)))
    return plain, sections


def _topic(section: Mapping[str, str]) -> TopicSink | None:
    if not section:
        return None
    options = dict(section)
    name = _needed("topic.name", options.pop("name", ""))
    key = _names(options.pop("key", ""))
    for option in options:
        if (why := SAID_BY_PIPELINES.get(option)) is not None:
            raise WrongPipeline(f"topic.{option} cannot be given: {why}")
    return TopicSink(name, key, options)


def _parquet(section: Mapping[str, str], folder: Path) -> ParquetTable | None:
    if not section:
        return None
    for key in section:
        if key not in PARQUET:
            raise WrongPipeline(_unknown(f"parquet.{key}", key, PARQUET))
    path = _needed("parquet.path", section.get("path", ""))
    compression = section.get("compression", "snappy")
    if compression not in COMPRESSIONS:
        raise WrongPipeline(f"parquet.compression is one of {', '.join(COMPRESSIONS)}, not {compression!r}")
    table = ParquetTable(_path(folder, path), _names(section.get("partition_by", "")), compression)
    try:
        parquet_sink(table.path, partition_by=table.partition_by)
    except ValueError as error:
        raise WrongPipeline(f"parquet: {error}") from None
    return table


def _interval(text: str) -> str | None:
    if text == AVAILABLE_NOW:
        return None
    if not _INTERVAL.fullmatch(text):
        raise WrongPipeline(f"trigger is a time like '10 seconds', or {AVAILABLE_NOW}, not {text!r}")
    return text


def _check_options(settings: PipelineSettings) -> None:
    """Check the options of the pipeline's Ottla source and sink now, since Spark passes them on only when the query
    runs."""
    if settings.topic is None and settings.parquet is None:
        raise WrongPipeline("results go nowhere: give topic.name, parquet.path, or both")
    try:
        read_settings(settings.source_options, streaming=True)
    except WrongOption as error:
        raise WrongPipeline(f"source: {error}") from None
    if settings.topic is not None:
        options = {**settings.topic.options, BOOTSTRAP: settings.bootstrap, TOPIC: settings.topic.name}
        try:
            of_stream(options)
        except WrongOption as error:
            raise WrongPipeline(f"topic: {error}") from None


def _needed(key: str, value: str) -> str:
    if not value:
        raise WrongPipeline(f"{key} is missing")
    return value


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _path(folder: Path, text: str) -> str:
    return text if "://" in text or text.startswith("file:") else str((folder / text).absolute())


def _unknown(key: str, name: str, known: Iterable[str]) -> str:
    meant = nearest(name, known)
    hint = f"did you mean {meant!r}?" if meant else f"there are {', '.join(known)}"
    return f"there is no key {key!r}; {hint}"
