"""Only the extensions stand here: pyproject.toml has all the rest, and no stable way to name an extension.

They are optional. Without a compiler or Python's headers the build warns and goes on, and the modules beside them do
the same work in Python: `ottla.protocol.record_codec` and `ottla.client.producing.appending_in_python`.
"""

from setuptools import Extension, setup

SOURCES = {
    "ottla.protocol._record_codec": "protocol/_record_codec.c",
    "ottla.client.producing._appending": "client/producing/_appending.c",
}

setup(ext_modules=[Extension(name, [source], optional=True) for name, source in SOURCES.items()])
