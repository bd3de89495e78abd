"""Fetched records as columns of pyarrow, without an object per record."""
