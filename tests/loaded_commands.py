"""Imports of all modules that the command line may load, for a process from which commands are forked:
`tests/commands.py`.
"""

import pkgutil
from importlib import import_module

from ottla.cli import commands
from ottla.cli.local_cluster import forked_node

LOADED_LATE = ("ottla.client.admin", "ottla.cli.local_cluster.combined", "ottla.cli.local_cluster.up")

for module in pkgutil.walk_packages(commands.__path__, f"{commands.__name__}."):
    import_module(module.name)
for name in LOADED_LATE:
    import_module(name)
for role in forked_node.LOADED_BY:
    forked_node.load(role)
