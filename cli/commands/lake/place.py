"""The place of the lake that a command works on, and the errors that all commands of the lake share."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ....lake.failures import TableRefused
from ....lake.requirements import require_extra
from ...failures import CommandFailed, UsageError

if TYPE_CHECKING:
    from ....lake.iceberg.catalogs import LakePlace


def lake_of(arguments: argparse.Namespace, *, with_catalog: bool = False) -> LakePlace:
    """Return the lake that `--lake` or `--catalog` names. Other modules of the lake may be imported afterwards.

    `with_catalog` also checks the packages for the catalog over HTTP. Raises CommandFailed if the lake's packages are
    missing, and UsageError.
    """
    try:
        require_extra(with_catalog=with_catalog)
    except ModuleNotFoundError as error:
        raise CommandFailed(str(error)) from None
    from ....lake.iceberg.catalogs import lake_place

    try:
        return lake_place(arguments.lake, arguments.catalog)
    except ValueError as error:
        raise UsageError(f"lake {arguments.action}: {error}") from None


@contextmanager
def refusals() -> Iterator[None]:
    """End the command with the reason if a table, or the lake, is refused."""
    try:
        yield
    except TableRefused as error:
        raise CommandFailed(str(error)) from None
