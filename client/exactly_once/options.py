"""The options of a consumer and a producer that work together, and their division between the two."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..consuming.options import CONSUMER_GROUPS, ReadingOptions
from ..options import names_of
from ..producing.options import WRITER_GROUPS, WriterOptions


class ExactlyOnceOptions(WriterOptions, ReadingOptions, total=False):
    """Options of `ottla.Consumer` besides those of `ottla.Producer`. Options that both have are passed to both."""


def of_consumer(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of the consumer. `audit_tier` is the producer's alone, since the records read belong to
    another tier."""
    known = {*names_of(*CONSUMER_GROUPS)} - {"audit_tier"}
    return {name: value for name, value in options.items() if name in known}


def of_producer(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that belong to the producer, from those of a processor."""
    known = names_of(*WRITER_GROUPS)
    return {name: value for name, value in options.items() if name in known}
