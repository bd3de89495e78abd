"""Records as columns of pyarrow, without an object per record: `fetching` for consumers, `sending` for producers."""
