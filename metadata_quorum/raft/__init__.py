"""The Raft layer: the only importer of pysyncobj. It replicates opaque commands and keeps every command it
acknowledged."""
