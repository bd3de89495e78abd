"""Writing: the tasks of a batch write in one shared transaction."""
