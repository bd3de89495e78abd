"""foreachBatch made exactly-once: to a cluster, to databases and to files."""
