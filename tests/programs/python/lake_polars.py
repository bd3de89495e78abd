"""The offsets of a table of the lake by its metadata, in Polars. Usage: lake_polars.py METADATA [SNAPSHOT]."""

import json
import sys

import polars

metadata, *snapshot = sys.argv[1:]
frame = polars.scan_iceberg(metadata, snapshot_id=int(snapshot[0]) if snapshot else None)
places = frame.select(
    polars.col("ottla").struct.field("partition"), polars.col("ottla").struct.field("offset")
)
print(json.dumps(sorted(places.collect().rows())))
