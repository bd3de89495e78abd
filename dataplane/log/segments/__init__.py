"""The files of a partition's log: segments, their indexes, and the order of the segments."""
