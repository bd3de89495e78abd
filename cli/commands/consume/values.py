"""The large values that are objects of a store, for `ottla consume`: fetched, or printed as references."""

from __future__ import annotations

import argparse
from typing import Any

from ....client.failures import ObjectStoreFailed, UnreadableValue
from ...arguments.options import CommandParser
from ...failures import CommandFailed, UsageError


def add_values(options: CommandParser) -> None:
    """Add the options that say where large values are."""
    values = options.add_mutually_exclusive_group()
    values.add_argument(
        "--store",
        metavar="URL",
        help="object store of large values, the large_message_store of the producers: file:///FOLDER, "
        "s3://BUCKET/PREFIX, gs:// or az://",
    )
    values.add_argument(
        "--references",
        action="store_true",
        help="print references to values in an object store, and segments of large values, as they are in the log",
    )


def values_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the options of the consumer for large values. Raises UsageError and CommandFailed for the store."""
    if arguments.references:
        return {"large_messages": False}
    if arguments.store is None:
        return {}
    from ....client.objects.opening import open_store

    try:
        open_store(arguments.store, 1)
    except ValueError as error:
        raise UsageError(f"--store: {error}") from None
    except (ModuleNotFoundError, ObjectStoreFailed) as error:
        raise CommandFailed(str(error)) from None
    return {"large_message_store": arguments.store}


def lacks_store(error: UnreadableValue) -> str:
    """Return the text of an error about a value in a store that the command does not know."""
    topic, index = error.partition
    return (
        f"{topic}-{index}: the value of the record at offset {error.offset} is in an object store: --store URL fetches "
        "it, and --references prints the reference"
    )
