"""The commands that talk to a cluster or read files; each is a module or a package listed in `main.COMMANDS`.

A package holds the parser in its `__init__` and the actions in its modules. A module is imported only when one of its
actions is carried out, so help and completion need no client.
"""
