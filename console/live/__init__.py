"""What moves: samples of the cluster with a bounded history, and the streams that bring news to open pages.

`sampler` asks the cluster, once for all pages. `counters` and `happenings` compare two answers, and are pure. `feeds`
makes the fragments of a page anew while anybody looks at it, once for all who look. `streams` sends them.

One rule: a browser that does not read holds nothing up. It misses what was in between and gets the newest.
"""
