"""Record the answers of Apache Kafka, and those of Ottla where they differ on purpose.

python -m tests.share_conversations.record            # starts Apache Kafka, and writes kafka.json
python -m tests.share_conversations.record --ottla    # starts Ottla, prints each difference, and writes ottla.json
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

from benchmarks.clusters import ottla_cluster
from benchmarks.kafka import kafka_cluster

from .comparing import ANSWERS, OWN_ANSWERS, differences, recorded
from .differences import REASONS
from .playing import SETTINGS, Answer, play_together
from .scripts import SCRIPTS

KAFKAS_OWN = {
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "4",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "group.share.assignment.interval.ms": "0",
    "log.initial.task.delay.ms": "500",
}


def _record_kafka(folder: Path) -> None:
    with kafka_cluster(folder, brokers=1, quorum=1, settings=SETTINGS | KAFKAS_OWN) as cluster:
        answers = play_together(cluster.bootstrap, SCRIPTS)
    pieces = [
        f" {json.dumps(name)}: [\n  " + ",\n  ".join(map(json.dumps, steps)) + "]"
        for name, steps in answers.items()
    ]
    ANSWERS.write_text("{\n" + ",\n".join(pieces) + "\n}\n")


def _record_ottla(folder: Path) -> None:
    known, unexplained = recorded(), 0
    own: dict[str, dict[str, Answer]] = {}
    with ottla_cluster(folder, brokers=1, quorum=1, settings=SETTINGS) as cluster:
        answers = play_together(cluster.bootstrap, SCRIPTS)
    for script in SCRIPTS:
        found = differences(script, known[script.name], answers[script.name])
        if script.name in REASONS:
            own[script.name] = {str(each.number): each.got for each in found}
            continue
        unexplained += len(found)
        for number, step, expected, answer in found:
            print(f"{script.name}, step {number}: {step}")
            print(f"  expected {json.dumps(expected)}\n  got      {json.dumps(answer)}")
    OWN_ANSWERS.write_text(json.dumps(own, indent=1) + "\n")
    print(f"{unexplained} differences without a reason in {len(SCRIPTS)} conversations")


def main() -> None:
    """Run the command that the module's docstring describes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ottla", action="store_true", help="record Ottla's answers")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        (_record_ottla if options.ottla else _record_kafka)(Path(folder))


if __name__ == "__main__":
    main()
