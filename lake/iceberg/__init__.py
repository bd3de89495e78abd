"""Iceberg tables: the catalog, files of rows, and commits that name the position of the table in its topic."""
