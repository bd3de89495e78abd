"""Taking records: what producers, and those who write in another producer's transaction, have in common.

`RecordWriter` is the shell; `SendSteps` are the steps of one `send`, which the facade of `sync` takes too. The sending
itself stands below, in `producing`; columns, large messages and the audit are put together with it here.
"""
