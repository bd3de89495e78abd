# What the extension has, built or not: the same as the validation in Python.
from .record_validation import RecordValidator as RecordValidator
from .record_validation import sole_batch as sole_batch
