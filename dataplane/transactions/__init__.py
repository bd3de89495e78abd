"""A broker's part in transactions: which batches are accepted, the markers that leaders write, and how their clients
are told that one is over. What is decided is decided by the quorum (`metadata_quorum.state.transactions`)."""
