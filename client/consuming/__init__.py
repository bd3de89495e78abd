"""The path of records to the reader: fetches and their buffers, positions, offsets and commits."""
