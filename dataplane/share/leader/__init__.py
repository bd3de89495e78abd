"""Share partitions at the leaders of their partitions: acquisition from the log, durable changes, locks and waiting
fetches.

`SharePartitions` has the share partitions of this broker, and `ShareSessions` the share sessions.
"""
