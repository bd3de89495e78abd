"""Reading: plans micro-batches on the driver, and reads their slices on executors."""
