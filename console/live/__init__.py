"""Live data: samples of the cluster with a bounded history, and event streams that update open pages.

`sampler` asks the cluster, once for all pages. `counters` and `events` compare two answers, and are pure. `feeds`
renders the changing fragments of a page while browsers have it open, once for all browsers. `streams` sends the
fragments. A slow browser delays no other. It misses intermediate states and gets the newest.
"""
