"""The `ottla` command: nodes, local clusters, daily work from a terminal.

`main` finds the command and imports only its module, so that a broker starts without the library for tables. The
modules here run nodes and local clusters (`node`, `up`, `supervisor`, `layout`) or are shared by commands
(`options`, `selection`, `asking`, `output`, `confirmation`, `record_format`); `commands` has the rest.
One rule: a module here shows and asks. Every change of a cluster goes through `client` or a node class.
"""
