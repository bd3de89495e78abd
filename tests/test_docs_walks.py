"""The tables of docs/ARCHITECTURE.md that walk a request through the files are true.

Each of the four requests is made to a broker and a quorum node in this process. The functions that their rows name are
entered, in the order of the rows. Every file of the product that is entered has a row, or is in `LEFT_OUT`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

import pytest

from tests.walked_requests import CREATE, END, FETCH, PRODUCE, ROOT, Entry, Walk, walks

PAGE = ROOT / "docs" / "ARCHITECTURE.md"
ROW = re.compile(r"^\| ([A-Z]\d+) \| `([\w/]+\.py)` \| `([\w.]+)` \| \S")
REFERENCE = re.compile(r"^\| ([A-Z])(\d+) to ([A-Z])(\d+) \| \| \| \S")

LEFT_OUT = {
    "a wire format, or the image that both sides fold: every hop encodes and decodes": ("protocol/",),
    "only connects the parts: it calls the next row": (
        "dataplane/assembly/group_parts.py",
        "dataplane/assembly/leaderships.py",
        "dataplane/assembly/parts.py",
        "dataplane/assembly/replica_parts.py",
        "metadata_quorum/node.py",
    ),
    "lends memory, tells the time, counts, or ends a long turn": (
        "dataplane/runtime/clocks.py",
        "dataplane/runtime/retained_bytes.py",
        "dataplane/runtime/time_slices.py",
        "dataplane/server/buffers.py",
        "dataplane/server/request_times.py",
        "metadata_quorum/quorum_status.py",
        "network/garbage_collection.py",
    ),
    "is asked whether something forbids or changes the request, and here nothing does": (
        "dataplane/fetching/long_fetches.py",
        "dataplane/log/producers/refused_batches.py",
        "dataplane/quorum/metadata_room.py",
        "dataplane/replication/replicas/offline.py",
        "dataplane/replication/replicas/unwritable.py",
        "dataplane/replication/throttle.py",
        "dataplane/transactions/batch_check.py",
        "dataplane/transactions/argument_checks.py",
        "dataplane/transactions/announced_offsets.py",
        "metadata_quorum/admin_audit.py",
        "metadata_quorum/history_check.py",
    ),
    "hears of each change of the image, and has nothing to do here": (
        "dataplane/assembly/late_share_parts.py",
        "dataplane/assembly/logins.py",
        "dataplane/assembly/own_logs.py",
        "dataplane/assembly/running_settings.py",
        "dataplane/cluster/listed_brokers.py",
        "dataplane/cluster/lost_brokers.py",
        "dataplane/groups/consumer/pattern_searches.py",
        "dataplane/groups/consumer/subscriptions.py",
        "dataplane/groups/coordinator.py",
        "dataplane/groups/log_restarts.py",
        "dataplane/groups/removed_topics.py",
        "dataplane/mirroring/mirrors.py",
        "dataplane/mirroring/offset_takeover.py",
        "dataplane/peers/requests.py",
        "dataplane/quorum/image_gate.py",
        "dataplane/quorum/offset_reports.py",
        "dataplane/quorum/registration.py",
        "dataplane/quotas/client_quotas.py",
        "dataplane/replication/follower/fetcher.py",
        "dataplane/replication/replicas/mirror_copies.py",
        "dataplane/replication/replicas/rebuilding.py",
        "dataplane/security/resealing.py",
        "dataplane/security/tls_reloading.py",
        "dataplane/server/listener.py",
        "dataplane/server/server.py",
        "dataplane/share/persister.py",
        "dataplane/share/state/coordinator.py",
        "dataplane/transactions/completion_waits.py",
        "dataplane/transactions/pending_writes.py",
        "dataplane/transactions/markers.py",
        "dataplane/transactions/participant.py",
        "metadata_quorum/last_known.py",
        "metadata_quorum/leader_duties.py",
        "metadata_quorum/liveness.py",
        "metadata_quorum/state/app_version_history.py",
        "metadata_quorum/state/mirror_cuts.py",
        "metadata_quorum/state/transaction_markers.py",
        "metadata_quorum/transaction_deadlines.py",
    ),
    "keeps a detail of one log or replica for the row that calls it": (
        "dataplane/broker_settings.py",
        "dataplane/configuration/topic_settings.py",
        "dataplane/log/append_checks.py",
        "dataplane/log/checkpoints.py",
        "dataplane/log/config.py",
        "dataplane/log/durability.py",
        "dataplane/log/durable_files.py",
        "dataplane/log/leader_epochs.py",
        "dataplane/log/old_segments.py",
        "dataplane/log/placement.py",
        "dataplane/log/produced.py",
        "dataplane/log/producers/open_transactions.py",
        "dataplane/log/producers/producer_state.py",
        "dataplane/log/producers/recent_markers.py",
        "dataplane/log/segments/descriptors.py",
        "dataplane/log/segments/offset_index.py",
        "dataplane/log/segments/segment.py",
        "dataplane/log/segments/segment_list.py",
        "dataplane/log/segments/sparse_index.py",
        "dataplane/log/segments/time_index.py",
        "dataplane/log/segments/transaction_index.py",
        "dataplane/log/transactions.py",
        "dataplane/log/truncation.py",
        "dataplane/replication/replica/acknowledgements.py",
        "dataplane/replication/replica/flush_schedule.py",
        "dataplane/replication/replica/flushing.py",
        "dataplane/replication/replica/following.py",
        "dataplane/replication/replica/readers.py",
        "dataplane/replication/replica/record_deletion.py",
        "dataplane/replication/replica/traffic.py",
        "dataplane/replication/replicas/log_removals.py",
        "dataplane/replication/roles/in_sync.py",
        "dataplane/security/principal.py",
        "dataplane/storage/folder_checkpoints.py",
    ),
    "is a part of Raft that its turn (`Core.pump`) asks each time, or that packs an entry": (
        "metadata_quorum/raft/compaction.py",
        "metadata_quorum/raft/election.py",
        "metadata_quorum/raft/entries.py",
        "metadata_quorum/raft/follower.py",
        "metadata_quorum/raft/formation.py",
        "metadata_quorum/raft/membership.py",
        "metadata_quorum/raft/election_backoff.py",
        "metadata_quorum/raft/records.py",
    ),
    "keeps a detail of the state for the row that calls it": (
        "metadata_quorum/state/history.py",
        "metadata_quorum/state/transaction_session.py",
    ),
}
"""Files that a walk may enter without a row, by the reason.

