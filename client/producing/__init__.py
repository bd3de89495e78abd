"""Records on their way into the log: batches, partitions, the requests to leaders and their answers."""
