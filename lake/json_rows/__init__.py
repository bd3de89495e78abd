"""Rows of JSON: columns that follow the fields of records, and the verdict about records that do not fit. Pure, but for
the schemas of pyarrow and pyiceberg."""
