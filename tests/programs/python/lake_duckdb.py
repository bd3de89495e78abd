"""The offsets of a table of the lake by its folder's path, in DuckDB. Usage: lake_duckdb.py FOLDER."""

import json
import sys
from importlib.resources import files

import duckdb

connection = duckdb.connect()
for name in ("avro", "iceberg"):
    extension = next(files(f"duckdb_extension_{name}").joinpath("extensions").iterdir())
    connection.execute(f"LOAD '{extension.joinpath(f'{name}.duckdb_extension')}'")
found = connection.execute(
    'SELECT ottla."partition", ottla."offset" FROM iceberg_scan(?) ORDER BY ALL', [sys.argv[1]]
)
print(json.dumps(found.fetchall()))
