"""Storage of all partition logs of a broker: data folders, retention, compaction and verification."""
