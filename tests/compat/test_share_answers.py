"""Apache Kafka gives the recorded answers about share groups."""

from __future__ import annotations

import pytest

from benchmarks.kafka import kafka_cluster
from tests.share_conversations.comparing import differences, recorded
from tests.share_conversations.playing import SETTINGS, Answer, play_together
from tests.share_conversations.record import KAFKAS_OWN
from tests.share_conversations.scripts import SCRIPTS
from tests.share_conversations.steps import Script


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Answer]]:
    settings = SETTINGS | KAFKAS_OWN
    with kafka_cluster(tmp_path_factory.mktemp("kafka"), brokers=1, quorum=1, settings=settings) as cluster:
        return play_together(cluster.bootstrap, SCRIPTS)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_kafka_answers_as_recorded(answers: dict[str, list[Answer]], script: Script) -> None:
    assert not differences(script, recorded()[script.name], answers[script.name])
