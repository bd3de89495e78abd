"""Records as columns of pyarrow, without an object for each: `fetching` for consumers, `sending` for producers."""
