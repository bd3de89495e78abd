"""Handlers of requests. A file is named for its API, or for the word that its APIs have in common.

Handlers are methods registered with `@handles`. docs/SUPPORT.md names the file of each API.
"""
