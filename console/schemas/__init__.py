"""Values and keys with schemas of a registry: requests to the registry, and decoding.

`framing` finds the id of a schema in a value, `registry` asks for it, `avro_values` and `protobuf_values` decode by it,
and `decoding` remembers schemas. Schemas and values may come from any client, so each has a limit. Any fault of a value
becomes a text beside its bytes.
"""
