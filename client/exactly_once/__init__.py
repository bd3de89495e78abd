"""Consume, transform, produce: what is read, what is made of it, and where to go on are one transaction.

`processor` reads and offers batches. `work` has the transaction of one batch and decides what a failure means. `source`
knows what was read and where to go back to. `output` has the transactional producer. A program holds a `batch`. The one
rule: a position that was not committed is gone back to, whatever happened.
"""
