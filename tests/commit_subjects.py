"""The rule for commit messages, for the hook `.githooks/commit-msg` and for `make lint-commits`.

With the path of a message as argument, this script checks that message: its subject, and the three lines of its body.
Without an argument it checks the subjects of all commits after the commit that brought the rule. That commit is the
one that added the hook, and git finds it by the hook's path. Its id is not written down, since an id changes when a
commit is picked onto another branch.

The hook may run with the system's Python, so this file needs Python 3.8 and the standard library alone.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HOOK = ".githooks/commit-msg"
SUBJECT_MAX = 72
FORM = re.compile(r"(?P<area>[a-z_]+(?:/[a-z_]+)*): [a-z`].{3,}")
OTHER_AREAS = frozenset({"build", "changelog", "ci", "license", "lint", "mirrors", "readme", "spark"})
"""Areas that are no folder of the repository."""
BODY = ("Before:", "Now:", "Test:")
WRITTEN_BY_GIT = re.compile(r"Merge |Revert |Reapply |(?:fixup|squash|amend)! ")
SCISSORS = "# ------------------------ >8 ------------------------"
GOOD = """\
    client: refuse a negative timeout

    Before: `Consumer(timeout_ms=-1)` waited for ever.
    Now: it raises ValueError with the name of the option.
    Test: tests/client/test_options.py."""


class NoHistory(Exception):
    """A directory without a git history in which the rule can be found; its text says why."""


def faults_of_subject(subject: str, folders: Iterable[str]) -> Iterator[str]:
    """Yield a sentence for each part of the rule that this subject breaks.

    `folders` are the folders of the repository, by their paths from the root.
    """
    if WRITTEN_BY_GIT.match(subject):
        return
    if len(subject) > SUBJECT_MAX:
        yield f"the subject has {len(subject)} characters, and {SUBJECT_MAX} are allowed"
    form = FORM.fullmatch(subject)
    if form is None:
        yield "the subject is not `area: verb object`, in lower case after the colon"
        return
    area = form["area"]
    if " " not in subject[len(area) + 2 :].strip():
        yield "the subject needs a verb and an object"
    if subject.endswith("."):
        yield "the subject ends with a full stop"
    if area not in OTHER_AREAS and not any(f"/{folder}".endswith(f"/{area}") for folder in folders):
        yield (
            f"the area `{area}` is no folder of the repository; "
            f"take one, such as `client` or `dataplane/log`, or one of {', '.join(sorted(OTHER_AREAS))}"
        )


def faults_of_message(message: str, folders: Iterable[str]) -> Iterator[str]:
    """Yield a sentence for each part of the rule that this message breaks.

    Lines that git leaves out of the commit are left out here too: comments, and all below the scissors.
    """
    lines = [line for line in message.split(SCISSORS)[0].splitlines() if not line.startswith("#")]
    while lines and not lines[0].strip():
        del lines[0]
    if not lines:
        return  # git itself refuses an empty message
    subject, body = lines[0].rstrip(), lines[1:]
    yield from faults_of_subject(subject, folders)
    if WRITTEN_BY_GIT.match(subject):
        return
    if body and body[0].strip():
        yield "the line after the subject is not empty"
    missing = [start for start in BODY if not any(line.startswith(start) for line in body)]
    if missing:
        yield f"the body has no line that begins with {', '.join(missing)}"


def folders_of(paths: Iterable[str]) -> set[str]:
    """Return every folder above these paths, by its own path from the root."""
    return {
        "/".join(parts[:end]) for parts in (path.split("/") for path in paths) for end in range(1, len(parts))
    }


def git(root: Path, *arguments: str) -> str:
    """Return the output of a git command that runs in `root`.

    Raises NoHistory if git is missing or the command fails.
    """
    try:
        done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, check=True)
    except OSError:
        raise NoHistory("git is not installed") from None
    except subprocess.CalledProcessError as failed:
        first, *_ = [*failed.stderr.decode(errors="replace").splitlines(), "no reason given"]
        raise NoHistory(f"git {arguments[0]}: {first}") from None
    return done.stdout.decode(errors="replace")


def tracked_folders(root: Path) -> set[str]:
    """Return the folders of all files in git's index, by their paths from the root."""
    return folders_of(git(root, "ls-files", "-z").split("\0"))


def folders_at(root: Path, commit: str) -> set[str]:
    """Return the folders that a commit had, or removed, by their paths from the root."""
    found = set(git(root, "ls-tree", "-rdz", "--name-only", commit).split("\0"))
    return found | folders_of(git(root, "show", "-z", "--format=", "--name-only", commit).split("\0"))


def subjects_under_the_rule(root: Path) -> list[tuple[str, str]]:
    """Return the id and the subject of each commit after the commit that added the hook, the newest first.

    In a shallow clone git reports that the oldest known commit added every file. Only later commits are returned then.

    Raises NoHistory if `root` is not the top of a checkout, or if no commit has added the hook.
    """
    if git(root, "rev-parse", "--show-prefix").strip():
        raise NoHistory("this folder is a part of another repository")
    added = git(root, "log", "--diff-filter=A", "--format=%H", "--", HOOK).split()
    if not added:
        raise NoHistory(f"no commit has added {HOOK}")
    listed = git(root, "log", "--no-merges", "-z", "--format=%H %s", f"{added[-1]}..HEAD").split("\0")
    return [(commit, subject) for commit, _, subject in (line.partition(" ") for line in listed) if commit]


def check_history(root: Path) -> int:
    """Print the commits whose subjects break the rule, and return the exit code: 1 if there are any, else 0."""
    try:
        subjects = subjects_under_the_rule(root)
        folders = tracked_folders(root)
        shallow = git(root, "rev-parse", "--is-shallow-repository").strip() == "true"
        wrong = 0
        for commit, subject in subjects:
            faults = list(faults_of_subject(subject, folders))
            if faults:  # perhaps the folder was renamed since
                faults = list(faults_of_subject(subject, folders | folders_at(root, commit)))
            wrong += bool(faults)
            for fault in faults:
                print(f"{commit[:10]} {subject}\n  {fault}", file=sys.stderr)
    except NoHistory as reason:
        print(f"subjects of commits are not checked: {reason}")
        return 0
    if wrong:
        print(
            f"{wrong} of {len(subjects)} subjects break the rule of CONTRIBUTING.md, Commits", file=sys.stderr
        )
        return 1
    print(f"subjects of {len(subjects)} commits are in order" + (", in a shallow clone" if shallow else ""))
    return 0


def check_file(root: Path, path: Path) -> int:
    """Print the faults of the message in a file, and return the exit code: 1 if there are any, else 0."""
    try:
        folders = tracked_folders(root)
    except NoHistory as reason:
        print(f"commit-msg: the message is not checked: {reason}", file=sys.stderr)
        return 0
    faults = list(faults_of_message(path.read_text(encoding="utf-8", errors="replace"), folders))
    for fault in faults:
        print(f"commit-msg: {fault}", file=sys.stderr)
    if faults:
        print(f"\nThe rule is in CONTRIBUTING.md, Commits. A good message:\n\n{GOOD}\n", file=sys.stderr)
        print(f"Your message is kept in {os.path.relpath(path)}.", file=sys.stderr)
    return 1 if faults else 0


def main(arguments: list[str]) -> int:
    """Check the message in the file that is named, or the history without an argument; return the exit code."""
    return check_file(Path.cwd(), Path(arguments[0])) if arguments else check_history(ROOT)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
