"""The page of `format("ottla")`: options of the source and the sink, and the client's options that both take."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from ottla.client.consuming.options import CONSUMER_OPTIONS
from ottla.client.declared_options import DeclaredOption
from ottla.client.producing.options import PRODUCER_OPTIONS
from ottla.spark_integration import options as shared
from ottla.spark_integration.sink import options as sink
from ottla.spark_integration.source import option_table, settings
from ottla.spark_integration.source.cluster_view import CLIENT_ID
from ottla.spark_integration.source.slice_rows import FETCH_BYTES
from tests.reference.markdown import code, plain, table

COLUMNS = ("option", "queries", "type", "default", "unit", "meaning")
TYPES = {int: "whole number", bool: "true or false", str: "text"}
CLIENT_COLUMNS = ("option", "type", "default", "unit", "meaning")
SOURCE_DEFAULTS = {"client_id": CLIENT_ID, "max_partition_fetch_bytes": FETCH_BYTES, "isolation_level": None}
SERVERS = (
    code(shared.BOOTSTRAP),
    "HOST:PORT,HOST:PORT",
    "required",
    "",
    "Brokers to connect to first. They name all other brokers.",
)


def text() -> str:
    """Return the body of the page."""
    return "\n".join(_parts())


def _parts() -> Iterator[str]:
    yield "## Options of the source\n"
    yield table(COLUMNS, map(_row, option_table.OPTIONS))
    yield "### Options of the source's client\n"
    yield _client_table(CONSUMER_OPTIONS, settings.CLIENT_OPTIONS, SOURCE_DEFAULTS)
    yield "## Options of the sink\n"
    yield table(COLUMNS, map(_row, sink.OPTIONS))
    yield "### Options of the sink's client\n"
    yield _client_table(PRODUCER_OPTIONS, sink.CLIENT_OPTIONS, {})


def _row(row: shared.OptionRow) -> tuple[str, ...]:
    default = code(row.default)
    return (code(row.name), row.queries.value, row.type, default, row.unit, plain(row.meaning))


def _client_table(
    options: Iterable[DeclaredOption], also: Mapping[str, type], defaults: Mapping[str, object]
) -> str:
    """Return the table of the client's options that the source or the sink takes, by their names in Spark."""
    known = {**shared.CONNECTION, **also}
    rows = (
        (
            code(shared.PREFIX + option.name.replace("_", ".")),
            TYPES[known[option.name]],
            code(_default(defaults.get(option.name, option.default))),
            option.unit,
            plain(option.meaning),
        )
        for option in options
        if option.name in known and option.name != "bootstrap_servers"
    )
    return table(CLIENT_COLUMNS, [SERVERS, *rows])


def _default(value: object) -> str:
    """Return the text by which Spark's options give a value."""
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
