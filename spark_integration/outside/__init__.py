"""What makes `foreachBatch` exactly-once for systems outside of the cluster: databases and tables of files.

Spark calls a function of `foreachBatch` at least once per batch: after a crash again, with the same number and the same
rows. `exactly_once` runs a function within a database transaction that also keeps the number; `sql_sink` writes to a
table, in parallel where the database allows it; `parquet_sink` writes files of which a log of commits says which count.

`numbering` decides, purely, whether a batch is to be written; `tasks` brings home what the accepted attempts did.

One rule: data and number count by one and the same commit. A batch whose number is not above the kept one is skipped,
and a run that was replaced by another fails instead of writing.
"""
