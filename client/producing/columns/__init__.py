"""Columns of pyarrow sent as records, without an object per record."""
