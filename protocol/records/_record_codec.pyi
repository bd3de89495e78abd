# Names of the extension, for type checkers, whether it is built or not: the same as those of the codec in Python.
from .record_codec import Columns as Columns
from .record_codec import RecordCursor as RecordCursor
from .record_codec import encode_records as encode_records
