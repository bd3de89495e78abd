"""The options of a consumer and a producer that work together: which of them go to whom."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from ..consumer import Consumer
from ..consuming.options import ReadingOptions
from ..writing.record_writer import WriterOptions


class ExactlyOnceOptions(WriterOptions, ReadingOptions, total=False):
    """Options of `ottla.Consumer` besides those of `ottla.Producer`; what both have goes to both."""


def of_consumer(options: Mapping[str, Any]) -> dict[str, Any]:
    """Those that a consumer takes. The audit's tier is the producer's: what is read is another one."""
    known = inspect.signature(Consumer.__init__).parameters.keys() - {"audit_tier"}
    return {name: value for name, value in options.items() if name in known}


def of_producer(options: Mapping[str, Any]) -> dict[str, Any]:
    """Those that a producer takes."""
    return {name: value for name, value in options.items() if name in WriterOptions.__annotations__}
