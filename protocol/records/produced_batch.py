"""Checks of the records of a produced batch: one walk, in which compressed records are expanded piece by piece.

No record objects are built. The result is the largest timestamp of the records, which the batch's header only claims.
The walk is `record_validation.py`, or its equivalent in C if that was built; OTTLA_PURE_PYTHON=1 disables the latter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ..checksum import crc32c
from ..errors import ErrorCode, KafkaError
from ..pure_python import PURE_PYTHON
from .compression import DECOMPRESSED_BYTES_MAX, Compression, expand
from .frame_ends import check_lz4_is_for_all
from .record_batch import ATTRIBUTES_AT, COMPRESSION_MASK, HEADER_SIZE, BatchHeader

if TYPE_CHECKING:
    from . import record_validation as _validation
else:
    try:
        if PURE_PYTHON:
            raise ImportError("the validation in C is turned down")
        from . import _record_validation as _validation

        if not hasattr(_validation, "sole_batch"):
            raise ImportError("the validation in C is of an older version")
    except ImportError:  # disabled, not built, or built for another Python
        from . import record_validation as _validation

find_sole = _validation.sole_batch
"""Function that validates a batch that comes alone; see `record_validation.sole_batch`."""
VALIDATION: Final = "python" if _validation.__name__.endswith(".record_validation") else "C"
"""Name of the validation of records in use."""

_PIECE_BYTES: Final = 64 * 1024


class BrokenRules(Exception):
    """The refusal of a produced batch that clients can read, but of which some records break the topic's rules for keys
    and timestamps."""

    def __init__(self, refused: list[tuple[int, int | None]], refused_count: int) -> None:
        super().__init__(f"{refused_count} records break the topic's rules")
        self.refused = refused
        """The first thousand refused records: each by its position in the batch, from 0, with its timestamp in ms, or
        None if its key is missing."""
        self.refused_count = refused_count


class ExpandsTooFar(Exception):
    """The refusal of a compressed batch that expands to more bytes than the caller accepts."""

    def __init__(self, bytes_max: int) -> None:
        super().__init__(f"the batch expands to more than the {bytes_max} bytes allowed")


def sole_batch(
    data: memoryview, earliest_ms: int, latest_ms: int, keyed: bool
) -> tuple[BatchHeader, int | None] | None:
    """Validate the data of a Produce request for one partition, if it consists of one batch. Returns the batch's
    header, and the largest timestamp of its records; None in place of the timestamp if the records are compressed, so
    that `walk_records` still has to check them.

    Returns None for anything else, also if `record_batch.validate_produced` or `walk_records` would refuse the batch;
    the caller has to use these two.
    """
    return find_sole(data, crc32c(data[ATTRIBUTES_AT:]), earliest_ms, latest_ms, keyed)


def walk_records(
    batch: memoryview,
    header: BatchHeader,
    earliest_ms: int,
    latest_ms: int,
    keyed: bool,
    expanded_bytes_max: int = DECOMPRESSED_BYTES_MAX,
    expanded: list[bytes] | None = None,
) -> int:
    """Walk over the records of `batch`, whose header and CRC are correct. Returns their largest timestamp in ms, -1 if
    no record has one. The expanded pieces of compressed records are appended to `expanded`.

    The topic requires timestamps from `earliest_ms` to `latest_ms`, and with `keyed` a key in every record.

    Raises BrokenRules if the topic refuses some of the records. Raises KafkaError: INVALID_RECORD if a client could not
    read them; UNSUPPORTED_COMPRESSION_TYPE. Raises ExpandsTooFar if they expand to more than `expanded_bytes_max`
    bytes.
    """
    validator = _validation.RecordValidator(
        header.record_count, header.base_timestamp, earliest_ms, latest_ms, keyed
    )
    body = batch[HEADER_SIZE : header.size]
    codec = header.attributes & COMPRESSION_MASK
    if not codec:
        validator.feed(body)
    else:
        size = 0
        try:
            if codec == Compression.LZ4:
                check_lz4_is_for_all(body)
            for piece in expand(codec, body, _PIECE_BYTES):
                size += len(piece)
                if size > expanded_bytes_max:
                    raise ExpandsTooFar(expanded_bytes_max)
                validator.feed(piece)
                if expanded is not None:
                    expanded.append(piece)
        except EOFError as error:
            raise _undecodable(f"the batch's lz4 data is not for all clients: {error}") from error
        except KafkaError as error:
            if error.code is not ErrorCode.CORRUPT_MESSAGE:
                raise
            raise _undecodable(error.message) from error
    max_timestamp = validator.finish()
    if validator.refused_count:
        raise BrokenRules(validator.refused, validator.refused_count)
    return max_timestamp


def _undecodable(message: str) -> KafkaError:
    """Return an INVALID_RECORD error. The CRC is correct, so the client sent these bytes on purpose; after
    CORRUPT_MESSAGE it would send them again, in vain."""
    return KafkaError(ErrorCode.INVALID_RECORD, message)
