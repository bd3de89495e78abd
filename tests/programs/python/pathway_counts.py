"""Counts words by Pathway, which keeps its state in a folder.

python pathway_counts.py BOOTSTRAP FOLDER
"""

import sys

import pathway

bootstrap, folder = sys.argv[1:]
words = pathway.io.kafka.read(
    {
        "bootstrap.servers": bootstrap,
        "group.id": "counter",
        "auto.offset.reset": "earliest",
        "session.timeout.ms": "6000",  # a killed one is missed sooner
    },
    topic="words",
    format="plaintext",
    autogenerate_key=True,
    autocommit_duration_ms=200,
    name="words",
)
counts = words.groupby(words.data).reduce(word=words.data, count=pathway.reducers.count())
pathway.io.kafka.write(
    counts,
    {
        "bootstrap.servers": bootstrap,
        "enable.idempotence": "true",
    },  # without it changes may overtake each other
    "counts",
    name="counts",
)
pathway.run(
    persistence_config=pathway.persistence.Config(
        pathway.persistence.Backend.filesystem(folder), snapshot_interval_ms=500
    ),
    monitoring_level=pathway.MonitoringLevel.NONE,
)
