"""The packages and the extensions in C, which pyproject.toml cannot find by itself; everything else stands there.

Each top folder is a package of `ottla`: the folder `protocol` is imported as `ottla.protocol`. Extensions are optional.
Without a compiler or Python's headers the build warns and goes on, and modules in Python do the same work:
`ottla.network.tls.decrypted_reads_in_python`, `ottla.protocol.records.record_codec`,
`ottla.protocol.records.record_validation`, `ottla.protocol.direct_codecs.produce_frames_in_python`,
`ottla.dataplane.log.segments.batch_search_in_python`, `ottla.dataplane.log.recovery.segment_scan`,
`ottla.dataplane.share.leader.key_hashes_in_python`, `ottla.client.producing.appending_in_python` and
`ottla.client.producing.columns.rows_in_python`.
"""

from setuptools import Extension, find_packages, setup

FOLDERS = [
    "network",
    "protocol",
    "metadata_quorum",
    "dataplane",
    "client",
    "spark_integration",
    "console",
    "lake",
    "cli",
]
SPARK_DISCOVERS = "pyspark_ottla"
"""Spark looks for data sources in top-level packages called pyspark_...; this folder is one beside `ottla`."""
PACKAGES = {
    "ottla": "ottla",
    SPARK_DISCOVERS: f"spark_integration/{SPARK_DISCOVERS}",
    **{f"ottla.{folder}": folder for folder in FOLDERS},
}

SOURCES = {
    "ottla.network.tls._decrypted_reads": ["network/tls/_decrypted_reads.c"],
    "ottla.protocol.records._record_codec": [
        "protocol/records/_record_codec.c",
        "protocol/records/_columns.c",
    ],
    "ottla.protocol.records._record_validation": ["protocol/records/_record_validation.c"],
    "ottla.protocol.direct_codecs._produce_frames": ["protocol/direct_codecs/_produce_frames.c"],
    "ottla.dataplane.log.segments._batch_search": ["dataplane/log/segments/_batch_search.c"],
    "ottla.dataplane.log.recovery._plain_batches": ["dataplane/log/recovery/_plain_batches.c"],
    "ottla.dataplane.share.leader._key_hashes": ["dataplane/share/leader/_key_hashes.c"],
    "ottla.client.producing._appending": ["client/producing/_appending.c", "client/producing/_deliveries.c"],
    "ottla.client.producing.columns._rows": ["client/producing/columns/_rows.c"],
}
HEADERS = [
    "protocol/records/_columns.h",
    "protocol/records/_varints.h",
    "dataplane/log/segments/_headers.h",
    "client/producing/_deliveries.h",
    "client/producing/_murmur2.h",
]


def packages() -> list[str]:
    """Return the names of all packages: the folders above, and each folder below them that has an `__init__.py`."""
    return [
        name
        for top, folder in PACKAGES.items()
        for name in (top, *(f"{top}.{below}" for below in find_packages(folder)))
        if not name.startswith(f"ottla.spark_integration.{SPARK_DISCOVERS}")
    ]


setup(
    packages=packages(),
    package_dir=PACKAGES,
    ext_modules=[Extension(name, files, depends=HEADERS, optional=True) for name, files in SOURCES.items()],
)
