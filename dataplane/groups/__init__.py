"""Consumer groups: the group state machine and the offsets store."""
