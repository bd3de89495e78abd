"""Keys of share-partitions in FindCoordinator, as Kafka 4.4 writes and reads them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.messages.find_coordinator import SharePartition

TOPIC_ID = (1).to_bytes(8, "big") + (2).to_bytes(8, "big")


def test_a_key_is_that_of_kafka() -> None:
    assert SharePartition("g", TOPIC_ID, 3).key == "g:AAAAAAAAAAEAAAAAAAAAAg:3"
    assert SharePartition.of_key("a:b:AAAAAAAAAAEAAAAAAAAAAg:3") == ("a:b", TOPIC_ID, 3)


@given(
    group_id=st.text(min_size=1),
    topic_id=st.binary(min_size=16, max_size=16),
    partition=st.integers(0, 2**31 - 1),
)
def test_a_key_is_read_back(group_id: str, topic_id: bytes, partition: int) -> None:
    share_partition = SharePartition(group_id, topic_id, partition)
    assert SharePartition.of_key(share_partition.key) == share_partition


@pytest.mark.parametrize(
    "key",
    [
        "",
        "g",
        "g:AAAAAAAAAAEAAAAAAAAAAg",
        ":AAAAAAAAAAEAAAAAAAAAAg:3",
        "g:xx:3",
        "g:AAAAAAAAAAEAAAAAAAAA+g:3",
        "g:AAAAAAAAAAEAAAAAAAAAAg:x",
        "g:AAAAAAAAAAEAAAAAAAAAAg:-1",
        "g:AAAAAAAAAAEAAAAAAAAAAg:2147483648",
        "g:AAAAAAAAAAEAAAAAAAAAAg:" + "9" * 5000,
        "g:AAAAAAAAAAEAAAAAAAAAAg:\u0663",
    ],
)
def test_text_in_another_form_is_refused(key: str) -> None:
    with pytest.raises(ValueError, match="it must be groupId:topicId:partition"):
        SharePartition.of_key(key)
