"""Messages as tables of fields, and the codec that is generated from such a table for each version.

`schema` declares fields, `codec_source` writes the Python source of readers and writers, `codec` compiles it at first
use, and `primitives` has integers of variable length and the limits of every decoder.
"""
