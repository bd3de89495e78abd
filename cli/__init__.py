"""The ``ottla`` command: nodes, local clusters, topics, producing and consuming from a terminal.

``main`` finds the command and imports only its module, so that a broker starts without what tables need.
One rule: a module here shows and asks; whatever it does to a cluster goes through ``client`` or a node class.
"""
