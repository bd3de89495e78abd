"""The areas of the console, one module each.

A module has a constant AREA (`ottla.console.area.Area`) and is found without a list. The functions that turn the
cluster's answers into models are pure, and are tested without a cluster.
"""

from __future__ import annotations

import pkgutil
from importlib import import_module

from ..area import Area


def all_areas() -> list[Area]:
    """Return the constant AREA of each module in this package: all areas of the console."""
    modules = [import_module(f".{module.name}", __package__) for module in pkgutil.iter_modules(__path__)]
    return [module.AREA for module in modules]
