"""Codecs of frequent or large messages that create no message objects.

They read and write the same bytes as the generated codec. Produce requests and their answers are in `produce_frames`,
answers to Metadata in `metadata_layout` and `metadata_reader`.
"""
