"""The object store: whole values under keys, in a folder or in a bucket of a cloud.

`opening` turns a URL (`urls`) into a store, and `store` has the interface. `folder` keeps objects as files, and
`bucket` keeps them in S3, Google Cloud Storage, Azure or memory. `retrying` repeats attempts that failed for the
moment. `references` has the records' references to objects, and `fetching` follows them. The rule: an object is created
once, whole and durable, or it does not exist. No call overwrites an object, and the URL of the store alone says where
objects are: a key cannot name a place outside of it.
"""
