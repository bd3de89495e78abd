"""Consume, transform, produce: the records read, the records written and the offsets are one transaction.

`processor` reads records and offers batches. `batch_transaction` runs the transaction of a batch and decides about
failures. `source` knows which records were read and the offsets to return to. `output` has the transactional producer.
A program holds a `batch`. The single rule: after any failure, reading resumes at the committed offsets.
"""
