"""Sealed values: only the cluster secret opens them, for what they are about, and none is opened when altered."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.dataplane.security.sealing import OVERHEAD_BYTES, SealBroken, Sealer

OLD, NEW = b"old secret " * 4, b"new secret " * 4


@given(plain=st.binary(max_size=200), subject=st.binary(max_size=20))
def test_what_is_sealed_is_opened(plain: bytes, subject: bytes) -> None:
    sealed = Sealer([OLD]).seal(plain, subject)
    assert len(sealed) == len(plain) + OVERHEAD_BYTES
    assert Sealer([OLD]).open(sealed, subject) == plain
    assert sealed != Sealer([OLD]).seal(plain, subject)


def test_a_new_secret_opens_what_an_older_one_sealed() -> None:
    sealed = Sealer([OLD]).seal(b"x", b"about")
    both = Sealer([NEW, OLD])
    assert both.open(sealed, b"about") == b"x"
    assert Sealer([NEW]).open(both.seal(b"y", b"about"), b"about") == b"y"
    with pytest.raises(SealBroken, match="follows from no secret in"):
        Sealer([NEW]).open(sealed, b"about")


@given(st.data())
def test_what_was_altered_is_not_opened(data: st.DataObject) -> None:
    sealer = Sealer([OLD])
    sealed = bytearray(sealer.seal(b"some value", b"about"))
    place = data.draw(st.integers(0, len(sealed) - 1))
    sealed[place] ^= data.draw(st.integers(1, 255))
    with pytest.raises(SealBroken):
        sealer.open(bytes(sealed), b"about")


@pytest.mark.parametrize("cut", [0, 4, OVERHEAD_BYTES - 1])
def test_what_was_cut_or_belongs_elsewhere_is_not_opened(cut: int) -> None:
    sealer = Sealer([OLD])
    sealed = sealer.seal(b"some value", b"ann")
    with pytest.raises(SealBroken, match="cut short"):
        sealer.open(sealed[:cut], b"ann")
    with pytest.raises(SealBroken, match="belongs to something else"):
        sealer.open(sealed, b"bob")
