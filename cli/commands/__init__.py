"""The commands that talk to a cluster or to files, a module or a package for each; see `main.COMMANDS`.

A package holds the parser in its `__init__`, and in its modules what the actions do, imported when one is
carried out: help and completion need no client.
"""
