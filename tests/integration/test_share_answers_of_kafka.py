"""Conversations about a share group, answered as Apache Kafka 4.4.0 answered them."""

from __future__ import annotations

import pytest

from tests.cluster import running_cluster
from tests.share_conversations.comparing import differences, expected_of_ottla
from tests.share_conversations.playing import SETTINGS, Answer, play_together
from tests.share_conversations.scripts import SCRIPTS
from tests.share_conversations.steps import Script

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300), pytest.mark.xdist_group("share answers")]


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Answer]]:
    with running_cluster(
        tmp_path_factory.mktemp("conversations"), quorum=1, brokers=1, settings=SETTINGS
    ) as cluster:
        return play_together(cluster.bootstrap, SCRIPTS)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_a_conversation_is_answered_as_kafka_answers_it(
    answers: dict[str, list[Answer]], script: Script
) -> None:
    assert not differences(script, expected_of_ottla()[script.name], answers[script.name])
