"""The assembly of a broker: all parts are made first, and started afterwards."""
