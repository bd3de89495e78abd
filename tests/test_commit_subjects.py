"""The rule for commit messages: its refusals, and the histories in which it is looked up."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commit_subjects import (
    BODY,
    GOOD,
    HOOK,
    ROOT,
    NoHistory,
    faults_of_message,
    faults_of_subject,
    folders_of,
    main,
    subjects_under_the_rule,
)

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
FOLDERS = folders_of(["client/producer.py", "dataplane/log/segments/segment.py", "docs/CLI.md"])
SHARED = (HOOK, "tests/commit_subjects.py")
"""Files that every repository with the rule contains."""


class Repository:
    """A git repository in a temporary folder, with the hook and the script of this repository."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.environment = {
            name: value for name, value in os.environ.items() if not name.startswith("GIT_")
        } | {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
        root.mkdir(exist_ok=True)

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, cwd=self.root, env=self.environment, capture_output=True, text=True)

    def git(self, *arguments: str) -> str:
        author = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
        done = self.run("git", *author, *arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def commit(self, subject: str, file: str = "client/a.py") -> None:
        path = self.root / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(subject)
        self.git("add", "--all")
        self.git("commit", "--no-verify", "-m", subject)

    def bring_the_rule(self) -> None:
        for shared in SHARED:
            (self.root / shared).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / shared, self.root / shared)
        self.git("add", "--all")
        self.git("commit", "--no-verify", "-m", "The rule comes, and does not hold for itself")

    def check(self) -> subprocess.CompletedProcess[str]:
        return self.run(sys.executable, "tests/commit_subjects.py")


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    made = Repository(tmp_path / "ours")
    made.git("init", "-q", "-b", "main")
    made.commit("A commit from before the rule")
    made.bring_the_rule()
    return made


@pytest.mark.parametrize(
    "subject",
    [
        "client: refuse a negative timeout",
        "dataplane/log: keep the epochs of a recovered log",
        "log/segments: search in C",
        "log: `read` ends at the limit",
        "changelog: list what 0.1.0 can do",
        "Merge branch 'main' into client",
        'Revert "The old style of a subject, which may be as long as it wants to be, even much longer"',
        "fixup! Anything",
        "squash! Anything",
        "docs: " + "say it " * 9 + "all",
    ],
)
def test_good_subjects(subject: str) -> None:
    assert list(faults_of_subject(subject, FOLDERS)) == []


@pytest.mark.parametrize(
    ("subject", "fault"),
    [
        ("Refuse a negative timeout", "not `area: verb object`"),
        ("client: Refuse a negative timeout", "not `area: verb object`"),
        ("client:refuse a negative timeout", "not `area: verb object`"),
        ("client: mend", "a verb and an object"),
        ("client: refuse a negative timeout.", "full stop"),
        ("clients: refuse a negative timeout", "the area `clients` is no folder"),
        ("log/producers: drop old ids", "the area `log/producers` is no folder"),
        ("docs: say it " + "all " * 20, "characters, and 72 are allowed"),
    ],
)
def test_refused_subjects(subject: str, fault: str) -> None:
    assert fault in "\n".join(faults_of_subject(subject, FOLDERS))


def test_the_example_of_a_good_message_is_good() -> None:
    lines = [line.removeprefix("    ") for line in GOOD.splitlines()]
    assert list(faults_of_message("\n".join(lines), FOLDERS)) == []
    assert "\n".join(lines) in (ROOT / "CONTRIBUTING.md").read_text()


def test_a_body_says_what_was_and_is_and_which_test_holds_it() -> None:
    subject = "client: refuse a negative timeout"
    comments = "\n# Before: is no line of the body\n# ------------------------ >8 ------------------------\nNow: a diff"
    assert list(faults_of_message(subject + comments, FOLDERS)) == [
        f"the body has no line that begins with {', '.join(BODY)}"
    ]
    assert list(faults_of_message(f"{subject}\nBefore: a\nNow: b\nTest: c", FOLDERS)) == [
        "the line after the subject is not empty"
    ]
    assert list(faults_of_message("Merge branch 'main'\n\nno body of ours", FOLDERS)) == []


def test_the_history_is_checked_from_the_commit_that_brought_the_rule(repository: Repository) -> None:
    assert "subjects of 0 commits are in order" in repository.check().stdout
    repository.commit("client: refuse a negative timeout")
    assert "subjects of 1 commits are in order" in repository.check().stdout
    repository.commit("A commit after the rule")
    done = repository.check()
    assert done.returncode == 1
    assert "A commit after the rule\n  the subject is not `area: verb object`" in done.stderr
    assert "1 of 2 subjects" in done.stderr


def test_an_area_may_be_a_folder_that_has_gone_since(repository: Repository) -> None:
    repository.commit("old_room: write down a number", "old_room/a.py")
    repository.git("rm", "-q", "old_room/a.py")
    repository.git("commit", "--no-verify", "-m", "old_room: remove the last file")
    assert repository.check().stdout == "subjects of 2 commits are in order\n"


def test_a_shallow_clone_passes_with_the_commits_that_it_has(repository: Repository, tmp_path: Path) -> None:
    repository.commit("A commit that the clone has not got")
    repository.commit("client: refuse a negative timeout")
    repository.commit("client: refuse a negative size", "client/b.py")
    shallow = Repository(tmp_path / "shallow")
    shallow.git("clone", "-q", "--depth", "2", repository.root.as_uri(), ".")
    assert shallow.check().stdout == "subjects of 1 commits are in order, in a shallow clone\n"


def test_a_folder_without_git_or_without_the_rule_passes_with_a_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    with pytest.raises(NoHistory, match="not a git repository"):
        subjects_under_the_rule(tmp_path)
    without = Repository(tmp_path)
    without.git("init", "-q")
    without.commit("client: add a file")
    with pytest.raises(NoHistory, match="no commit has added"):
        subjects_under_the_rule(tmp_path)
    with pytest.raises(NoHistory, match="a part of another repository"):
        subjects_under_the_rule(tmp_path / "client")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoHistory, match="git is not installed"):
        subjects_under_the_rule(tmp_path)


def test_the_check_itself_passes_without_history(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr("tests.commit_subjects.ROOT", tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert main([]) == 0
    assert "are not checked: git rev-parse: fatal: not a git repository" in capsys.readouterr().out


def test_the_hook_refuses_and_accepts(repository: Repository) -> None:
    repository.git("config", "core.hooksPath", ".githooks")
    author = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
    refused = repository.run("git", *author, "commit", "--allow-empty", "-m", "Something else")
    assert refused.returncode != 0
    assert "the subject is not `area: verb object`" in refused.stderr
    assert GOOD in refused.stderr
    repository.git(
        "commit", "--allow-empty", "-m", "\n".join(line.removeprefix("    ") for line in GOOD.splitlines())
    )
    repository.git("commit", "--allow-empty", "-m", "fixup! client: refuse a negative timeout")
