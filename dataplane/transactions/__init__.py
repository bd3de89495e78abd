"""A broker's part in transactions: it accepts batches, writes markers, and answers clients once a transaction is over.

The quorum decides about transactions (`metadata_quorum.state.transaction_decisions`).
"""
