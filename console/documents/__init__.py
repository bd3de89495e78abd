"""JSON documents from any client: parsed without loss (`exact`), and formatted within limits (`layout`).

Pages show the stored digits of a number and never reformat it.
"""
