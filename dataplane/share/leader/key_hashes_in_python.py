"""Hashes of the keys of records, in Python. `_key_hashes.c` has an equivalent function, and `key_hashes` uses it if it
was built."""

from __future__ import annotations

from array import array
from typing import Final

from ....protocol.wire.primitives import Buffer

KEY_BYTES_MAX: Final = 65_536
"""Number of bytes of a key that its hash covers, so that a huge key is never held as a whole."""
_LENGTH_BYTES_MAX, _TIME_BYTES_MAX = 5, 10
_DELTA_MAX: Final = 2**31 - 1
_BASE_MAX: Final = 2**63 - 2**32


def hash_keys(
    data: Buffer, base_offset: int, from_offset: int, records_max: int, keys_max: int, /
) -> tuple[int, int, int, bytes, bytes]:
    """Hash the keys of the records at the beginning of `data`, which may end within a record.

    The hash is Python's, with the seed of this process: nobody can send many keys with one hash. Records before
    `from_offset` and records without a key are passed over. The walk ends after `records_max` records or `keys_max`
    keys.

    Returns the number of bytes that were used, the number of bytes of the last record that are still to come, the
    number of records, and the offsets and the hashes of the keys as native 64-bit integers. Raises ValueError for a
    damaged record, or if offsets of records might have more than 64 bits.
    """
    if not 0 <= base_offset <= _BASE_MAX or not 0 <= keys_max <= _DELTA_MAX:
        raise ValueError("an offset and a number of keys are expected")
    offsets, hashes = array("q"), array("q")
    used = skip = records = 0
    while records < records_max and len(offsets) < keys_max:
        try:
            at, size = _varint(data, used, _LENGTH_BYTES_MAX)
            end = at + size
            if size < 0:
                raise ValueError
            at, _ = _varint(data, _attributes(data, at), _TIME_BYTES_MAX)
            at, delta = _varint(data, at, _LENGTH_BYTES_MAX)
            at, key_size = _varint(data, at, _LENGTH_BYTES_MAX)
            if not 0 <= delta <= _DELTA_MAX or not -1 <= key_size <= end - at:
                raise ValueError
        except IndexError:
            break
        except ValueError:
            raise ValueError(f"record {records} of the data is damaged") from None
        hashed = min(key_size, KEY_BYTES_MAX)
        if key_size >= 0 and at + hashed > len(data):
            break
        records += 1
        if key_size >= 0 and base_offset + delta >= from_offset:
            offsets.append(base_offset + delta)
            hashes.append(hash(bytes(data[at : at + hashed])))
        if end > len(data):
            used, skip = len(data), end - len(data)
            break
        used = end
    return used, skip, records, offsets.tobytes(), hashes.tobytes()


def _attributes(data: Buffer, at: int) -> int:
    """Return the position behind a record's attributes. Raises IndexError if the data ends before them."""
    if at >= len(data):
        raise IndexError
    return at + 1


def _varint(data: Buffer, at: int, bytes_max: int) -> tuple[int, int]:
    """Read a zigzag varint. Returns the position behind it, and its value.

    Raises IndexError if the data ends within it, and ValueError if it is longer.
    """
    bits = 0
    for number in range(bytes_max):
        byte = data[at + number]
        bits |= (byte & 0x7F) << 7 * number
        if byte < 0x80:
            return at + number + 1, (bits >> 1) ^ -(bits & 1)
    raise ValueError
