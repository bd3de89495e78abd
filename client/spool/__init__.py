"""The spool: records that wait in a folder for a cluster that may be unreachable, and are delivered in order, each
once.

A producer with a `spool_dir` uses `Spool`. `frames` is the format of the files, `spool_log` has the files themselves,
`folder` the other state in the folder, `delivery` the loop that sends, and `position` the delivered position that the
cluster stores. The rule: the cluster's position is authoritative, since it is committed in the same transaction as the
records. The folder's position is a lower bound, for the case that the cluster has deleted its own.
"""
