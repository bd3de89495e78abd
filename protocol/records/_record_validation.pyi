# Names of the extension, for type checkers, whether it is built or not: the same as those of the validation in Python.
from .record_validation import RecordValidator as RecordValidator
from .record_validation import sole_batch as sole_batch
