"""Writing: the tasks of a batch are writers of one transaction."""
