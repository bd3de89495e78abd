"""Consume, transform, produce: what is read, what is made of it, and where to go on are one transaction.

`processor` goes round and decides what a failure means; `source` knows what was read and where to go back to, `output`
the transactional producer, `batch` is what a program holds meanwhile. One rule: a position that is not committed is
gone back to, whatever happened.
"""
