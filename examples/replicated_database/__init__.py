"""A database whose partitions are replicated through the partitions of a topic. README.md tells where to begin.

The one rule: the state of a node is what the log says. Nobody changes a row but by applying what was committed there.
"""
