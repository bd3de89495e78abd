"""The path of records to the log: batches, partitions, the requests to leaders and their answers.

`RecordWriter` is the outer class, the common part of producers and of writers that join another producer's transaction.
`SendSteps` has the steps of a `send`, which the facade of `sync` uses, too. They combine the sending itself with
columns, large messages and the audit.
"""
