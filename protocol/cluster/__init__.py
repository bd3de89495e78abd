"""The cluster's metadata, as a fold of metadata records that quorum nodes and brokers compute alike.

`cluster_image` has the image, `image_delta` the difference of two images. Mirrors, transactions, ACLs and quotas are
parts of it.
"""
