"""While commands are applied nothing looks for garbage, and afterwards everything is as it was."""

from __future__ import annotations

import gc

import pytest

from ottla.metadata_quorum.raft.collection import uncollected


def test_garbage_is_looked_for_before_and_afterwards_only() -> None:
    assert gc.isenabled()
    with uncollected():
        assert not gc.isenabled()
        with uncollected():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(ZeroDivisionError), uncollected():
        raise ZeroDivisionError
    assert gc.isenabled()