A row may still name them, because they may be a step of another walk. A name that ends with a slash is a whole folder.
"""


@dataclass(frozen=True)
class Row:
    """A row of a table."""

    line: int
    step: str
    entry: Entry

    def __str__(self) -> str:
        file, function = self.entry
        return f"{PAGE.name}:{self.line}: {self.step}, `{file}`, `{function}`"


@cache
def rows() -> dict[str, Row]:
    """Return all rows of the page, by their steps."""
    found: dict[str, Row] = {}
    for number, line in enumerate(PAGE.read_text().splitlines(), 1):
        if match := ROW.match(line):
            step, file, function = match.groups()
            assert step not in found, f"{PAGE.name}:{number}: there are two rows {step}"
            found[step] = Row(number, step, (file, function))
    return found


@cache
def table(name: str) -> tuple[Row, ...]:
    """Return the rows of a request: the rows of the section whose heading begins with `name`, and
    all referenced rows.
    """
    text = PAGE.read_text()
    (section,) = re.findall(rf"^### {name}\b.*?(?=^##)", text, re.MULTILINE | re.DOTALL)
    found: list[Row] = []
    for line in section.splitlines():
        if match := REFERENCE.match(line):
            letter, first, last_letter, last = match.groups()
            assert letter == last_letter, line
            found += [rows()[f"{letter}{number}"] for number in range(int(first), int(last) + 1)]
        elif match := ROW.match(line):
            found.append(rows()[match[1]])
    return tuple(found)


def has_reason(file: str) -> bool:
    """Return whether `LEFT_OUT` names the file or a folder above it."""
    return any(
        file == name or (name.endswith("/") and file.startswith(name))
        for names in LEFT_OUT.values()
        for name in names
    )


def faults(table: tuple[Row, ...], walk: Walk) -> list[str]:
    """Return the differences between the rows of a request and its walk, each with the necessary change."""
    places = {entry: place for place, entry in enumerate(walk)}
    found = []
    before: Row | None = None
    for row in table:
        if row.entry not in places:
            file, function = row.entry
            others = [name for entered, name in walk if entered == file and "<" not in name]
            found.append(
                f"{row}: the request does not enter it. "
                + (
                    f"It enters {', '.join(others)} of this file: name"
                    if others
                    else "Take the row out, or name"
                )
                + (" one of them." if others else " the file that now does this.")
            )
            continue
        if before is not None and places[row.entry] < places[before.entry]:
            found.append(f"{row}: the request enters it before {before.step}. Exchange the rows.")
        before = row
    named = {row.entry[0] for row in table}
    missing = {
        file: function for file, function in reversed(walk) if file not in named and not has_reason(file)
    }
    for file, function in missing.items():
        place = places[file, function]
        last = [row for row in table if places.get(row.entry, len(walk)) < place]
        found.append(
            f"{PAGE.name}: `{file}`, `{function}`: the request enters it after {last[-1] if last else 'nothing'}. "
            "Add a row, or the file to LEFT_OUT with the reason."
        )
    return found


@pytest.fixture(scope="module")
def walked(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Walk]:
    """Return the walk of each request."""
    return walks(tmp_path_factory.mktemp("walks"), lambda name, walk: not faults(table(name), walk))


@pytest.mark.parametrize("name", [PRODUCE, FETCH, CREATE, END])
def test_the_request_walks_as_its_table_says(name: str, walked: dict[str, Walk]) -> None:
    assert len(table(name)) > 15
    found = faults(table(name), walked[name])
    assert not found, "\n".join(found)


def test_every_row_belongs_to_a_request() -> None:
    used = {row.step for name in (PRODUCE, FETCH, CREATE, END) for row in table(name)}
    assert used == rows().keys()


def test_the_steps_of_each_letter_are_numbered() -> None:
    for letter in {step[0] for step in rows()}:
        numbers = [int(step[1:]) for step in rows() if step[0] == letter]
        assert numbers == [*range(1, len(numbers) + 1)], f"{PAGE.name}: rows {letter} are numbered {numbers}"


def test_what_is_left_out_is_entered_by_a_request_without_a_row_for_it(walked: dict[str, Walk]) -> None:
    without_row = {
        file
        for name, walk in walked.items()
        for file, _ in walk
        if file not in {row.entry[0] for row in table(name)}
    }
    names = [name for names in LEFT_OUT.values() for name in names if not name.endswith("/")]
    assert len(names) == len(set(names))
    stale = [name for name in names if name not in without_row]
    assert not stale, (
        f"take these out of LEFT_OUT: no request enters them, or all that do have a row: {stale}"
    )


def test_faults_name_the_row_and_the_remedy() -> None:
    first, second = Row(10, "A1", ("dataplane/a.py", "begin")), Row(11, "A2", ("dataplane/b.py", "end"))
    begin, end = first.entry, second.entry
    assert faults((first, second), [begin, ("protocol/wire/codec.py", "decode"), end]) == []
    assert faults((first, second), [end, begin]) == [
        "ARCHITECTURE.md:11: A2, `dataplane/b.py`, `end`: the request enters it before A1. Exchange the rows."
    ]
    assert faults((first, second), [begin]) == [
        "ARCHITECTURE.md:11: A2, `dataplane/b.py`, `end`: the request does not enter it. Take the row out, or name the "
        "file that now does this."
    ]
    assert faults((first, second), [begin, ("dataplane/b.py", "stop")]) == [
        "ARCHITECTURE.md:11: A2, `dataplane/b.py`, `end`: the request does not enter it. It enters stop of this file: "
        "name one of them."
    ]
    assert faults((first, second), [begin, ("dataplane/new.py", "work"), end]) == [
        "ARCHITECTURE.md: `dataplane/new.py`, `work`: the request enters it after ARCHITECTURE.md:10: A1, "
        "`dataplane/a.py`, `begin`. Add a row, or the file to LEFT_OUT with the reason."
    ]
