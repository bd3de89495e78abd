"""Counts the messages of each key in windows of ten seconds, exactly once.

python quix_windows.py BOOTSTRAP GROUP STATE_FOLDER INSTANCE
"""

import sys

from quixstreams import Application

bootstrap, group, folder, instance = sys.argv[1:]
application = Application(
    broker_address=bootstrap,
    consumer_group=group,
    state_dir=folder,
    auto_offset_reset="earliest",
    processing_guarantee="exactly-once",
    commit_interval=0.5,
    producer_extra_config={"transactional.id": f"{group}-{instance}"},
    consumer_extra_config={"session.timeout.ms": 6000},  # a killed one is missed sooner
)
events = application.topic("events", value_deserializer="string")
counts = application.topic("counts")
frame = application.dataframe(events)
frame = frame.tumbling_window(duration_ms=10_000, grace_ms=600_000, name="per-key").count().current()
frame = frame.to_topic(counts)

application.run()
