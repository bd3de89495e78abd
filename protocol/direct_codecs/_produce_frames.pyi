# Names of the extension, for type checkers, whether it is built or not: the same as those of the reader in Python.
from .produce_frames_in_python import read_produce as read_produce
