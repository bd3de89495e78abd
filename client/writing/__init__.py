"""The common part of producers and of writers that join another producer's transaction.

`RecordWriter` is the outer class. `SendSteps` has the steps of a `send`, which the facade of `sync` uses, too. The
sending itself is in `producing`; columns, large messages and the audit are combined with it here.
"""
