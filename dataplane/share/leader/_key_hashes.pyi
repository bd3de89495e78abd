# Names of the extension, for type checkers, whether it is built or not: the same as those in Python.
from .key_hashes_in_python import hash_keys as hash_keys
