"""Record batches of format v2: header, records, compression, validation.

Modules in C and in Python implement the same names; `record` and `produced_batch` choose between them.
"""
