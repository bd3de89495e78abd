"""kcat as Debian ships it (an old librdkafka, which switches features on by exact version ranges)."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed"),
]


def kcat(*arguments: str, text: str | None = None) -> str:
    done = subprocess.run(
        ["kcat", *arguments], input=text, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_lines_in_lines_out(bootstrap: str, new_topic: str) -> None:
    lines = [f"key{n}:value {n}" for n in range(500)]
    kcat("-b", bootstrap, "-P", "-t", new_topic, "-K:", text="\n".join(lines) + "\n")
    out = kcat("-b", bootstrap, "-C", "-t", new_topic, "-o", "beginning", "-e", "-q", "-f", "%k:%s\n")
    assert sorted(out.splitlines()) == sorted(lines)


def test_the_cluster_is_listed(bootstrap: str, new_topic: str) -> None:
    listed = json.loads(kcat("-b", bootstrap, "-L", "-J", "-t", new_topic))
    assert len(listed["brokers"]) == 3
    partitions = listed["topics"][0]["partitions"]
    assert all(len(p["isrs"]) == 3 for p in partitions)


def test_a_group_reads_everything(bootstrap: str, new_topic: str) -> None:
    kcat("-b", bootstrap, "-P", "-t", new_topic, text="\n".join(map(str, range(200))) + "\n")
    out = kcat(
        "-b", bootstrap, "-G", f"g-{new_topic}", "-X", "auto.offset.reset=earliest", "-e", "-q", new_topic
    )
    assert sorted(map(int, out.split())) == list(range(200))
