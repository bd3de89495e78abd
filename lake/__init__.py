"""LakeTopics as Iceberg tables: a worker that reads topics cut by cut and writes each record to a table exactly once.

`docs/LAKE.md` describes it. Only this package imports pyiceberg, which the extra `lake` installs.
"""
