"""kafka-python 3: asks for the newest versions it knows and turns idempotence on by default."""

from __future__ import annotations

import uuid

import pytest
from kafka.admin import KafkaAdminClient, NewTopic
from kafka.errors import TopicAlreadyExistsError

pytestmark = pytest.mark.cluster


def test_admin_and_its_errors(bootstrap: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    name = f"kp-{uuid.uuid4().hex[:8]}"
    try:
        admin.create_topics([NewTopic(name, 3, 2)])
        with pytest.raises(TopicAlreadyExistsError):
            admin.create_topics([NewTopic(name, 3, 2)])
        described = admin.describe_topics([name])
        assert len(described[0]["partitions"]) == 3
        admin.delete_topics([name])
    finally:
        admin.close()
