"""Input and output of commands on a terminal: safe text, tables, records, and confirmations."""
