"""Application versions of a mirror's source, by cut, compared with a complete history."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.protocol.cluster.mirror_versions import MirrorVersions, mirrored_versions
from ottla.protocol.messages.mirror_records import MirrorVersionsRecord

TOLD = st.tuples(
    st.integers(0, 3),
    st.dictionaries(st.sampled_from("abc"), st.integers(-1, 5), max_size=3),
    st.booleans(),
    st.integers(0, 4),
)
"""The rise of the cut, the reported versions, whether these are complete, and the number of recent
cuts still needed."""


@settings(max_examples=400, deadline=None)
@given(st.lists(TOLD, max_size=20))
def test_what_held_at_each_cut_that_is_needed_is_known(
    steps: list[tuple[int, dict[str, int], bool, int]],
) -> None:
    versions, present, cut, needed_from = MirrorVersions(), dict[str, int](), 0, 0
    states: dict[int, dict[str, int]] = {}
    for number, (rise, known_versions, is_whole, needed) in enumerate(steps):
        cut += rise
        versions.apply(
            MirrorVersionsRecord(
                mirror="m",
                cut=cut,
                is_whole=is_whole,
                next_offset=number,
                versions=mirrored_versions(known_versions.items()),
            ),
            needed_from,
        )
        present = known_versions if is_whole else present | known_versions
        states[cut] = present = {name: version for name, version in present.items() if version >= 0}
        needed_from = max(needed_from, cut - needed)
        versions.trim(needed_from)
        for asked in range(needed_from, cut + 1):
            known = [at for at in states if at <= asked]
            assert versions.at_cut(asked) == (states[max(known)] if known else {})
        assert not versions.broken()
        again = MirrorVersions()
        for record in versions.records("m"):
            again.apply(record, needed_from)
        assert again == versions


def test_no_more_is_kept_than_need_be() -> None:
    versions = MirrorVersions()
    for cut in range(50):
        record = MirrorVersionsRecord(
            mirror="m", cut=cut, versions=mirrored_versions([("x", cut), ("y", -cut % 2)])
        )
        versions.apply(record, cut - 1)
    assert versions.by_id["x"] == ((48, 48), (49, 49))
    versions.trim(None)
    assert {len(known) for known in versions.by_id.values()} == {1}
