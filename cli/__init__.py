"""The `ottla` command line: nodes, local clusters and administration from a terminal.

`main` finds the command and imports only the module of that command, so that a broker starts without the library for
tables. `nodes` and `local_cluster` run processes; `arguments`, `connection` and `terminal` hold the code that commands
share; `commands` holds all other commands. Modules of this package only print and ask for confirmation. Every change of
a cluster goes through `client` or a node class.
"""
