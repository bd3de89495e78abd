"""Large messages on the producer's side: values larger than one record are split into segments.

Main objects: `Splitter` (a record as segments), `SplitMessage` (the deliveries of the segments as one delivery).
"""
