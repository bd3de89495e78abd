"""The parts of a broker and how they are put together: whole first, then run."""
