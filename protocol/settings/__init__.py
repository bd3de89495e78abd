"""Configuration keys: type, default, bounds and scope of each, and the checks of values.

`config_table` lists the keys, `config_keys` checks values against it, `config_fields` reads dataclasses by it,
`config_chain` finds the source of a value.
"""
