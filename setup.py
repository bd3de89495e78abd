"""Only the extensions stand here: pyproject.toml has all the rest, and no stable way to name an extension.

They are optional. Without a compiler or Python's headers the build warns and goes on, and the modules beside them do
the same work in Python: `ottla.network.tls.decrypted_reads_in_python`, `ottla.protocol.record_codec`,
`ottla.protocol.record_validation`, `ottla.protocol.produce_frames_in_python`,
`ottla.dataplane.log.segments.batch_search_in_python`, `ottla.client.producing.appending_in_python` and
`ottla.client.columns.rows_in_python`.
"""

from setuptools import Extension, setup

SOURCES = {
    "ottla.network.tls._decrypted_reads": ["network/tls/_decrypted_reads.c"],
    "ottla.protocol._record_codec": ["protocol/_record_codec.c", "protocol/_columns.c"],
    "ottla.protocol._record_validation": ["protocol/_record_validation.c"],
    "ottla.protocol._produce_frames": ["protocol/_produce_frames.c"],
    "ottla.dataplane.log.segments._batch_search": ["dataplane/log/segments/_batch_search.c"],
    "ottla.client.producing._appending": ["client/producing/_appending.c", "client/producing/_deliveries.c"],
    "ottla.client.columns._rows": ["client/columns/_rows.c"],
}
HEADERS = [
    "protocol/_columns.h",
    "protocol/_varints.h",
    "client/producing/_deliveries.h",
    "client/producing/_murmur2.h",
]

setup(ext_modules=[Extension(name, files, depends=HEADERS, optional=True) for name, files in SOURCES.items()])
