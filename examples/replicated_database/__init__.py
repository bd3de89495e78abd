"""A database whose partitions are replicated through the partitions of a topic. Begin with README.md.

The one rule: the log determines the state of a node. Rows only change when a node applies committed changes from the
log.
"""
