"""Exactly-once `foreachBatch` functions for systems outside of the cluster: databases and tables of files.

Spark calls a function of `foreachBatch` at least once per batch: after a crash it calls again with the same number and
the same rows. `exactly_once` runs a function within a database transaction that also stores the number. `sql_sink`
writes to a table, in parallel if the database allows it. `parquet_sink` writes files; a log of commits lists the files
that count.

`numbering` decides, without I/O, if a batch has to be written. `tasks` runs work on the executors and returns the
results of the accepted attempts.

One rule: data and batch number are committed together. A batch is skipped if its number is not above the stored number,
and a run that was replaced by another fails instead of writing.
"""
