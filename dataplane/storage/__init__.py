"""All logs of a broker: their data folders, retention, compaction and verification."""
