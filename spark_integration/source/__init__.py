"""Reading: what a micro-batch contains, and how its slices are read on executors."""
