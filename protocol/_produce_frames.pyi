# What the extension has, built or not: the same as the reader in Python.
from .produce_frames_in_python import read_produce as read_produce
