"""Makes inputs that are nearly valid, from a seed: the same for the same seed, target and number."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

INPUT_BYTES_MAX: Final = 64 * 1024
_CHANGES_MAX = 6
_RANDOM_SHARE = 0.05
_EDGES = (
    b"\x00",
    b"\x01",
    b"\x7f",
    b"\x80",
    b"\xff",
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\x80\x00\x00\x00",
)
_WORDS = (
    b",",
    b"=",
    b"\0",
    b'"',
    b"\\",
    b";",
    b"\n",
    b"=2C",
    b"n,,",
    b"i=999999999",
    b"\xc3\xa9",
    b"\xed\xa0\x80",
)


def make_input(seed: int, target: str, number: int, valid: Sequence[bytes]) -> bytes:
    """Return the input of this number: a valid input, changed in a few places, or sometimes arbitrary bytes."""
    chance = random.Random(f"{seed}/{target}/{number}")
    if chance.random() < _RANDOM_SHARE:
        return chance.randbytes(chance.choice((0, 1, 3, 8, 40, 300, 5_000)))
    data = bytearray(chance.choice(valid))
    for _ in range(chance.randrange(_CHANGES_MAX)):
        _change(data, chance, valid)
    return bytes(data[:INPUT_BYTES_MAX])


def _change(data: bytearray, chance: random.Random, valid: Sequence[bytes]) -> None:
    at = chance.randrange(len(data) + 1)
    match chance.randrange(8):
        case 0 if at < len(data):  # a bit
            data[at] ^= 1 << chance.randrange(8)
        case 1 if at < len(data):  # a byte
            data[at] = chance.randrange(256)
        case 2:  # lengths and counts that lie
            edge = chance.choice(_EDGES)
            data[at : at + len(edge)] = edge
        case 3:  # what has a meaning in texts
            data[at:at] = chance.choice(_WORDS)
        case 4:  # less
            del data[at : at + chance.randrange(1, 16)]
        case 5:  # the end is missing
            del data[at:]
        case 6:  # a part again and again
            part = bytes(data[at : at + chance.randrange(1, 32)])
            data[at:at] = part * chance.choice((1, 2, 50, 1_000))
        case _:  # a part of another
            other = chance.choice(valid)
            begin = chance.randrange(len(other) + 1)
            data[at:] = other[begin:]
    del data[INPUT_BYTES_MAX:]
