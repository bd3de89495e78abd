"""JSON documents of strangers: read without a loss (`exact`), and laid out within bounds (`layout`).

The rule: a page shows the digits that are stored, and never writes a number anew.
"""
