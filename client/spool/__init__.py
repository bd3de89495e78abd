"""The spool: records that wait in a folder for a cluster that may be away, and are delivered in order, each once.

`Spool` is what a producer with a `spool_dir` uses. `frames` is the format of the files, `spool_log` the files
themselves, `folder` what else the folder keeps, `delivery` the loop that sends, `position` what the cluster knows.
One rule: how far the spool is delivered is what the cluster says, which keeps that in the same transaction as the
records; what the folder says is a lower bound, for when the cluster has forgotten.
"""
