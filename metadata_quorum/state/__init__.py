"""The controller as a pure state machine: apply(state, command) -> records and result."""
