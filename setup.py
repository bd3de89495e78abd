"""Only the extension stands here: pyproject.toml has all the rest, and no stable way to name an extension.

It is optional. Without a compiler or Python's headers the build warns and goes on, and
`ottla.client.producing.appending` does the same work in Python.
"""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension("ottla.client.producing._appending", ["client/producing/_appending.c"], optional=True)
    ],
)
