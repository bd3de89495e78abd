"""Values and keys that a schema registry describes: what the registry tells, and what the bytes mean by it.

`framing` finds the id of a schema in a value, `registry` asks for it, `avro_values` and `protobuf_values` read by it,
and `decoding` remembers schemas. The rule: schemas and values come from strangers, so each has a bound. Whatever is
wrong with one becomes a text that stands beside the bytes.
"""
