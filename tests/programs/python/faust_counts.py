"""Counts the messages of each key in a table, and says every count.

python faust_counts.py BOOTSTRAP FOLDER
"""

import sys

import faust

bootstrap, folder = sys.argv[1:]
app = faust.App(
    "counter",
    broker=[f"kafka://{address}" for address in bootstrap.split(",")],
    store="memory://",
    datadir=folder,
    topic_partitions=3,
    topic_replication_factor=3,
    broker_session_timeout=6.0,
    broker_heartbeat_interval=2.0,
    broker_commit_interval=0.5,
    consumer_auto_offset_reset="earliest",
    stream_wait_empty=False,
    producer_acks=-1,
)
events = app.topic("events", key_type=str, value_type=str, key_serializer="raw", value_serializer="raw")
totals = app.topic("totals", key_type=str, value_type=str, key_serializer="raw", value_serializer="raw")
table = app.Table("table", default=int, key_type=str, value_type=int)


@app.agent(events)
async def count(stream: faust.StreamT[str]) -> None:
    async for key, event in stream.items():
        table[key] += 1
        await totals.send(key=key, value=f"{event} {table[key]}")


sys.argv[1:] = ["worker", "-l", "info", "--without-web"]
app.main()
