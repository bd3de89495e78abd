"""All that the command line may load, for a process from which commands are forked: `tests/commands.py`."""

import pkgutil
from importlib import import_module

from ottla.cli import commands

for one in pkgutil.walk_packages(commands.__path__, f"{commands.__name__}."):
    import_module(one.name)
