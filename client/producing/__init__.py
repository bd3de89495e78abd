"""The path of records to the log: batches, partitions, the requests to leaders and their answers."""
